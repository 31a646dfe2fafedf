/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* Ends in the way that its first argument names. For tests of the launcher. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Calls that fail in a process that is no PE, except the first call. */
static void make_call(int call)
{
    static long word, other;
    shmem_ctx_t ctx;
    shmem_team_t team;

    switch (call) {
    case 0:
        shmem_finalize();
        break;
    case 1:
        shmem_barrier_all();
        break;
    case 2:
        shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &word, &other, 1);
        break;
    case 3:
        shmem_long_p(&word, 1, 0);
        break;
    case 4:
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, NULL, 0, &team);
        break;
    case 5:
        shmem_ctx_create(0, &ctx);
        break;
    case 6:
        shmem_set_lock(&word);
        break;
    case 7:
        shmem_team_sync(SHMEM_TEAM_WORLD);
        break;
    default:
        shmem_sync_all();
    }
}

/* As on a busy machine: the other PEs end, with a code other than 0, before this PE. */
static void leave_slowly(void)
{
    usleep(600000);
}

static int exit_code_of_child(int call)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        make_call(call);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status), "child");
    return WEXITSTATUS(status);
}

static int turn(const char *how, int me)
{
    if (strcmp(how, "exit-3") == 0) {
        /* The last PE ends, although the others wait for it. */
        if (me == shmem_n_pes() - 1)
            exit(3);
        shmem_barrier_all();
    } else if (strcmp(how, "kill") == 0) {
        if (me == 0)
            raise(SIGKILL);
        shmem_barrier_all();
    } else if (strcmp(how, "segv") == 0) {
        if (me == 0)
            raise(SIGSEGV);
        shmem_barrier_all();
    } else if (strcmp(how, "leave") == 0) {
        if (me == 0)
            exit(0);
        shmem_barrier_all();
    } else if (strcmp(how, "wait") == 0) {
        static long never;
        shmem_long_wait_until(&never, SHMEM_CMP_NE, 0);
    } else if (strcmp(how, "ask") == 0) {
        /* The first PE puts a second word after it has announced the first, and waits for an answer
         * to it. */
        static long question, answer;
        shmem_barrier_all();
        if (me == 0) {
            printf("ready\n");
            fflush(stdout);
            sleep(1);
            shmem_long_p(&question, 1, shmem_n_pes() - 1);
        }
        shmem_long_wait_until(&answer, SHMEM_CMP_NE, 0);
    } else if (strcmp(how, "late") == 0) {
        /* All PEs wait in a barrier for one that computes; each PE computes once. */
        static long came;
        for (int late = 0; late < shmem_n_pes(); late++) {
            if (me == late) {
                sleep(2);
                for (int pe = 0; pe < shmem_n_pes(); pe++)
                    shmem_long_p(&came, late + 1, pe);
            }
            shmem_barrier_all();
            CHECK(came == late + 1, "the barrier was left before PE %d had come", late);
            shmem_barrier_all();
        }
        printf("PE %d was waited for\n", me);
    } else if (strcmp(how, "stubborn") == 0) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        for (;;)
            pause();
    } else if (strncmp(how, "global-exit", strlen("global-exit")) == 0) {
        printf("unflushed %d", me);
        if (me == 2 && strcmp(how, "global-exit-late") == 0)
            atexit(leave_slowly);
        shmem_barrier_all();
        if (me == 0)
            shmem_global_exit(7);
        for (volatile unsigned long spin = 0;; spin++)
            ;
    } else if (strcmp(how, "child") == 0) {
        /* A child that outlives its parent, if nothing ends it. */
        if (fork() == 0) {
            pause();
            _exit(0);
        }
        shmem_barrier_all();
        if (me == 0)
            exit(5);
        shmem_barrier_all();
    } else if (strcmp(how, "fork") == 0) {
        /* A child's stores do not change its parent's variables. */
        static volatile long mine = 1;
        if (fork() == 0) {
            mine = 2;
            _exit(mine == 2 ? 0 : 1);
        }
        sleep(1);
        CHECK(mine == 1, "the child wrote into its parent");
    } else if (strcmp(how, "fork-calls") == 0) {
        /* A child is no PE: its calls end the child, without an effect on PEs. */
        for (int call = 0; call <= 8; call++)
            CHECK(exit_code_of_child(call) == (call == 0 ? 0 : 1), "call %d", call);
        shmem_barrier_all();
    } else if (strncmp(how, "uninitialized-", 14) == 0) {
        shmem_finalize();
        make_call(atoi(how + 14));
    } else if (strcmp(how, "sync") == 0) {
        /* A pSync that was not initialized. */
        static long words[SHMEM_SYNC_SIZE];
        memset(words, 0x5a, sizeof(words));
        if (me > 0)
            shmem_barrier(1, 0, shmem_n_pes() - 1, words);
        shmem_barrier_all();
    } else if (strcmp(how, "input") == 0) {
        char line[64] = "nothing\n";
        if (!fgets(line, sizeof(line), stdin))
            strcpy(line, "end\n");
        printf("PE %d read %s", me, line);
    } else if (strcmp(how, "again") == 0) {
        /* Initialized twice, finalized, and then initialized again. */
        int initialized;
        shmem_init();
        shmem_finalize();
        shmem_query_initialized(&initialized);
        CHECK(initialized, "one finalize is left");
        long *word = shmem_malloc(sizeof(long));
        shmem_long_p(word, me, (me + 1) % shmem_n_pes());
        shmem_finalize();
        shmem_query_initialized(&initialized);
        if (initialized)
            return 1;
        shmem_init();
        word = shmem_calloc(1, sizeof(long));
        shmem_barrier_all();
        shmem_long_p(word, me + 1, (me + 1) % shmem_n_pes());
        shmem_long_wait_until(word, SHMEM_CMP_NE, 0);
    } else if (strcmp(how, "bad-address") == 0) {
        int on_stack;
        if (me == 0)
            shmem_int_p(&on_stack, 1, 0);
        shmem_barrier_all();
    } else if (strcmp(how, "bad-pe") == 0) {
        static int word;
        if (me == 0)
            shmem_int_p(&word, 1, shmem_n_pes());
        shmem_barrier_all();
    } else if (strcmp(how, "bad-stride") == 0) {
        /* The size in bytes of each of these wraps to 0, or to all available memory. */
        static long words[8];
        if (me == 0)
            shmem_long_iput(words, words, (ptrdiff_t)1 << 61, 1, 4, 1);
        shmem_barrier_all();
    } else if (strcmp(how, "bad-stride-back") == 0) {
        static long words[8];
        if (me == 0)
            shmem_long_iget(words, words, 1, PTRDIFF_MIN / 8, 3, 1);
        shmem_barrier_all();
    } else if (strcmp(how, "bad-blocks") == 0) {
        static long words[8];
        if (me == 0)
            shmem_long_ibput(words, words, 1, 1, (size_t)1 << 61, 2, 1);
        shmem_barrier_all();
    } else if (strcmp(how, "bad-free") == 0) {
        static int word;
        shmem_free(&word);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "good";

    if (strcmp(how, "no-init") == 0) {
        shmem_malloc(8);
        return 0;
    }
    if (strcmp(how, "never-init") == 0 && getenv("VIADUCT_SHMEM_JOB") &&
        strrchr(getenv("VIADUCT_SHMEM_JOB"), ' ')[1] == '0')
        return 0;
    if (strcmp(how, "thread-level") == 0) {
        int provided = -1;
        if (shmem_init_thread(99, &provided) == 0)
            return 1;
        return shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) != 0 ||
               provided != SHMEM_THREAD_MULTIPLE || (shmem_finalize(), 0);
    }
    if (strcmp(how, "start_pes") == 0) {
        start_pes(0);
        printf("PE %d\n", shmem_my_pe());
        return 0;
    }
    shmem_init();
    int result = turn(how, shmem_my_pe());
    shmem_finalize();
    return result;
}
