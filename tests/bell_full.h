/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* How a hostile holder of an eventfd makes other writers block. */
#ifndef BELL_FULL_H
#define BELL_FULL_H

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Clears O_NONBLOCK, fills the counter as far as writes can, and adds the last 1 by an asynchronous
 * read whose completion signals the eventfd: then even a write of 0 blocks. False: this kernel has
 * no asynchronous I/O.
 */
static inline bool bell_fill(int bell_fd)
{
    fcntl(bell_fd, F_SETFL, O_NONBLOCK);
    for (uint64_t count = UINT64_C(1) << 63; count != 0; count /= 2) {
        while (write(bell_fd, &count, sizeof(count)) == (ssize_t)sizeof(count)) {
        }
    }
    fcntl(bell_fd, F_SETFL, 0);
    char byte;
    aio_context_t context = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct iocb read_one = {.aio_fildes = (uint32_t)fd,
                            .aio_lio_opcode = IOCB_CMD_PREAD,
                            .aio_buf = (uintptr_t)&byte,
                            .aio_nbytes = 1,
                            .aio_flags = IOCB_FLAG_RESFD,
                            .aio_resfd = (uint32_t)bell_fd};
    struct iocb *all[] = {&read_one};
    struct io_event event;
    bool done = syscall(SYS_io_setup, 1, &context) == 0 &&
                syscall(SYS_io_submit, context, 1, all) == 1 &&
                syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1;
    if (context != 0) {
        syscall(SYS_io_destroy, context);
    }
    close(fd);
    return done;
}

#endif
