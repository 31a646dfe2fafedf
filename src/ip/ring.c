/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/ring.h"

#include "base/mutant.h"

#define ALIGNMENT 64u

int via_ip_ring_take_credit(struct via_ip_ring_writer *writer, uint64_t credit)
{
    if (credit - writer->credit > writer->tail - writer->credit) {
        return -EPROTO;
    }
    writer->credit = credit;
    return 0;
}

int via_ip_ring_reserve(struct via_ip_ring_writer *writer, size_t bytes, uint64_t *ret_off,
                        uint64_t *ret_skip)
{
    uint64_t need = via_align_up(bytes, ALIGNMENT);
    uint64_t at = writer->tail & (writer->ring_bytes - 1);
    uint64_t to_end = writer->ring_bytes - at;
    uint64_t skipped = need > to_end ? to_end : 0;
    uint64_t free_bytes = writer->ring_bytes - (writer->tail - writer->credit);
    if (skipped + need > free_bytes) {
        return -EAGAIN;
    }
    *ret_skip = skipped != 0 ? at : UINT64_MAX;
    *ret_off = skipped != 0 ? 0 : at;
    writer->tail += skipped + need;
    return 0;
}

/* Loads the length once, because the peer can change it at any time. */
static uint32_t read_length(const uint8_t *record)
{
    return __atomic_load_n((const uint32_t *)(const void *)record, __ATOMIC_RELAXED);
}

int via_ip_ring_next(const struct via_ip_ring_reader *reader, uint64_t tail,
                     const uint8_t **ret_frame, size_t *ret_bytes, uint64_t *ret_end)
{
    uint64_t head = reader->head;
    uint64_t filled = tail - head;
    if (filled > reader->ring_bytes || (tail & (ALIGNMENT - 1)) != 0) {
        return -EPROTO;
    }
    if (filled == 0) {
        return 0;
    }
    uint64_t at = head & (reader->ring_bytes - 1);
    uint32_t bytes = read_length(reader->data + at);
    if (bytes == VIA_IP_RECORD_SKIP) {
        uint64_t skipped = reader->ring_bytes - at;
        /* A skip is published only together with the next record. */
        if (skipped >= filled || at == 0) {
            return -EPROTO;
        }
        head += skipped;
        filled -= skipped;
        at = 0;
        bytes = read_length(reader->data);
    }
    uint64_t whole = via_align_up((uint64_t)bytes + VIA_IP_RECORD_HEADER_BYTES, ALIGNMENT);
    bool inside = whole <= filled && (whole <= reader->ring_bytes - at || VIA_MUTANT(IP_WRAP));
    if (bytes == 0 || bytes > VIA_IP_FRAME_BYTES_MAX || !inside) {
        return -EPROTO;
    }
    *ret_frame = reader->data + at + VIA_IP_RECORD_HEADER_BYTES;
    *ret_bytes = bytes;
    *ret_end = head + whole;
    return 1;
}
