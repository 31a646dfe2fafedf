/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/types.h"

/* Aliases and parts of a variable may lie between its beginning and an address in it. */
#define SYMBOLS_BACK 8

struct table {
    struct via_symbol *symbols; /* by address */
    size_t count;
};

static struct table data, code;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* --- reading ---------------------------------------------------------------------------------- */

static int first_object(struct dl_phdr_info *info, size_t bytes, void *argument)
{
    (void)bytes;
    *(uintptr_t *)argument = info->dlpi_addr;
    return 1;
}

static int by_address(const void *a, const void *b)
{
    const struct via_symbol *left = a, *right = b;

    if (left->address != right->address)
        return left->address < right->address ? -1 : 1;
    /* Of symbols with the same address the largest is last, because the search begins there. */
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static void fill(struct table *table, unsigned type, const char *file, const Elf64_Shdr *section,
                 const Elf64_Shdr *strings, uintptr_t base)
{
    const Elf64_Sym *symbols = (const Elf64_Sym *)(const void *)(file + section->sh_offset);
    size_t count = section->sh_size / sizeof(*symbols);

    table->symbols = calloc(count + 1, sizeof(*table->symbols));
    if (!table->symbols)
        return;
    for (size_t i = 0; i < count; i++) {
        const Elf64_Sym *symbol = &symbols[i];
        if (ELF64_ST_TYPE(symbol->st_info) != type || symbol->st_size == 0 ||
            symbol->st_shndx == SHN_UNDEF || symbol->st_name >= strings->sh_size)
            continue;
        table->symbols[table->count++] =
            (struct via_symbol){.name = file + strings->sh_offset + symbol->st_name,
                                .address = base + symbol->st_value,
                                .bytes = symbol->st_size};
    }
    qsort(table->symbols, table->count, sizeof(*table->symbols), by_address);
}

static bool is_inside(const Elf64_Shdr *section, size_t bytes)
{
    return section->sh_offset <= bytes && section->sh_size <= bytes - section->sh_offset;
}

/* The program's own file; an error in it only makes names unknown. */
static void read_sections(const char *file, size_t bytes, uintptr_t base)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)(const void *)file;
    const Elf64_Shdr *found = NULL;

    if (bytes < sizeof(*header) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shoff > bytes || header->e_shoff % 8 != 0 ||
        header->e_shnum > (bytes - header->e_shoff) / sizeof(Elf64_Shdr))
        return;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(file + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; i++)
        if (sections[i].sh_type == SHT_SYMTAB || (sections[i].sh_type == SHT_DYNSYM && !found))
            found = &sections[i];
    if (!found || found->sh_link >= header->e_shnum || found->sh_offset % 8 != 0)
        return;
    const Elf64_Shdr *strings = &sections[found->sh_link];
    /* The last name must end within the file. */
    if (!is_inside(found, bytes) || !is_inside(strings, bytes) || strings->sh_size == 0 ||
        file[strings->sh_offset + strings->sh_size - 1] != '\0')
        return;
    fill(&data, STT_OBJECT, file, found, strings, base);
    fill(&code, STT_FUNC, file, found, strings, base);
}

static void read_program(void)
{
    uintptr_t base = 0;
    struct stat info;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    dl_iterate_phdr(first_object, &base);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0) {
        void *file = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (file != MAP_FAILED)
            read_sections(file, (size_t)info.st_size, base);
    }
    if (fd >= 0)
        close(fd);
}

/* --- looking up ------------------------------------------------------------------------------- */

static bool find(const struct table *table, uintptr_t address, struct via_symbol *ret_symbol)
{
    size_t low = 0, high = table->count;

    /* Find the first symbol that begins after the address. */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->symbols[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t back = 0; back < SYMBOLS_BACK && back < low; back++) {
        const struct via_symbol *symbol = &table->symbols[low - 1 - back];
        if (address - symbol->address < symbol->bytes) {
            *ret_symbol = *symbol;
            return true;
        }
    }
    return false;
}

bool via_symbol_find_data(uintptr_t address, struct via_symbol *ret_symbol)
{
    pthread_once(&once, read_program);
    return find(&data, address, ret_symbol);
}

const char *via_symbol_describe_code(uintptr_t address, char text[VIA_SYMBOL_TEXT_BYTES])
{
    struct via_symbol symbol;
    Dl_info info;

    pthread_once(&once, read_program);
    if (find(&code, address, &symbol)) {
        snprintf(text, VIA_SYMBOL_TEXT_BYTES, "%.64s+0x%" PRIxPTR, symbol.name,
                 address - symbol.address);
    } else if (dladdr((const void *)address, &info) == 0) {
        snprintf(text, VIA_SYMBOL_TEXT_BYTES, "0x%" PRIxPTR, address);
    } else if (info.dli_sname) {
        snprintf(text, VIA_SYMBOL_TEXT_BYTES, "%.64s+0x%" PRIxPTR, info.dli_sname,
                 address - (uintptr_t)info.dli_saddr);
    } else {
        const char *slash = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
        snprintf(text, VIA_SYMBOL_TEXT_BYTES, "%.64s+0x%" PRIxPTR,
                 slash ? slash + 1 : "the program", address - (uintptr_t)info.dli_fbase);
    }
    return text;
}
