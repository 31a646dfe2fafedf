/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "daemon/key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MIN 32u
#define FILE_BYTES_MAX 4096u

/* via_node_env.mac: BLAKE2b with a key (RFC 7693, section 2.9). */
static void compute_mac(void *ctx, const void *data, size_t bytes, uint8_t ret_mac[VIA_MAC_BYTES])
{
    struct via_daemon_key *key = ctx;
    pthread_mutex_lock(&key->lock);
    /* Fails only for lengths out of range, and these are constants. */
    (void)crypto_generichash(ret_mac, VIA_MAC_BYTES, data, bytes, key->key, sizeof(key->key));
    pthread_mutex_unlock(&key->lock);
}

void via_daemon_key_replace(struct via_daemon_key *key, const struct via_daemon_key *fresh)
{
    pthread_mutex_lock(&key->lock);
    memcpy(key->key, fresh->key, sizeof(key->key));
    pthread_mutex_unlock(&key->lock);
}

static int check_file(const struct stat *info, struct via_error *err)
{
    if (!S_ISREG(info->st_mode)) {
        return via_error_set(err, -EINVAL, "is no regular file");
    }
    if (info->st_uid != geteuid() && info->st_uid != 0) {
        return via_error_set(err, -EPERM, "belongs to user %u, not to user %u or root",
                             (unsigned)info->st_uid, (unsigned)geteuid());
    }
    if ((info->st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return via_error_set(err, -EPERM, "other users may use it (mode %04o): chmod 600",
                             (unsigned)info->st_mode & 07777);
    }
    if (info->st_size < (off_t)FILE_BYTES_MIN || info->st_size > (off_t)FILE_BYTES_MAX) {
        return via_error_set(err, -EINVAL, "has %lld bytes, a key has %u to %u",
                             (long long)info->st_size, FILE_BYTES_MIN, FILE_BYTES_MAX);
    }
    return 0;
}

static int read_file(int fd, uint8_t *ret_data, size_t *ret_bytes, struct via_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return via_error_set(err, -errno, "%s", strerror(errno));
    }
    int rc = check_file(&info, err);
    if (rc != 0) {
        return rc;
    }
    ssize_t bytes = read(fd, ret_data, FILE_BYTES_MAX);
    if (bytes != (ssize_t)info.st_size) {
        return bytes < 0 ? via_error_set(err, -errno, "read: %s", strerror(errno))
                         : via_error_set(err, -EIO, "changes while it is read");
    }
    *ret_bytes = (size_t)bytes;
    return 0;
}

int via_daemon_key_read(const char *path, struct via_daemon_key *ret_key, struct via_error *err)
{
    uint8_t data[FILE_BYTES_MAX];
    size_t bytes = 0;
    int rc = 0;

    if (sodium_init() < 0) {
        return via_error_set(err, -EIO, "fabric key %s: libsodium does not start", path);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        rc = via_error_set(err, -errno, "%s", strerror(errno));
    } else {
        rc = read_file(fd, data, &bytes, err);
        close(fd);
    }
    if (rc == 0) {
        (void)crypto_generichash(ret_key->key, sizeof(ret_key->key), data, bytes, NULL, 0);
        pthread_mutex_init(&ret_key->lock, NULL);
        ret_key->host = (struct via_host_key){.ctx = ret_key, .mac = compute_mac};
    } else {
        via_error_prefix(err, "fabric key %s: ", path);
    }
    sodium_memzero(data, sizeof(data));
    return rc;
}
