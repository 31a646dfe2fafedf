/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/types.h"
#include "shmem/check_calls.h"

/* Pages may be larger than 4 KiB: aarch64 has some of 64 KiB. */
#define PAGE ((uint64_t)sysconf(_SC_PAGESIZE))

/* Relocation types: for a call through the procedure linkage table, for a call by address, and for
 * a pointer in data. */
#if defined(__x86_64__)
#define RELOCATION_CALL R_X86_64_JUMP_SLOT
#define RELOCATION_ADDRESS R_X86_64_GLOB_DAT
#define RELOCATION_POINTER R_X86_64_64
#elif defined(__aarch64__)
#define RELOCATION_CALL R_AARCH64_JUMP_SLOT
#define RELOCATION_ADDRESS R_AARCH64_GLOB_DAT
#define RELOCATION_POINTER R_AARCH64_ABS64
#else
#error "which relocations do calls have on this machine?"
#endif

/* The parts of an object's dynamic section that name the functions it calls. */
struct object {
    uintptr_t base;
    const Elf64_Sym *symbols;
    const char *strings;
    const Elf64_Rela *relocations[2];
    size_t counts[2];
    uintptr_t relro_begin, relro_end;
};

static uintptr_t address_of(const struct object *object, uintptr_t pointer)
{
    /* glibc has relocated most of them, but not in every object. */
    return pointer < object->base ? object->base + pointer : pointer;
}

static bool read_object(const struct dl_phdr_info *info, struct object *ret_object)
{
    struct object *object = ret_object;
    const Elf64_Dyn *dynamic = NULL;

    memset(object, 0, sizeof(*object));
    object->base = info->dlpi_addr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *header = &info->dlpi_phdr[i];
        uintptr_t address = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_DYNAMIC)
            dynamic = (const Elf64_Dyn *)address;
        if (header->p_type == PT_GNU_RELRO) {
            object->relro_begin = via_align_down(address, PAGE);
            object->relro_end = via_align_down(address + header->p_memsz, PAGE);
        }
    }
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        uintptr_t pointer = address_of(object, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            object->symbols = (const Elf64_Sym *)pointer;
            break;
        case DT_STRTAB:
            object->strings = (const char *)pointer;
            break;
        case DT_RELA:
            object->relocations[0] = (const Elf64_Rela *)pointer;
            break;
        case DT_RELASZ:
            object->counts[0] = dynamic->d_un.d_val / sizeof(Elf64_Rela);
            break;
        case DT_JMPREL:
            object->relocations[1] = (const Elf64_Rela *)pointer;
            break;
        case DT_PLTRELSZ:
            object->counts[1] = dynamic->d_un.d_val / sizeof(Elf64_Rela);
            break;
        default:
            break;
        }
    }
    return object->symbols && object->strings;
}

/*
 * True if this function is the library's; a tool's function of the same name is not. If a program
 * that is not position independent takes the function's address, the address is that of the
 * program's own linkage stub: an undefined symbol with an address, through which the call reaches
 * the library.
 */
static bool is_ours(const char *name, uint64_t type)
{
    const Elf64_Sym *symbol = NULL;
    Dl_info info;
    void *bound = dlsym(RTLD_DEFAULT, name);

    if (!bound || !dladdr1(bound, &info, (void **)&symbol, RTLD_DL_SYMENT))
        return false;
    return info.dli_fbase == via_call_object() ||
           (type == RELOCATION_CALL && symbol && symbol->st_shndx == SHN_UNDEF);
}

/* The call that a relocation belongs to; NULL for any other symbol, and for calls that another
 * library defines. */
static struct via_call *call_of(const struct object *object, const Elf64_Rela *relocation)
{
    uint64_t type = ELF64_R_TYPE(relocation->r_info);

    if (type != RELOCATION_CALL && type != RELOCATION_ADDRESS && type != RELOCATION_POINTER)
        return NULL;
    const char *name = object->strings + object->symbols[ELF64_R_SYM(relocation->r_info)].st_name;
    bool profiled = name[0] == 'p';
    struct via_call *call = via_call_of_name(name + profiled);
    return call && is_ours(name, type) ? call : NULL;
}

static int hook(const struct object *object, const Elf64_Rela *relocation,
                const struct via_call *call, struct via_error *err)
{
    uintptr_t slot = object->base + relocation->r_offset;
    bool read_only = slot >= object->relro_begin && slot < object->relro_end;
    void *page = (void *)via_align_down(slot, PAGE);
    uintptr_t stub = (uintptr_t)via_call_stub(call);

    if (ELF64_R_TYPE(relocation->r_info) == RELOCATION_POINTER)
        stub += (uintptr_t)relocation->r_addend;
    if (read_only && mprotect(page, PAGE, PROT_READ | PROT_WRITE) < 0)
        return via_error_set(err, -errno, "%s: the table of called functions: mprotect: %s",
                             call->name, strerror(errno));
    memcpy((void *)slot, &stub, sizeof(stub));
    if (read_only && mprotect(page, PAGE, PROT_READ) < 0)
        return via_error_set(err, -errno, "%s: mprotect: %s", call->name, strerror(errno));
    return 0;
}

static int hook_object(struct dl_phdr_info *info, size_t bytes, void *argument)
{
    struct object object;
    int result = 0;

    (void)bytes;
    /* Only the program's calls are checked, not the library's own; and the kernel's object (vDSO)
     * makes none. */
    if (info->dlpi_addr == (uintptr_t)via_call_object() || !read_object(info, &object))
        return 0;
    for (int table = 0; table < 2; table++) {
        for (size_t i = 0; i < object.counts[table] && object.relocations[table] && result == 0;
             i++) {
            const struct via_call *call = call_of(&object, &object.relocations[table][i]);
            if (call)
                result = hook(&object, &object.relocations[table][i], call, argument);
        }
    }
    return result;
}

void *via_call_object(void)
{
    /* Several threads may be the first; all compute the same value. */
    static _Atomic(void *) known;
    void *base = atomic_load_explicit(&known, memory_order_relaxed);
    Dl_info info;

    if (!base && dladdr((const void *)via_check_hook, &info)) {
        base = info.dli_fbase;
        atomic_store_explicit(&known, base, memory_order_relaxed);
    }
    return base;
}

int via_check_hook(struct via_error *err)
{
    return dl_iterate_phdr(hook_object, err);
}
