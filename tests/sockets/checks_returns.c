/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Connections return to the kernel while other threads use them. */
#include "checks.h"

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void use_stdio(int fd)
{
    FILE *file = fdopen(dup(fd), "r");
    CHECK(file != NULL && fclose(file) == 0);
}

#define ROUNDS 500
#define SENDS 40

struct shared {
    _Atomic int ready;
};
static struct shared *both;

static void meet(int number)
{
    both->ready++;
    while (both->ready < number) {
    }
}

static void *read_numbers(void *of_fd)
{
    int fd = *(int *)of_fd;
    unsigned char bytes[64], next = 0;
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            CHECK(bytes[i] == next);
            next++;
        }
    }
    CHECK(n == 0 && next == SENDS);
    return NULL;
}

static void use_end(int fd, int round)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, read_numbers, &fd) == 0);
    for (unsigned char i = 0; i < SENDS; i++) {
        if (i == 15 + round % 20) {
            meet(2 * (round + 1));
            CHECK(send(fd, &i, 1, 0) == 1);
            i++;
            use_stdio(fd);
        }
        CHECK(send(fd, &i, 1, 0) == 1);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    close(fd);
}

static void both_return_while_threads_read(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr);
    both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(both != MAP_FAILED);
    pid_t parent = getpid(), pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        end_with(parent);
        for (int i = 0; i < ROUNDS; i++) {
            use_end(accept(listen_fd, NULL, NULL), i);
        }
        exit(0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        use_end(fd, i);
    }
    wait_for(pid);
    close(listen_fd);
}

/* --- another thread's sends make the pipes just then ----------------------------------------- */

#define NEW_ONES 1000
#define SENDS_OF_EACH 10
/* The peer answers at once. Without a request for its answer a return waits for two seconds. */
#define SLOW_S 1.5

static pthread_barrier_t turn;
static int sending_fd;

static void *send_some(void *unused)
{
    pthread_barrier_wait(&turn);
    for (int i = 0; i < SENDS_OF_EACH; i++) {
        CHECK(send(sending_fd, "x", 1, 0) == 1);
    }
    return unused;
}

static void read_all_new_ones(int listen_fd)
{
    char bytes[64];
    for (int i = 0; i < NEW_ONES; i++) {
        ssize_t n, sum = 0;
        int fd = accept(listen_fd, NULL, NULL);
        while ((n = read(fd, bytes, sizeof(bytes))) > 0) {
            sum += n;
        }
        CHECK(n == 0 && sum == i % SENDS_OF_EACH + SENDS_OF_EACH);
        close(fd);
    }
    _exit(0);
}

static double return_beside_sends(int earlier_sends)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_some, NULL) == 0);
    for (int i = 0; i < earlier_sends; i++) {
        CHECK(send(sending_fd, "x", 1, 0) == 1);
    }
    pthread_barrier_wait(&turn);
    double begin_s = now_s();
    use_stdio(sending_fd);
    double took_s = now_s() - begin_s;
    CHECK(pthread_join(thread, NULL) == 0);
    return took_s;
}

static void a_return_requests_an_answer_for_later_bytes(void)
{
    struct sockaddr_in addr;
    int listen_fd = listener(&addr), slow = 0;
    pid_t parent = getpid(), reader = fork();
    if (reader == 0) {
        end_with(parent);
        read_all_new_ones(listen_fd);
    }
    CHECK(reader > 0 && pthread_barrier_init(&turn, NULL, 2) == 0);
    for (int i = 0; i < NEW_ONES; i++) {
        sending_fd = socket(AF_INET, SOCK_STREAM, 0);
        CHECK(connect(sending_fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        slow += return_beside_sends(i % SENDS_OF_EACH) > SLOW_S;
        close(sending_fd);
    }
    CHECK(slow < 2); /* one by a busy machine */
    wait_for(reader);
    close(listen_fd);
}

const struct check checks_of_returns[] = {
    CHECK_ENTRY(a_return_requests_an_answer_for_later_bytes),
    CHECK_ENTRY(both_return_while_threads_read),
    {NULL, NULL},
};
