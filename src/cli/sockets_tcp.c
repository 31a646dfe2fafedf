/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* /proc/PID/net/tcp and tcp6: see proc(5). */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sockets.h"

#define STATE_LISTEN 0x0au

int via_sockets_grow(void **array, size_t size, size_t count, size_t *room)
{
    if (count < *room) {
        return 0;
    }
    size_t more = *room == 0 ? 64 : 2 * *room;
    void *grown = reallocarray(*array, more, size);
    if (grown == NULL) {
        return -ENOMEM;
    }
    *array = grown;
    *room = more;
    return 0;
}

static const char *state_text(unsigned state)
{
    static const char *const texts[] = {
        "?",      "established", "syn-sent", "syn-recv",  "fin-wait-1", "fin-wait-2", "time-wait",
        "closed", "close-wait",  "last-ack", "listening", "closing",    "syn-recv",
    };
    return state < sizeof(texts) / sizeof(texts[0]) ? texts[state] : "?";
}

/* Parses "0100007F:1F90": words of 32 bits in host order that contain bytes in network order. */
static bool parse_address(const char *text, char *ret_text)
{
    unsigned char ip[16];
    char name[INET6_ADDRSTRLEN];
    size_t words = strcspn(text, ":") / 8;
    unsigned port;
    if ((words != 1 && words != 4) || sscanf(text + 8 * words, ":%4x", &port) != 1) {
        return false;
    }
    for (size_t i = 0; i < words; i++) {
        unsigned word;
        if (sscanf(text + 8 * i, "%8x", &word) != 1) {
            return false;
        }
        memcpy(ip + 4 * i, &word, 4);
    }
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool v4 = words == 1 || memcmp(ip, mapped, sizeof(mapped)) == 0;
    if (inet_ntop(v4 ? AF_INET : AF_INET6, v4 && words == 4 ? ip + 12 : ip, name, sizeof(name)) ==
        NULL) {
        return false;
    }
    snprintf(ret_text, VIA_SOCKETS_ADDRESS_BYTES, v4 ? "%s:%u" : "[%s]:%u", name, port & 0xffffu);
    return true;
}

static int add_line(struct via_sockets_table *table, const char *line)
{
    char local[64], peer[64];
    unsigned state;
    unsigned long inode;
    if (sscanf(line, " %*[^:]: %63s %63s %x %*s %*s %*s %*s %*s %lu", local, peer, &state,
               &inode) != 4 ||
        state == STATE_LISTEN || inode == 0) {
        return 0;
    }
    int rc = via_sockets_grow((void **)&table->entries, sizeof(*table->entries), table->count,
                              &table->room);
    if (rc != 0) {
        return rc;
    }
    struct via_sockets_tcp *entry = &table->entries[table->count];
    if (parse_address(local, entry->local) && parse_address(peer, entry->peer)) {
        entry->inode = inode;
        entry->state = state_text(state);
        table->count++;
    }
    return 0;
}

static int read_file(pid_t pid, const char *name, struct via_sockets_table *table)
{
    char path[64];
    char line[512];
    int rc = 0;
    snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT ? 0 : -errno; /* no IPv6, or the process has ended */
    }
    while (rc == 0 && fgets(line, sizeof(line), file) != NULL) {
        rc = add_line(table, line);
    }
    fclose(file);
    return rc;
}

static int by_inode(const void *a, const void *b)
{
    unsigned long x = ((const struct via_sockets_tcp *)a)->inode;
    unsigned long y = ((const struct via_sockets_tcp *)b)->inode;
    return x < y ? -1 : x > y;
}

int via_sockets_table_read(pid_t pid, struct via_sockets_table *ret_table)
{
    int rc = read_file(pid, "tcp", ret_table);
    if (rc == 0) {
        rc = read_file(pid, "tcp6", ret_table);
    }
    if (ret_table->count > 0) {
        qsort(ret_table->entries, ret_table->count, sizeof(*ret_table->entries), by_inode);
    }
    return rc;
}

void via_sockets_table_free(struct via_sockets_table *table)
{
    free(table->entries);
    table->entries = NULL;
}

const struct via_sockets_tcp *via_sockets_table_find(const struct via_sockets_table *table,
                                                     unsigned long inode)
{
    const struct via_sockets_tcp key = {.inode = inode};
    return table->count == 0 ? NULL
                             : bsearch(&key, table->entries, table->count, sizeof(key), by_inode);
}
