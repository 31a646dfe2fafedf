/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "shmem/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shmem/algorithm.h"
#include "shmem/size.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define HEAP_SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)

static int resize(int fd, uint64_t bytes, struct via_error *err)
{
    if (ftruncate(fd, (off_t)bytes) < 0)
        return via_error_set(err, -errno, "shared memory of %" PRIu64 " bytes: ftruncate: %s",
                             bytes, strerror(errno));
    return 0;
}

static int size_and_seal(int fd, uint64_t bytes, int seals, struct via_error *err)
{
    int result = resize(fd, bytes, err);

    if (result == 0 && fcntl(fd, F_ADD_SEALS, seals) < 0)
        return via_error_set(err, -errno, "shared memory: sealing: %s", strerror(errno));
    return result;
}

int via_job_size_and_seal(int fd, uint64_t bytes, struct via_error *err)
{
    return size_and_seal(fd, bytes, SEALS, err);
}

int via_job_heap_grow(int fd, uint64_t bytes, struct via_error *err)
{
    return resize(fd, bytes, err);
}

static int check_memory(int fd, uint64_t bytes, struct via_error *err)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return via_error_set(err, -EPERM, "fd %d: not a sealed memfd", fd);
    if (fstat(fd, &info) < 0 || (uint64_t)info.st_size < bytes)
        return via_error_set(err, -EINVAL, "fd %d: shorter than %" PRIu64 " bytes", fd, bytes);
    return 0;
}

int via_job_map_more(int fd, uint64_t off, uint64_t bytes, char *base, struct via_error *err)
{
    int result = check_memory(fd, bytes, err);

    if (result == 0 && mmap(base + off, bytes - off, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                            fd, (off_t)off) == MAP_FAILED)
        return via_error_set(err, -errno,
                             "shared memory of %" PRIu64 " bytes, from %" PRIu64 " on: mmap: %s",
                             bytes, off, strerror(errno));
    return result;
}

int via_job_map_memory(int fd, uint64_t bytes, void *where, void **ret_base, struct via_error *err)
{
    int result = check_memory(fd, bytes, err);

    if (result < 0)
        return result;
    void *base =
        mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), fd, 0);
    if (base == MAP_FAILED)
        return via_error_set(err, -errno, "shared memory of %" PRIu64 " bytes: mmap: %s", bytes,
                             strerror(errno));
    *ret_base = base;
    return 0;
}

/* A block begins with magic, version, and its own length; each may be wrong. */
struct block_head {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;
};
_Static_assert(offsetof(struct via_job, bytes) == offsetof(struct block_head, bytes), "");
_Static_assert(offsetof(struct via_node, bytes) == offsetof(struct block_head, bytes), "");

static int map_block(int fd, uint64_t bytes_min, void **ret_block, struct via_error *err)
{
    struct block_head head;

    if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) || head.magic != VIA_JOB_MAGIC)
        return via_error_set(err, -EPROTO, "fd %d: not a job of oshrun", fd);
    if (head.version != VIA_JOB_VERSION)
        return via_error_set(err, -EPROTO, "oshrun speaks version %u, this library %u",
                             head.version, VIA_JOB_VERSION);
    if (head.bytes < bytes_min)
        return via_error_set(err, -EPROTO, "fd %d: a job block of %u bytes", fd, head.bytes);
    return via_job_map_memory(fd, head.bytes, NULL, ret_block, err);
}

int via_job_map(int fd, struct via_job **ret_job, struct via_error *err)
{
    void *block;
    int result = map_block(fd, sizeof(struct via_job), &block, err);

    if (result < 0)
        return result;
    struct via_job *job = block;
    if (job->pes_count == 0 || job->pes_count > VIA_JOB_PES_MAX ||
        job->bytes < via_job_bytes(job->pes_count)) {
        result =
            via_error_set(err, -EPROTO, "a job of %u PEs in %u bytes", job->pes_count, job->bytes);
        munmap(block, job->bytes);
        return result;
    }
    *ret_job = job;
    return 0;
}

int via_node_map(int fd, struct via_node **ret_node, struct via_error *err)
{
    void *block;
    int result = map_block(fd, sizeof(struct via_node), &block, err);

    if (result == 0)
        *ret_node = block;
    return result;
}

/* --- making ----------------------------------------------------------------------------------- */

static int make_memory(const char *name, uint64_t bytes, int seals, int *ret_fd,
                       struct via_error *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return via_error_set(err, -errno, "shared memory: memfd_create: %s%s", strerror(errno),
                             errno == EMFILE ? "; each PE of a machine takes two descriptors of "
                                               "the hard limit, see ulimit -Hn"
                                             : "");
    int result = bytes ? size_and_seal(fd, bytes, seals, err) : 0;
    if (result < 0) {
        close(fd);
        return result;
    }
    *ret_fd = fd;
    return 0;
}

/* The standard's variables, and one of this library. */
static int read_size_variable(const char *name, const char *other_name, uint64_t *ret_bytes,
                              struct via_error *err)
{
    const char *text = getenv(name);

    if (!text && other_name) {
        name = other_name;
        text = getenv(name);
    }
    int result = text ? via_size_parse(text, ret_bytes) : 0;
    if (result == -EINVAL)
        return via_error_set(
            err, result, "%s=\"%s\": not a size; expected a number and k, m, g or t", name, text);
    if (result < 0 || *ret_bytes > VIA_JOB_HEAP_BYTES_MAX)
        return via_error_set(err, -ERANGE, "%s=\"%s\": more than %" PRIu64 " bytes", name, text,
                             VIA_JOB_HEAP_BYTES_MAX);
    return 0;
}

int via_job_heap_bytes(uint64_t *ret_bytes, struct via_error *err)
{
    uint64_t bytes = VIA_JOB_HEAP_BYTES_DEFAULT;
    int result = read_size_variable("SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE", &bytes, err);

    if (result == 0)
        *ret_bytes = via_align_up(via_max(bytes, VIA_JOB_HEAP_BYTES_MIN), 4096);
    return result;
}

/* The default is as much as the machine has; an explicit request is always granted. */
static int heap_bytes_max(const struct via_job_spec *spec, uint64_t *ret_bytes,
                          struct via_error *err)
{
    uint64_t share = VIA_JOB_ADDRESS_BYTES_MAX / spec->pes_count;
    uint64_t bytes =
        via_min((uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), share);
    int result = read_size_variable("VIADUCT_SHMEM_HEAP_MAX", NULL, &bytes, err);

    if (result == 0)
        *ret_bytes = via_align_up(via_max(via_min(bytes, share), spec->heap_bytes), 4096);
    return result;
}

int via_job_barrier_parse(const char *text, uint32_t *ret_barrier)
{
    static const char *const words[] = {
        [VIA_JOB_BARRIER_WINDOWS] = "windows",
        [VIA_JOB_BARRIER_DOORBELLS] = "doorbells",
    };

    for (uint32_t i = 0; i < VIA_ARRAY_COUNT(words); i++) {
        if (strcmp(words[i], text) == 0) {
            *ret_barrier = i;
            return 0;
        }
    }
    return -EINVAL;
}

/* From the launcher's environment, as all PEs must agree. */
static int choose_barrier(uint32_t *ret_barrier, struct via_error *err)
{
    const char *text = getenv("VIADUCT_SHMEM_BARRIER");

    if (text && via_job_barrier_parse(text, ret_barrier) < 0)
        return via_error_set(err, -EINVAL,
                             "VIADUCT_SHMEM_BARRIER=\"%s\": expected windows or doorbells", text);
    return 0;
}

static int choose_algorithms(uint64_t *ret_forced, struct via_error *err)
{
    const char *text = getenv("VIADUCT_SHMEM_ALGORITHMS");
    struct via_error why = {0};

    if (text && via_algorithms_parse(text, ret_forced, &why) < 0)
        return via_error_set(err, -EINVAL, "VIADUCT_SHMEM_ALGORITHMS: %s",
                             via_error_describe(&why));
    return 0;
}

static int choose_costs(struct via_costs *ret_costs, struct via_error *err)
{
    const char *text = getenv("VIADUCT_SHMEM_COSTS");
    struct via_error why = {0};

    if (via_costs_parse(text ? text : "", ret_costs, &why) < 0)
        return via_error_set(err, -EINVAL, "VIADUCT_SHMEM_COSTS: %s", via_error_describe(&why));
    return 0;
}

static int make_job(const struct via_job_spec *spec, struct via_job_files *files,
                    struct via_error *err)
{
    uint32_t bytes = (uint32_t)via_job_bytes(spec->pes_count);
    void *block;

    int result = make_memory("viaduct-job", bytes, SEALS, &files->job_fd, err);
    if (result == 0)
        result = via_job_map_memory(files->job_fd, bytes, NULL, &block, err);
    if (result < 0)
        return result;
    struct via_job *job = files->job = block;
    job->magic = VIA_JOB_MAGIC;
    job->version = VIA_JOB_VERSION;
    job->bytes = bytes;
    job->id = spec->id;
    if (spec->id == 0 && getrandom(&job->id, sizeof(job->id), 0) != (ssize_t)sizeof(job->id))
        return via_error_set(err, -EIO, "getrandom: %s", strerror(errno));
    result = heap_bytes_max(spec, &job->heap_bytes_max, err);
    if (result == 0)
        result = choose_barrier(&job->barrier, err);
    if (result == 0)
        result = choose_algorithms(&job->algorithms, err);
    if (result == 0)
        result = choose_costs(&job->costs, err);
    if (result < 0)
        return result;
    job->heap_bytes = spec->heap_bytes;
    job->pes_count = spec->pes_count;
    job->nodes_count = spec->nodes_count;
    job->cores = spec->cores;
    job->gates = spec->gates;
    job->fabric = spec->host_of != NULL;
    job->launcher_pid = getpid();
    return 0;
}

/* Does this job block hold the memory of the node's PEs? */
static bool is_here(const struct via_job_spec *spec, uint32_t node)
{
    return spec->gates == VIA_JOB_GATES_HERE || node == spec->node;
}

static int make_pe(const struct via_job_spec *spec, struct via_job_files *files, uint32_t number,
                   struct via_error *err)
{
    struct via_job_pe *pe = &files->job->pes[number];

    pe->node = spec->node_of ? spec->node_of[number] : 0;
    pe->host = spec->host_of ? spec->host_of[pe->node] : 0;
    /* PEs of a node are consecutive. */
    pe->local = number > 0 && pe[-1].node == pe->node ? pe[-1].local + 1 : 0;
    pe->heap_fd = pe->data_fd = -1;
    atomic_init(&pe->heap_bytes, spec->heap_bytes);
    if (!is_here(spec, pe->node))
        return 0;
    files->job->pes_here++;
    int result = make_memory("viaduct-heap", spec->heap_bytes, HEAP_SEALS, &pe->heap_fd, err);
    if (result == 0)
        result = make_memory("viaduct-data", 0, SEALS, &pe->data_fd, err);
    return result;
}

static int make_node(const struct via_job_spec *spec, struct via_job_files *files, uint32_t number,
                     struct via_error *err)
{
    uint32_t locals_count = 0;
    uint32_t apart = spec->cores <= VIA_NODE_CORES_PACKED ? 1 : VIA_NODE_WORDS_APART;
    void *block;

    for (uint32_t i = 0; i < spec->pes_count; i++)
        locals_count += files->job->pes[i].node == number;
    uint32_t bytes = (uint32_t)(sizeof(struct via_node) + locals_count * apart * sizeof(uint64_t));
    int result = make_memory("viaduct-node", bytes, SEALS, &files->node_fds[number], err);
    if (result == 0)
        result = via_job_map_memory(files->node_fds[number], bytes, NULL, &block, err);
    if (result < 0)
        return result;
    struct via_node *node = block;
    node->magic = VIA_JOB_MAGIC;
    node->version = VIA_JOB_VERSION;
    node->bytes = bytes;
    node->node = number;
    node->locals_count = locals_count;
    node->words_apart = apart;
    munmap(block, bytes);
    return 0;
}

int via_job_create(const struct via_job_spec *spec, struct via_job_files *ret_files,
                   struct via_error *err)
{
    struct via_job_files files = {.job_fd = -1, .life_fds = {-1, -1}, .call_fds = {-1, -1}};

    files.node_fds = malloc(spec->nodes_count * sizeof(int));
    if (!files.node_fds)
        return via_error_set(err, -ENOMEM, "job: out of memory");
    for (uint32_t i = 0; i < spec->nodes_count; i++)
        files.node_fds[i] = -1;
    int result = make_job(spec, &files, err);
    for (uint32_t i = 0; i < spec->pes_count && result == 0; i++)
        result = make_pe(spec, &files, i, err);
    for (uint32_t i = 0; i < spec->nodes_count && result == 0; i++)
        if (is_here(spec, i))
            result = make_node(spec, &files, i, err);
    if (result == 0 &&
        (pipe2(files.life_fds, O_CLOEXEC) < 0 || pipe2(files.call_fds, O_CLOEXEC | O_NONBLOCK) < 0))
        result = via_error_set(err, -errno, "job: pipe: %s", strerror(errno));
    if (result < 0) {
        if (files.job)
            files.job->nodes_count = spec->nodes_count;
        via_job_close(&files);
        return result;
    }
    *ret_files = files;
    return 0;
}

static void close_fd(int fd)
{
    if (fd > 2)
        close(fd);
}

void via_job_close(struct via_job_files *files)
{
    struct via_job *job = files->job;

    /* In a job that was only partly made, missing descriptors are zero. */
    for (uint32_t i = 0; job && i < job->pes_count; i++) {
        close_fd(job->pes[i].heap_fd);
        close_fd(job->pes[i].data_fd);
    }
    for (uint32_t i = 0; job && i < job->nodes_count; i++)
        close_fd(files->node_fds[i]);
    if (job)
        munmap(job, job->bytes);
    close_fd(files->job_fd);
    for (int end = 0; end < 2; end++) {
        close_fd(files->life_fds[end]);
        close_fd(files->call_fds[end]);
    }
    free(files->node_fds);
    memset(files, 0, sizeof(*files));
}

/* --- gates ------------------------------------------------------------------------------------ */

void via_job_words_get(const struct via_job *job, uint32_t pe, uint64_t ret_words[VIA_JOB_WORDS])
{
    const struct via_job_pe *entry = &job->pes[pe];

    for (int region = 0; region < VIA_REGIONS; region++)
        ret_words[region] = atomic_load_explicit(&entry->handle[region], memory_order_relaxed);
    ret_words[2] = atomic_load_explicit(&entry->data_bytes, memory_order_relaxed);
    ret_words[3] = atomic_load_explicit(&entry->data_digest, memory_order_relaxed);
    ret_words[4] = atomic_load_explicit(&entry->heap_bytes, memory_order_relaxed);
    ret_words[5] = atomic_load_explicit(&entry->heap_room, memory_order_relaxed);
    ret_words[6] = atomic_load_explicit(&entry->thread_level, memory_order_relaxed);
}

void via_job_words_set(struct via_job *job, uint32_t pe, const uint64_t words[VIA_JOB_WORDS])
{
    struct via_job_pe *entry = &job->pes[pe];

    _Static_assert(VIA_REGIONS == 2 && VIA_JOB_WORDS == 7, "as in via_job_words_get");
    for (int region = 0; region < VIA_REGIONS; region++)
        atomic_store_explicit(&entry->handle[region], words[region], memory_order_relaxed);
    atomic_store_explicit(&entry->data_bytes, words[2], memory_order_relaxed);
    atomic_store_explicit(&entry->data_digest, words[3], memory_order_relaxed);
    atomic_store_explicit(&entry->heap_bytes, words[4], memory_order_relaxed);
    atomic_store_explicit(&entry->heap_room, words[5], memory_order_relaxed);
    atomic_store_explicit(&entry->thread_level, (uint32_t)words[6], memory_order_relaxed);
}

void via_job_gate_open(struct via_job *job)
{
    struct via_job_gate *gate = &job->gate;

    /* Publishes everything that PEs wrote before; pairs with the acquire in via_gate_pass. */
    atomic_fetch_add_explicit(&gate->generation, 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    via_event_notify(&gate->event);
}
