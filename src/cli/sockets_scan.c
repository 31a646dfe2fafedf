/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/preload.h"
#include "cli/sockets.h"

#define BOARD_LINK "/memfd:" VIA_SOCKETS_BOARD_NAME " (deleted)"

struct socket {
    int fd;
    unsigned long inode;
};

/* The process under inspection. */
struct process {
    pid_t pid;
    char program[16];
    struct socket *sockets;
    size_t sockets_count;
    size_t sockets_room;
    int board_fd; /* number in that process; -1: none */
    const struct via_sockets_board *board;
    bool library;
};

/* The tables of the namespaces that were found so far. */
struct tables {
    struct via_sockets_table *all;
    size_t count;
    size_t room;
};

/* --- one process's descriptors --------------------------------------------------------------- */

static int take_fd(struct process *process, int fd, const char *target)
{
    unsigned long inode;
    if (strcmp(target, BOARD_LINK) == 0) {
        process->board_fd = fd;
        return 0;
    }
    if (sscanf(target, "socket:[%lu]", &inode) != 1) {
        return 0;
    }
    for (size_t i = 0; i < process->sockets_count; i++) {
        if (process->sockets[i].inode == inode) {
            return 0; /* a duplicate of that descriptor */
        }
    }
    int rc = via_sockets_grow((void **)&process->sockets, sizeof(*process->sockets),
                              process->sockets_count, &process->sockets_room);
    if (rc == 0) {
        process->sockets[process->sockets_count++] = (struct socket){.fd = fd, .inode = inode};
    }
    return rc;
}

static int read_fds(struct process *process)
{
    char path[64];
    int rc = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)process->pid);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return -errno;
    }
    for (const struct dirent *it; rc == 0 && (it = readdir(folder)) != NULL;) {
        char target[128];
        ssize_t n = readlinkat(dirfd(folder), it->d_name, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = '\0';
            rc = take_fd(process, atoi(it->d_name), target);
        }
    }
    closedir(folder);
    return rc;
}

/* The process's own id of itself, in the innermost PID namespace. */
static int own_pid(pid_t pid)
{
    char path[64], line[256];
    int own = (int)pid;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "NSpid:", 6) == 0) {
            own = atoi(strrchr(line, '\t') + 1);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return own;
}

/* Another process chose the text, which appears in tables and JSON: replaces characters that are
 * not printable. */
static void make_plain(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~') {
            *at = '?';
        }
    }
}

static bool is_board(const struct via_sockets_board *board, pid_t pid)
{
    /* A child that has not made its own board yet still has its parent's. */
    return board->magic == VIA_SOCKETS_BOARD_MAGIC && board->version == VIA_SOCKETS_BOARD_VERSION &&
           board->entry_bytes == sizeof(struct via_sockets_entry) && board->pid == own_pid(pid);
}

static void map_board(struct process *process)
{
    char path[64];
    struct stat stat;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)process->pid, process->board_fd);
    /* The file may be of any kind: the open must not block. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return;
    }
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &stat) == 0 &&
        stat.st_size == (off_t)VIA_SOCKETS_BOARD_BYTES) {
        void *memory = mmap(NULL, VIA_SOCKETS_BOARD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        if (memory != MAP_FAILED && is_board(memory, process->pid)) {
            process->board = memory;
        } else if (memory != MAP_FAILED) {
            munmap(memory, VIA_SOCKETS_BOARD_BYTES);
        }
    }
    close(fd);
}

static bool has_library(pid_t pid)
{
    char path[64];
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && getline(&line, &room, file) > 0) {
        found = strstr(line, "/" VIA_PRELOAD_NAME) != NULL;
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

static void read_name(struct process *process)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)process->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(process->program, sizeof(process->program), file) == NULL) {
        process->program[0] = '?';
    }
    process->program[strcspn(process->program, "\n")] = '\0';
    make_plain(process->program);
    if (file != NULL) {
        fclose(file);
    }
}

/* --- one connection -------------------------------------------------------------------------- */

static void set_reason(struct via_sockets_row *row, const char *text)
{
    snprintf(row->why, sizeof(row->why), "%s", text);
}

static void fill_from_entry(const struct process *process, uint32_t index,
                            struct via_sockets_row *row)
{
    const struct via_sockets_entry *entries =
        (const void *)((const unsigned char *)process->board + VIA_SOCKETS_ENTRIES_OFF);
    /* A byte of the board may have any value, a bool may not. */
    unsigned char bytes[sizeof(row->stats)];
    memcpy(bytes, &entries[index].stats, sizeof(bytes));
    unsigned char *accelerated = &bytes[offsetof(struct via_stats_conn, accelerated)];
    unsigned char *demoted = &bytes[offsetof(struct via_stats_conn, demoted)];
    *accelerated = *accelerated != 0;
    *demoted = *demoted != 0;
    memcpy(&row->stats, bytes, sizeof(bytes));
    row->counted = true;
    bool untaken = via_stats_is_untaken(&row->stats);
    row->accelerated = row->stats.accelerated && !row->stats.demoted && !untaken;
    if (untaken) {
        set_reason(row, "not decided yet: the other end has not taken its pipes");
    } else if (!row->accelerated) {
        set_reason(row, row->stats.reason == VIA_REASON_NONE
                            ? "not decided yet: it has moved little data"
                            : via_reason_text(row->stats.reason));
    }
}

/* Fills in the library's entry. The board is memory of another process: copied, then used. */
static void fill_row(const struct process *process, int fd, struct via_sockets_row *row)
{
    if (!process->library) {
        set_reason(row, "program runs without the library");
        return;
    }
    uint32_t word = 0;
    if (process->board != NULL && (unsigned)fd < VIA_SOCKETS_NUMBERS_COUNT) {
        const _Atomic uint32_t *numbers =
            (const void *)((const unsigned char *)process->board + VIA_SOCKETS_NUMBERS_OFF);
        word = atomic_load_explicit(&numbers[fd], memory_order_acquire);
    }
    uint32_t entry = VIA_SOCKETS_NUMBER_ENTRY(word);
    if (entry != 0 && entry <= VIA_SOCKETS_ENTRIES_COUNT) {
        fill_from_entry(process, entry - 1, row);
    } else if (VIA_SOCKETS_NUMBER_REASON(word) == VIA_REASON_OFF &&
               process->board->error[0] != '\0') {
        snprintf(row->why, sizeof(row->why), "switched off: %.*s",
                 (int)sizeof(process->board->error) - 1, process->board->error);
        make_plain(row->why);
    } else if (word != 0) {
        set_reason(row, via_reason_text(VIA_SOCKETS_NUMBER_REASON(word)));
    } else {
        set_reason(row, "connected before it came to this program");
    }
}

static int add_row(struct via_sockets_list *list, const struct process *process,
                   const struct socket *socket, const struct via_sockets_tcp *tcp)
{
    int rc = via_sockets_grow((void **)&list->rows, sizeof(*list->rows), list->count, &list->room);
    if (rc != 0) {
        return rc;
    }
    struct via_sockets_row *row = &list->rows[list->count++];
    *row = (struct via_sockets_row){.pid = process->pid, .fd = socket->fd, .state = tcp->state};
    memcpy(row->program, process->program, sizeof(row->program));
    memcpy(row->local, tcp->local, sizeof(row->local));
    memcpy(row->peer, tcp->peer, sizeof(row->peer));
    fill_row(process, socket->fd, row);
    return 0;
}

/* --- all processes ---------------------------------------------------------------------------- */

/* The table of the process's network namespace. NULL: it can not be read. */
static const struct via_sockets_table *table_of(struct tables *tables, pid_t pid)
{
    char path[64], name[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    ssize_t n = readlink(path, name, sizeof(name) - 1);
    if (n <= 0) {
        return NULL;
    }
    name[n] = '\0';
    for (size_t i = 0; i < tables->count; i++) {
        if (strcmp(tables->all[i].namespace, name) == 0) {
            return &tables->all[i];
        }
    }
    if (via_sockets_grow((void **)&tables->all, sizeof(*tables->all), tables->count,
                         &tables->room) != 0) {
        return NULL;
    }
    struct via_sockets_table *table = &tables->all[tables->count];
    *table = (struct via_sockets_table){.count = 0};
    memcpy(table->namespace, name, (size_t)n + 1);
    if (via_sockets_table_read(pid, table) != 0) {
        via_sockets_table_free(table);
        return NULL;
    }
    tables->count++;
    return table;
}

static int scan_process(struct process *process, struct tables *tables,
                        struct via_sockets_list *list)
{
    int rc = read_fds(process);
    if (rc != 0 || process->sockets_count == 0) {
        return rc == -ENOMEM ? rc : 0; /* it has ended, or this user may not access it */
    }
    const struct via_sockets_table *table = table_of(tables, process->pid);
    if (table == NULL) {
        return 0;
    }
    read_name(process);
    if (process->board_fd >= 0) {
        map_board(process);
    }
    process->library = process->board != NULL || has_library(process->pid);
    for (size_t i = 0; i < process->sockets_count && rc == 0; i++) {
        const struct via_sockets_tcp *tcp =
            via_sockets_table_find(table, process->sockets[i].inode);
        rc = tcp != NULL ? add_row(list, process, &process->sockets[i], tcp) : 0;
    }
    return rc;
}

static bool is_ours(int folder, const char *name)
{
    struct stat stat;
    return name[0] >= '1' && name[0] <= '9' && fstatat(folder, name, &stat, 0) == 0 &&
           (geteuid() == 0 || stat.st_uid == geteuid());
}

static int scan_all(pid_t pid, struct tables *tables, struct via_sockets_list *list)
{
    int rc = 0;
    bool found = pid == 0;
    DIR *folder = opendir("/proc");
    if (folder == NULL) {
        return -errno;
    }
    for (const struct dirent *it; rc == 0 && (it = readdir(folder)) != NULL;) {
        struct process process = {.pid = (pid_t)atoi(it->d_name), .board_fd = -1};
        if (!is_ours(dirfd(folder), it->d_name) || (pid != 0 && pid != process.pid)) {
            continue;
        }
        found = true;
        rc = scan_process(&process, tables, list);
        if (process.board != NULL) {
            munmap((void *)(uintptr_t)process.board, VIA_SOCKETS_BOARD_BYTES);
        }
        free(process.sockets);
    }
    closedir(folder);
    return rc == 0 && !found ? -ESRCH : rc;
}

int via_sockets_scan(pid_t pid, struct via_sockets_list *ret_list, struct via_error *err)
{
    struct tables tables = {.count = 0};
    int rc = scan_all(pid, &tables, ret_list);
    for (size_t i = 0; i < tables.count; i++) {
        via_sockets_table_free(&tables.all[i]);
    }
    free(tables.all);
    if (rc == -ESRCH) {
        return via_error_set(err, rc, "process %d: find: there is none of this user", (int)pid);
    }
    return rc == 0 ? 0 : via_error_set(err, rc, "/proc: read processes: %s", strerror(-rc));
}

void via_sockets_free(struct via_sockets_list *list)
{
    free(list->rows);
    list->rows = NULL;
}
