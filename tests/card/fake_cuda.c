/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/*
 * The names of the CUDA driver library that viaduct perf device calls, with one "GPU" that is
 * memory of this process. It shows that the calls follow the reference manual: init,
 * device, context, memory, copy, free, in that order and with the right arguments. It proves
 * nothing about a real GPU.
 *
 * FAKE_CUDA: "none" no GPU, "broken" copies have wrong bytes, "nomem" no memory.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OK 0
#define INVALID_VALUE 1
#define OUT_OF_MEMORY 2
#define NOT_INITIALIZED 3
#define NO_DEVICE 100
#define INVALID_CONTEXT 201
#define DEVICE 7 /* differs from the device's number, so that a mix-up is detected */
#define EXPORT __attribute__((visibility("default")))

static int is_initialised, is_retained, is_current, blocks;
static unsigned char *device_memory;
static size_t device_bytes;

static int is_fault(const char *name)
{
    const char *fault = getenv("FAKE_CUDA");
    return fault != NULL && strcmp(fault, name) == 0;
}

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGet(int *device, int number);
EXPORT int cuDeviceGetName(char *name, int bytes, int device);
EXPORT int cuDeviceGetPCIBusId(char *text, int bytes, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuCtxSetCurrent(void *context);
EXPORT int cuCtxSynchronize(void);
EXPORT int cuMemAlloc_v2(uint64_t *pointer, size_t bytes);
EXPORT int cuMemFree_v2(uint64_t pointer);
EXPORT int cuMemAllocHost_v2(void **memory, size_t bytes);
EXPORT int cuMemFreeHost(void *memory);
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
EXPORT int cuGetErrorString(int error, const char **text);

int cuInit(unsigned flags)
{
    is_initialised = 1;
    return flags == 0 ? OK : INVALID_VALUE;
}

int cuDeviceGetCount(int *count)
{
    *count = is_fault("none") ? 0 : 1;
    return is_initialised ? OK : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int number)
{
    *device = DEVICE;
    return number == 0 ? OK : NO_DEVICE;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    strncpy(name, "memory of a test", (size_t)bytes);
    return device == DEVICE ? OK : NO_DEVICE;
}

int cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
    strncpy(text, "0000:05:00.0", (size_t)bytes);
    return device == DEVICE ? OK : NO_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    is_retained = 1;
    *context = &is_retained;
    return device == DEVICE ? OK : NO_DEVICE;
}

/* All memory must have been freed before. */
int cuDevicePrimaryCtxRelease_v2(int device)
{
    if (device != DEVICE || !is_retained || blocks != 0) {
        abort();
    }
    return OK;
}

int cuCtxSetCurrent(void *context)
{
    is_current = context == &is_retained && is_retained;
    return is_current ? OK : INVALID_CONTEXT;
}

int cuCtxSynchronize(void)
{
    return is_current ? OK : INVALID_CONTEXT;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes)
{
    if (!is_current || device_memory != NULL || is_fault("nomem")) {
        return !is_current ? INVALID_CONTEXT : OUT_OF_MEMORY;
    }
    device_memory = calloc(1, bytes);
    device_bytes = bytes;
    blocks++;
    *pointer = (uintptr_t)device_memory;
    return device_memory != NULL ? OK : OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t pointer)
{
    if (pointer != (uintptr_t)device_memory) {
        return INVALID_VALUE;
    }
    free(device_memory);
    device_memory = NULL;
    blocks--;
    return OK;
}

int cuMemAllocHost_v2(void **memory, size_t bytes)
{
    *memory = is_current ? malloc(bytes) : NULL;
    blocks += *memory != NULL;
    return *memory != NULL ? OK : INVALID_CONTEXT;
}

int cuMemFreeHost(void *memory)
{
    free(memory);
    blocks--;
    return OK;
}

static int check(uint64_t pointer, size_t bytes)
{
    return is_current && pointer == (uintptr_t)device_memory && bytes <= device_bytes
               ? OK
               : INVALID_VALUE;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    int code = check(to, bytes);
    if (code == OK) {
        memcpy(device_memory, from, bytes);
        device_memory[bytes - 1] ^= is_fault("broken") ? 1 : 0;
    }
    return code;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    int code = check(from, bytes);
    if (code == OK) {
        memcpy(to, device_memory, bytes);
    }
    return code;
}

int cuGetErrorString(int error, const char **text)
{
    *text = error == OUT_OF_MEMORY ? "out of memory" : "another error";
    return OK;
}
