/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Shared by the parts of prog_random_calls. */
#ifndef VIA_TESTS_SOCKETS_RANDOM_CALLS_H
#define VIA_TESTS_SOCKETS_RANDOM_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define UNDER_WAY_MAX 30000u
#define BUFFER_BYTES 65536u

/* epoll sets that contain each end. The later ones are for wide rounds only: random_calls_wide.c.
 */
enum { LEVEL, EDGE, ONCE, SETS, ALONE = SETS, EDGE_ONCE, OVER_LEVEL, OVER_EDGE, SETS_WIDE };

struct end {
    int fd; /* -1: closed */
    int sets[SETS_WIDE];
    uint64_t sent;
    uint64_t got;
    bool wr_shut;
    bool rd_shut;
    bool resets;     /* RST has been sent to it, or will be */
    bool aborts;     /* to be closed by RST: SO_LINGER */
    bool renumbered; /* its sets contain it under a closed number */
};

extern struct end ends[2];
extern int file_fd;
extern unsigned char out[BUFFER_BYTES], in[BUFFER_BYTES];
/* True if SO_RCVLOWAT was used: whether a few bytes cause an edge depends on the time of their
 * arrival. */
extern bool lowat_used;
/* SO_TIMESTAMP was set: the kernel stamps packets while any socket of the machine requests this,
 * and for a short time afterwards. */
extern bool stamps_used;

uint32_t dice(uint32_t sides);
_Noreturn void die(const char *attempt);

struct end *other(const struct end *end);
uint64_t unread(const struct end *end);
/* Waits until all bytes under way to the end have arrived; false: they do not arrive. */
bool settle(const struct end *end);

size_t some_bytes(void);
uint32_t hash_of(const void *data, size_t bytes);
/* epoll_wait(). The events of one registration; or of two, if the end is in the set by two numbers,
 * in either order; edges: calls twice for these. */
int wait_in_set(int set, int timeout_ms, bool edges, char events_text[32]);
/* Fills the buffer with the bytes that this end sends next. */
void fill_out(const struct end *end, size_t bytes);
/* Prints the line of a call: the call and its result. */
void report_call(const struct end *end, const char *what, long rc, int error);

/* --- random_calls_wide.c: calls that were added later, for seeds from this number on --------- */
#define WIDE_FROM 1000000u

/* Connects the two ends, by one of many sequences of calls. */
void wide_connect(void);
void wide_put_in_sets(struct end *end);
void wide_call(struct end *end, bool may_end);
/* The program, run by one of those calls with a descriptor of it. */
int wide_held(int argc, char **argv);

/* A library that carries the bytes itself returns the connection to the kernel. This fails if there
 * are unread bytes that no end can send again, or that the kernel has no room for
 * (viaduct-sockets(7), RETURN TO THE KERNEL). */
bool is_returnable(const struct end *end);

/* Another process sends `bytes` bytes, or receives them if negative. */
struct deed {
    long rc;
    int error;
    uint32_t hash;
};
struct deed deed_of(int fd, bool sends, size_t bytes);

/* The command line that makes wide_held() do that with fd, and write to answer_fd. */
struct held_words {
    char text[4][24];
    char *argv[8];
};
void wide_held_words(struct held_words *words, int fd, int answer_fd, bool sends, size_t bytes,
                     uint64_t at);

/* --- random_calls_more.c: calls that were added still later, for seeds from this number on --- */
#define MORE_FROM 2000000u

/* Both ends are in their sets. */
void more_begin(void);
void more_end(void);
void more_call(struct end *end, bool may_end);

/* --- random_calls_kinds.c: calls of one kind beside the wide ones, for seeds from this number on,
 * a million for each kind
 */
#define KINDS_FROM 3000000u
#define KIND_SEEDS 1000000u

enum kind { KIND_SIGNALS, KIND_CANCELLATION, KIND_CLONE, KIND_SPLICE, KINDS_COUNT };

void kinds_call(enum kind kind, struct end *end);

/* --- random_calls_fortified.c ---------------------------------------------------------------- */
#define FORTIFIED_MAX 100u
long fortified_read(int fd, unsigned how, size_t bytes, uint32_t *ret_hash);
int fortified_poll(int fd, unsigned how, unsigned *ret_seen);

#endif
