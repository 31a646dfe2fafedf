# SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only
"""Resources that tests must not leave behind, and waiting until they are gone."""
import os
import time

# Prefixes of files of other programs, which may run at the same time: Open MPI, semaphores, LTTng, PostgreSQL, MPICH, UCX. And of
# the file with the sum of a user's memory of connections, which exists while a program of the user has pipes (sockets/conn/share.c).
OTHERS = ("vader_segment.", "osc_rdma.", "sem.", "lttng-", "PostgreSQL.", "mpich_shar_tmp", "ucx_shm_", "viaduct-sockets-")


def shared_memory():
    """The files in /dev/shm that may be Viaduct's."""
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return sorted(name for name in names if not name.startswith(OTHERS))


# A condition may start a program. Pauses of twice the time that it takes leave the CPUs to the processes that have to fulfil it.
PAUSE_S_MIN = 0.01
PAUSE_S_MAX = 0.2


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while (begin := time.monotonic()) < deadline:
        if condition():
            return True
        took = time.monotonic() - begin
        time.sleep(min(max(PAUSE_S_MIN, 2 * took), PAUSE_S_MAX))
    return False
