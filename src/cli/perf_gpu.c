/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * A GPU as a target, through NVIDIA's CUDA driver library, which is loaded on demand: the build
 * needs nothing of CUDA. Names, types and codes are those of the driver API's reference manual.
 * Tested with a library of the same names that copies memory (tests/card/fake_cuda.c), never with a
 * GPU.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/perf_target.h"

#define LIBRARY "libcuda.so.1"
#define GPUS_MAX 63u
#define SIZE_MIN 4u

/* CUresult and CUdevice are int, CUcontext is a pointer, CUdeviceptr has 64 bits. 0 is
 * CUDA_SUCCESS. */
struct functions {
    int (*init)(unsigned flags);
    int (*count)(int *ret_count);
    int (*device)(int *ret_device, int number);
    int (*name)(char *name, int bytes, int device);
    int (*bus_id)(char *text, int bytes, int device);
    int (*retain)(void **ret_context, int device);
    int (*release)(int device);
    int (*set_current)(void *context);
    int (*synchronize)(void);
    int (*device_alloc)(uint64_t *ret_pointer, size_t bytes);
    int (*device_free)(uint64_t pointer);
    int (*host_alloc)(void **ret_memory, size_t bytes);
    int (*host_free)(void *memory);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
    int (*explain)(int error, const char **ret_text);
};

/* _v2: the symbols to which cuda.h maps the plain names since CUDA 3.2, for sizes of 64 bits. */
static const struct {
    const char *name;
    size_t off;
} symbols[] = {
    {"cuInit", offsetof(struct functions, init)},
    {"cuDeviceGetCount", offsetof(struct functions, count)},
    {"cuDeviceGet", offsetof(struct functions, device)},
    {"cuDeviceGetName", offsetof(struct functions, name)},
    {"cuDeviceGetPCIBusId", offsetof(struct functions, bus_id)},
    {"cuDevicePrimaryCtxRetain", offsetof(struct functions, retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(struct functions, release)},
    {"cuCtxSetCurrent", offsetof(struct functions, set_current)},
    {"cuCtxSynchronize", offsetof(struct functions, synchronize)},
    {"cuMemAlloc_v2", offsetof(struct functions, device_alloc)},
    {"cuMemFree_v2", offsetof(struct functions, device_free)},
    {"cuMemAllocHost_v2", offsetof(struct functions, host_alloc)},
    {"cuMemFreeHost", offsetof(struct functions, host_free)},
    {"cuMemcpyHtoD_v2", offsetof(struct functions, to_device)},
    {"cuMemcpyDtoH_v2", offsetof(struct functions, to_host)},
    {"cuGetErrorString", offsetof(struct functions, explain)},
};

struct gpu {
    struct via_perf_target base;
    void *library;
    struct functions cuda;
    int device;
    bool has_context;
    uint64_t remote; /* memory of the GPU */
    void *pinned;
    unsigned seed;
};

static struct gpu *gpu_of(struct via_perf_target *target)
{
    return via_container_of(target, struct gpu, base);
}

static int complain(const struct gpu *gpu, int code, const char *attempt, struct via_error *err)
{
    const char *text = NULL;
    if (gpu->cuda.explain(code, &text) != 0 || text == NULL) {
        text = "unknown error";
    }
    return via_error_set(err, -EIO, "%s: CUDA error %d: %s", attempt, code, text);
}

/* --- transfers --- */

static int copy(struct gpu *gpu, bool to_device, size_t bytes, struct via_error *err)
{
    int code = to_device ? gpu->cuda.to_device(gpu->remote, gpu->pinned, bytes)
                         : gpu->cuda.to_host(gpu->pinned, gpu->remote, bytes);
    /* According to the manual a copy from pinned memory has ended when the call returns; this
     * enforces it. */
    code = code == 0 ? gpu->cuda.synchronize() : code;
    return code == 0 ? 0 : complain(gpu, code, "copy", err);
}

static int gpu_transfer(struct via_perf_target *target, enum via_perf_direction direction,
                        size_t bytes, struct via_error *err)
{
    return copy(gpu_of(target), direction == VIA_PERF_TO_DEVICE, bytes, err);
}

/* Copies a pattern to the GPU and back, and compares. */
static int gpu_check(struct via_perf_target *target, enum via_perf_direction direction,
                     size_t bytes, struct via_error *err)
{
    struct gpu *gpu = gpu_of(target);
    unsigned char *sent = malloc(bytes);
    (void)direction;
    if (sent == NULL) {
        return via_error_set(err, -ENOMEM, "check: %s", strerror(ENOMEM));
    }
    via_perf_target_fill(sent, bytes, ++gpu->seed);
    memcpy(gpu->pinned, sent, bytes);
    int rc = copy(gpu, true, bytes, err);
    memset(gpu->pinned, 0, bytes);
    rc = rc == 0 ? copy(gpu, false, bytes, err) : rc;
    if (rc == 0 && memcmp(gpu->pinned, sent, bytes) != 0) {
        rc = via_error_set(err, -EIO, "the bytes read back differ from the bytes sent");
    }
    free(sent);
    return rc;
}

/* --- opening --- */

static void gpu_close(struct via_perf_target *target)
{
    struct gpu *gpu = gpu_of(target);
    if (gpu->remote != 0) {
        (void)gpu->cuda.device_free(gpu->remote);
    }
    if (gpu->pinned != NULL) {
        (void)gpu->cuda.host_free(gpu->pinned);
    }
    if (gpu->has_context) {
        (void)gpu->cuda.release(gpu->device);
    }
    if (gpu->library != NULL) {
        dlclose(gpu->library);
    }
    free(gpu);
}

static const struct via_perf_target_ops gpu_ops = {
    .transfer = gpu_transfer, .check = gpu_check, .close = gpu_close};

static int load(struct gpu *gpu, const char *path, struct via_error *err)
{
    gpu->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (gpu->library == NULL) {
        return via_error_set(err, -ENOENT, "the CUDA driver library: %s", dlerror());
    }
    for (unsigned i = 0; i < VIA_ARRAY_COUNT(symbols); i++) {
        void *found = dlsym(gpu->library, symbols[i].name);
        if (found == NULL) {
            return via_error_set(err, -ENOSYS, "%s: it has no %s", path, symbols[i].name);
        }
        memcpy((char *)&gpu->cuda + symbols[i].off, &found, sizeof(found));
    }
    return 0;
}

static int take_device(struct gpu *gpu, unsigned number, struct via_error *err)
{
    char name[64] = "", bus_id[32] = "";
    int count = 0, code = gpu->cuda.init(0);
    if (code != 0) {
        return complain(gpu, code, "cuInit", err);
    }
    code = gpu->cuda.count(&count);
    if (code != 0) {
        return complain(gpu, code, "count of GPUs", err);
    }
    if (count <= 0 || number >= (unsigned)count) {
        return via_error_set(err, -ENODEV, "there are %d", via_max(count, 0));
    }
    code = gpu->cuda.device(&gpu->device, (int)number);
    code = code == 0 ? gpu->cuda.name(name, sizeof(name), gpu->device) : code;
    code = code == 0 ? gpu->cuda.bus_id(bus_id, sizeof(bus_id), gpu->device) : code;
    if (code != 0) {
        return complain(gpu, code, "name", err);
    }
    name[sizeof(name) - 1] = bus_id[sizeof(bus_id) - 1] = '\0';
    snprintf(gpu->base.name, sizeof(gpu->base.name), "GPU %u %s %s", number, bus_id, name);
    return 0;
}

static int take_memory(struct gpu *gpu, size_t bytes, struct via_error *err)
{
    void *context = NULL;
    int code = gpu->cuda.retain(&context, gpu->device);
    gpu->has_context = code == 0;
    code = code == 0 ? gpu->cuda.set_current(context) : code;
    if (code != 0) {
        return complain(gpu, code, "context", err);
    }
    code = gpu->cuda.device_alloc(&gpu->remote, bytes);
    if (code != 0) {
        gpu->remote = 0;
        return complain(gpu, code, "memory of the GPU", err);
    }
    code = gpu->cuda.host_alloc(&gpu->pinned, bytes);
    if (code != 0) {
        gpu->pinned = NULL;
        return complain(gpu, code, "pinned memory", err);
    }
    memset(gpu->pinned, 0, bytes);
    return 0;
}

int via_perf_target_gpu(const char *text, const struct via_perf_target_options *options,
                        struct via_perf_target **ret_target, struct via_error *err)
{
    unsigned number;
    if (via_cli_number(text, 0, GPUS_MAX, &number) != 0) {
        return via_error_set(err, -EINVAL, "GPU '%s': not 0 to %u", text, GPUS_MAX);
    }
    struct gpu *gpu = calloc(1, sizeof(*gpu));
    if (gpu == NULL) {
        return via_error_set(err, -ENOMEM, "GPU %u: open: %s", number, strerror(ENOMEM));
    }
    gpu->base =
        (struct via_perf_target){.ops = &gpu_ops,
                                 .way = "CUDA copies of pinned memory",
                                 .bytes = options->bytes_max,
                                 .size_min = SIZE_MIN,
                                 .directions = 1u << VIA_PERF_TO_HOST | 1u << VIA_PERF_TO_DEVICE};
    int rc = load(gpu, options->cuda_library != NULL ? options->cuda_library : LIBRARY, err);
    rc = rc == 0 ? take_device(gpu, number, err) : rc;
    rc = rc == 0 ? take_memory(gpu, options->bytes_max, err) : rc;
    if (rc != 0) {
        via_error_prefix(err, "GPU %u: ", number);
        gpu_close(&gpu->base);
        return rc;
    }
    *ret_target = &gpu->base;
    return 0;
}
