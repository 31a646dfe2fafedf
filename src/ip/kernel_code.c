/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
#include "ip/kernel_code.h"

#include <arpa/inet.h>
#include <assert.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <netinet/in.h>
#include <string.h>

/* Linux 6.6; not in all headers. */
#define VERDICT_NEXT (-1)
/* Linux 6.2; not in all headers: without the head the packet is IPv6. */
#define ROOM_DECAP_IPV6 (1 << 8)

/* Packets have Ethernet headers at the interface, but not at the device. */
#define IN_OFF ETH_HLEN
#define IP_BYTES_MAX 65535
/* IPv4 and TCP without options: the headers of a segment have at least SEGMENT_HEADER_BYTES. */
#define SEGMENT_HEADER_BYTES 40
#define FRAGMENT_MASK 0x3fff
#define DONT_FRAGMENT 0x4000
#define HOPS_MAX 64

/* The stack, downwards from the frame pointer: the head, bytes of the packet, a key. */
#define HEAD_AT (-(int)VIA_IP_DIRECT_BYTES)
#define BYTES_AT (HEAD_AT - 32)
#define KEY_AT (BYTES_AT - 8)
_Static_assert(VIA_IP_DIRECT_BYTES % 8 == 0, "the stack is used in words");

/* Offsets in the head. */
#define OFF_LENGTH 2
#define OFF_FRAGMENT 6
#define OFF_PROTOCOL 9
#define OFF_CHECKSUM 10
#define OFF_SOURCE 12
#define OFF_DESTINATION 16
#define OFF_UDP_PORT 22
#define OFF_UDP_LENGTH 24
#define OFF_DIRECT ((int)VIA_IP_OUTER_BYTES)
#define OFF_HOST (OFF_DIRECT + (int)offsetof(struct via_ip_direct_head, host))
#define OFF_KIND (OFF_DIRECT + (int)offsetof(struct via_ip_direct_head, kind))
#define OFF_VERSION (OFF_DIRECT + (int)offsetof(struct via_ip_direct_head, version))
#define OFF_TOKEN (OFF_DIRECT + (int)offsetof(struct via_ip_direct_head, token))

#define AT(member) ((int)offsetof(struct via_ip_kernel_host, member))

/* A call clobbers registers 0 to 5; arguments are in 1 to 5, the result is in 0. */
enum { R0, R1, R2, R3, R4, R5, CONTEXT, HOST, FLAGS, BYTES, STACK };

/* Targets of jumps, which are forward only. */
enum label {
    PASS,
    DROP,
    SPOOFED,
    FOREIGN,
    FOUND,
    VERSION6,
    VERSION6_INNER,
    SEGMENTS,
    FITS,
    TAKE,
    LABELS
};

struct code {
    struct bpf_insn *insns;
    unsigned count;
    int at[LABELS];
};

/* --- single instructions --------------------------------------------------------------------- */

static void emit(struct code *code, unsigned op, unsigned to, unsigned from, int off, int32_t value)
{
    assert(code->count < VIA_IP_KERNEL_INSNS_MAX);
    code->insns[code->count++] = (struct bpf_insn){.code = (uint8_t)op,
                                                   .dst_reg = (uint8_t)(to & 15),
                                                   .src_reg = (uint8_t)(from & 15),
                                                   .off = (int16_t)off,
                                                   .imm = value};
}

static void set(struct code *code, unsigned to, int32_t value)
{
    emit(code, BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value);
}

static void move(struct code *code, unsigned to, unsigned from)
{
    emit(code, BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0);
}

static void calculate(struct code *code, unsigned operation, unsigned to, int32_t value)
{
    emit(code, BPF_ALU64 | operation | BPF_K, to, 0, 0, value);
}

static void point(struct code *code, unsigned to, int stack_off)
{
    move(code, to, STACK);
    calculate(code, BPF_ADD, to, stack_off);
}

static void set_wide(struct code *code, unsigned to, unsigned kind, uint64_t value)
{
    emit(code, BPF_LD | BPF_IMM | BPF_DW, to, kind, 0, (int32_t)value);
    emit(code, 0, 0, 0, 0, (int32_t)(value >> 32));
}

static void load(struct code *code, unsigned size, unsigned to, unsigned from, int off)
{
    emit(code, BPF_LDX | BPF_MEM | size, to, from, off, 0);
}

static void store(struct code *code, unsigned size, int stack_off, unsigned from)
{
    emit(code, BPF_STX | BPF_MEM | size, STACK, from, stack_off, 0);
}

static void swap(struct code *code, unsigned reg, int bits)
{
    emit(code, BPF_ALU | BPF_END | BPF_TO_BE, reg, 0, 0, bits);
}

static void call(struct code *code, enum bpf_func_id function)
{
    emit(code, BPF_JMP | BPF_CALL, 0, 0, 0, (int32_t)function);
}

/* Compares the lower 32 bits. */
static void jump(struct code *code, unsigned condition, unsigned reg, int32_t value,
                 enum label label)
{
    emit(code, BPF_JMP32 | condition | BPF_K, reg, 0, (int)label, value);
}

static void jump_wide(struct code *code, unsigned condition, unsigned a, unsigned b,
                      enum label label)
{
    emit(code, BPF_JMP | condition | BPF_X, a, b, (int)label, 0);
}

static void jump_null(struct code *code, unsigned reg, enum label label)
{
    emit(code, BPF_JMP | BPF_JEQ | BPF_K, reg, 0, (int)label, 0);
}

static void jump_always(struct code *code, enum label label)
{
    emit(code, BPF_JMP | BPF_JA, 0, 0, (int)label, 0);
}

static void place(struct code *code, enum label label)
{
    code->at[label] = (int)code->count;
}

static void leave(struct code *code, int verdict)
{
    set(code, R0, verdict);
    emit(code, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static bool is_jump(const struct bpf_insn *insn)
{
    unsigned class = BPF_CLASS(insn->code);
    unsigned operation = BPF_OP(insn->code);
    return (class == BPF_JMP || class == BPF_JMP32) && operation != BPF_CALL &&
           operation != BPF_EXIT;
}

/* Replaces label numbers in jumps by offsets. */
static unsigned finish(struct code *code)
{
    for (unsigned i = 0; i < code->count; i++) {
        struct bpf_insn *insn = &code->insns[i];
        if (is_jump(insn)) {
            insn->off = (int16_t)(code->at[insn->off] - (int)i - 1);
        }
    }
    return code->count;
}

/* --- common parts ---------------------------------------------------------------------------- */

/* Copies bytes of the packet to the stack. */
static void load_bytes(struct code *code, int off, int stack_off, int bytes, enum label too_short)
{
    move(code, R1, CONTEXT);
    set(code, R2, off);
    point(code, R3, stack_off);
    set(code, R4, bytes);
    call(code, BPF_FUNC_skb_load_bytes);
    jump(code, BPF_JNE, R0, 0, too_short);
}

/* Looks up the table element of the host whose id is in register 1. */
static void find_host(struct code *code, const struct via_ip_kernel_params *params, enum label none)
{
    store(code, BPF_W, KEY_AT, R1);
    set_wide(code, R1, BPF_PSEUDO_MAP_FD, (uint32_t)params->table_fd);
    point(code, R2, KEY_AT);
    call(code, BPF_FUNC_map_lookup_elem);
    move(code, HOST, R0);
    jump_null(code, HOST, none);
}

static void count(struct code *code, int off, unsigned by)
{
    emit(code, BPF_STX | BPF_ATOMIC | BPF_DW, HOST, by, off, BPF_ADD);
}

static void adjust_room(struct code *code, int bytes, enum label failed)
{
    move(code, R1, CONTEXT);
    set(code, R2, bytes);
    set(code, R3, BPF_ADJ_ROOM_MAC);
    move(code, R4, FLAGS);
    call(code, BPF_FUNC_skb_adjust_room);
    jump(code, BPF_JNE, R0, 0, failed);
}

/* Jumps if 16 bytes of the stack differ from those of the host's element. */
static void jump_unlike(struct code *code, int stack_off, int host_off, enum label label)
{
    for (int i = 0; i < 16; i += 8) {
        load(code, BPF_DW, R1, STACK, stack_off + i);
        load(code, BPF_DW, R2, HOST, host_off + i);
        jump_wide(code, BPF_JNE, R1, R2, label);
    }
}

static uint64_t word(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof(value));
    return value;
}

static void leave_all(struct code *code)
{
    place(code, PASS);
    leave(code, VERDICT_NEXT);
    place(code, DROP);
    leave(code, TC_ACT_SHOT);
}

/* --- out ------------------------------------------------------------------------------------- */

/* Loads the destination's host id into register 1; packets with other destinations pass. */
static void read_destination(struct code *code, const struct via_ip_kernel_params *params)
{
    uint8_t base6[16];
    bool has6 = params->network.bits6 != 0;
    via_ip_address6(&params->network, 0, base6);
    load(code, BPF_W, R1, CONTEXT, offsetof(struct __sk_buff, protocol));
    if (has6) {
        jump(code, BPF_JEQ, R1, htons(ETH_P_IPV6), VERSION6);
    }
    jump(code, BPF_JNE, R1, htons(ETH_P_IP), PASS);
    load_bytes(code, 16, BYTES_AT, 4, PASS);
    load(code, BPF_W, R1, STACK, BYTES_AT);
    swap(code, R1, 32);
    emit(code, BPF_ALU | BPF_SUB | BPF_K, R1, 0, 0, (int32_t)params->network.base4);
    if (has6) {
        jump_always(code, FOUND);
        place(code, VERSION6);
        load_bytes(code, 24, BYTES_AT, 16, PASS);
        load(code, BPF_DW, R1, STACK, BYTES_AT);
        set_wide(code, R2, 0, word(base6));
        jump_wide(code, BPF_JNE, R1, R2, PASS);
        load(code, BPF_DW, R1, STACK, BYTES_AT + 8);
        move(code, R2, R1);
        set_wide(code, R3, 0, UINT64_C(0xffffffffffff)); /* all but the id */
        emit(code, BPF_ALU64 | BPF_AND | BPF_X, R2, R3, 0, 0);
        set_wide(code, R3, 0, word(base6 + 8));
        jump_wide(code, BPF_JNE, R2, R3, PASS);
        calculate(code, BPF_RSH, R1, 48);
        swap(code, R1, 16);
    }
    place(code, FOUND);
    jump(code, BPF_JGE, R1, (int32_t)params->hosts_max, PASS);
}

/* Loads the packet's length into BYTES; packets that are too long pass. */
static void check_size(struct code *code)
{
    load(code, BPF_W, BYTES, CONTEXT, offsetof(struct __sk_buff, len));
    jump(code, BPF_JGT, BYTES, IP_BYTES_MAX - (int)VIA_IP_DIRECT_BYTES, PASS);
    load(code, BPF_W, R1, CONTEXT, offsetof(struct __sk_buff, gso_size));
    load(code, BPF_W, R2, HOST, AT(out_bytes_max));
    jump(code, BPF_JNE, R1, 0, SEGMENTS);
    jump_wide(code, BPF_JGT, BYTES, R2, PASS);
    jump_always(code, FITS);
    place(code, SEGMENTS);
    calculate(code, BPF_ADD, R1, SEGMENT_HEADER_BYTES);
    jump_wide(code, BPF_JGT, R1, R2, PASS);
    place(code, FITS);
}

/* Builds the head on the stack. BYTES is the length, head included. */
static void build_head(struct code *code)
{
    for (int i = 0; i < (int)VIA_IP_DIRECT_BYTES; i += 8) {
        load(code, BPF_DW, R1, HOST, AT(out_head) + i);
        store(code, BPF_DW, HEAD_AT + i, R1);
    }
    move(code, R1, BYTES);
    swap(code, R1, 16);
    store(code, BPF_H, HEAD_AT + OFF_LENGTH, R1);
    load(code, BPF_W, R2, HOST, AT(out_sum));
    emit(code, BPF_ALU64 | BPF_ADD | BPF_X, R2, R1, 0, 0);
    for (int i = 0; i < 2; i++) {
        move(code, R3, R2);
        calculate(code, BPF_RSH, R3, 16);
        calculate(code, BPF_AND, R2, 0xffff);
        emit(code, BPF_ALU64 | BPF_ADD | BPF_X, R2, R3, 0, 0);
    }
    calculate(code, BPF_XOR, R2, 0xffff);
    store(code, BPF_H, HEAD_AT + OFF_CHECKSUM, R2);
    move(code, R1, BYTES);
    calculate(code, BPF_SUB, R1, 20);
    swap(code, R1, 16);
    store(code, BPF_H, HEAD_AT + OFF_UDP_LENGTH, R1);
}

unsigned via_ip_kernel_code_out(const struct via_ip_kernel_params *params, struct bpf_insn *ret)
{
    struct code code = {.insns = ret};
    move(&code, CONTEXT, R1);
    read_destination(&code, params);
    find_host(&code, params, PASS);
    load(&code, BPF_W, R1, HOST, AT(out_on));
    jump(&code, BPF_JEQ, R1, 0, PASS);
    check_size(&code);
    set(&code, FLAGS,
        BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_FIXED_GSO);
    adjust_room(&code, (int)VIA_IP_DIRECT_BYTES, PASS);
    set(&code, R1, 1);
    count(&code, AT(packets_sent), R1);
    count(&code, AT(bytes_sent), BYTES);
    calculate(&code, BPF_ADD, BYTES, (int)VIA_IP_DIRECT_BYTES);
    build_head(&code);
    move(&code, R1, CONTEXT);
    set(&code, R2, 0);
    point(&code, R3, HEAD_AT);
    set(&code, R4, (int)VIA_IP_DIRECT_BYTES);
    set(&code, R5, 0);
    call(&code, BPF_FUNC_skb_store_bytes);
    jump(&code, BPF_JNE, R0, 0, DROP);
    /* bpf_redirect_neigh() expects an Ethernet header, and removes it. */
    move(&code, R1, CONTEXT);
    set(&code, R2, ETH_HLEN);
    set(&code, R3, 0);
    call(&code, BPF_FUNC_skb_change_head);
    jump(&code, BPF_JNE, R0, 0, DROP);
    load(&code, BPF_W, R1, HOST, AT(out_interface));
    set(&code, R2, 0);
    set(&code, R3, 0);
    set(&code, R4, 0);
    call(&code, BPF_FUNC_redirect_neigh);
    emit(&code, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    leave_all(&code);
    return finish(&code);
}

/* --- in -------------------------------------------------------------------------------------- */

/* Loads and checks the head; packets that are not of the direct path pass. */
static void read_head(struct code *code, const struct via_ip_kernel_params *params)
{
    load(code, BPF_W, R1, CONTEXT, offsetof(struct __sk_buff, protocol));
    jump(code, BPF_JNE, R1, htons(ETH_P_IP), PASS);
    load_bytes(code, IN_OFF, HEAD_AT, (int)VIA_IP_DIRECT_BYTES, PASS);
    const struct {
        unsigned size;
        int off;
        int32_t value;
    } wanted[] = {
        {BPF_B, 0, 0x45}, /* version 4, no options */
        {BPF_B, OFF_PROTOCOL, IPPROTO_UDP},
        {BPF_W, OFF_DESTINATION, (int32_t)params->local4},
        {BPF_H, OFF_UDP_PORT, params->port},
        {BPF_B, OFF_KIND, VIA_IP_DIRECT_PACKET},
        {BPF_B, OFF_VERSION, VIA_IP_DIRECT_VERSION},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        load(code, wanted[i].size, R1, STACK, HEAD_AT + wanted[i].off);
        jump(code, BPF_JNE, R1, wanted[i].value, PASS);
    }
    load(code, BPF_H, R1, STACK, HEAD_AT + OFF_FRAGMENT);
    calculate(code, BPF_AND, R1, htons(FRAGMENT_MASK));
    jump(code, BPF_JNE, R1, 0, PASS);
}

/* Drops the packet unless it has the token and the source address of the host that it names. */
static void check_sender(struct code *code, const struct via_ip_kernel_params *params)
{
    load(code, BPF_H, R1, STACK, HEAD_AT + OFF_HOST);
    find_host(code, params, DROP);
    load(code, BPF_W, R1, HOST, AT(in_on));
    jump(code, BPF_JEQ, R1, 0, DROP);
    load(code, BPF_W, R1, STACK, HEAD_AT + OFF_SOURCE);
    load(code, BPF_W, R2, HOST, AT(peer4));
    jump_wide(code, BPF_JNE, R1, R2, DROP);
    jump_unlike(code, HEAD_AT + OFF_TOKEN, AT(in_token), DROP);
}

static void check_inner6(struct code *code, const struct via_ip_kernel_params *params)
{
    uint8_t own[16];
    via_ip_address6(&params->network, params->host, own);
    place(code, VERSION6_INNER);
    jump(code, BPF_JNE, R1, 6, DROP);
    load_bytes(code, IN_OFF + (int)VIA_IP_DIRECT_BYTES + 8, BYTES_AT, 32, DROP);
    jump_unlike(code, BYTES_AT, AT(inner6), SPOOFED);
    for (int i = 0; i < 16; i += 8) {
        load(code, BPF_DW, R1, STACK, BYTES_AT + 16 + i);
        set_wide(code, R2, 0, word(own + i));
        jump_wide(code, BPF_JNE, R1, R2, FOREIGN);
    }
    set(code, FLAGS, BPF_F_ADJ_ROOM_FIXED_GSO | ROOM_DECAP_IPV6);
}

/* Checks that the addresses of the inner packet are those of the two hosts. */
static void check_inner(struct code *code, const struct via_ip_kernel_params *params)
{
    bool has6 = params->network.bits6 != 0;
    load_bytes(code, IN_OFF + (int)VIA_IP_DIRECT_BYTES, BYTES_AT, 20, DROP);
    load(code, BPF_B, R1, STACK, BYTES_AT);
    calculate(code, BPF_RSH, R1, 4);
    jump(code, BPF_JNE, R1, 4, has6 ? VERSION6_INNER : DROP);
    load(code, BPF_W, R1, STACK, BYTES_AT + 12);
    load(code, BPF_W, R2, HOST, AT(inner4));
    jump_wide(code, BPF_JNE, R1, R2, SPOOFED);
    load(code, BPF_W, R1, STACK, BYTES_AT + 16);
    jump(code, BPF_JNE, R1, (int32_t)htonl(via_ip_address4(&params->network, params->host)),
         FOREIGN);
    set(code, FLAGS, BPF_F_ADJ_ROOM_FIXED_GSO);
    if (has6) {
        jump_always(code, TAKE);
        check_inner6(code, params);
    }
    place(code, TAKE);
}

static void drop_and_count(struct code *code, enum label label, int counter)
{
    place(code, label);
    set(code, R1, 1);
    count(code, counter, R1);
    leave(code, TC_ACT_SHOT);
}

unsigned via_ip_kernel_code_in(const struct via_ip_kernel_params *params, struct bpf_insn *ret)
{
    struct code code = {.insns = ret};
    move(&code, CONTEXT, R1);
    read_head(&code, params);
    check_sender(&code, params);
    check_inner(&code, params);
    load(&code, BPF_W, BYTES, CONTEXT, offsetof(struct __sk_buff, len));
    calculate(&code, BPF_SUB, BYTES, IN_OFF + (int)VIA_IP_DIRECT_BYTES);
    adjust_room(&code, -(int)VIA_IP_DIRECT_BYTES, DROP);
    set(&code, R1, 1);
    count(&code, AT(packets_received), R1);
    count(&code, AT(bytes_received), BYTES);
    set(&code, R1, (int32_t)params->device);
    set(&code, R2, BPF_F_INGRESS);
    call(&code, BPF_FUNC_redirect);
    emit(&code, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    drop_and_count(&code, SPOOFED, AT(spoofed));
    drop_and_count(&code, FOREIGN, AT(foreign));
    leave_all(&code);
    return finish(&code);
}

/* --- the head -------------------------------------------------------------------------------- */

void via_ip_kernel_fill_head(struct via_ip_kernel_host *host, uint32_t local4, uint16_t local_port,
                             uint32_t peer4, uint16_t peer_port,
                             const struct via_ip_direct_head *head)
{
    uint8_t *to = host->out_head;
    const uint16_t fragment = htons(DONT_FRAGMENT);
    uint32_t sum = 0;
    memset(to, 0, sizeof(host->out_head));
    to[0] = 0x45;
    to[8] = HOPS_MAX;
    to[OFF_PROTOCOL] = IPPROTO_UDP;
    memcpy(to + OFF_FRAGMENT, &fragment, sizeof(fragment));
    memcpy(to + OFF_SOURCE, &local4, sizeof(local4));
    memcpy(to + OFF_DESTINATION, &peer4, sizeof(peer4));
    for (unsigned i = 0; i < 20; i += 2) {
        uint16_t half;
        memcpy(&half, to + i, sizeof(half));
        sum += half;
    }
    host->out_sum = sum;
    memcpy(to + 20, &local_port, sizeof(local_port));
    memcpy(to + OFF_UDP_PORT, &peer_port, sizeof(peer_port));
    memcpy(to + OFF_DIRECT, head, sizeof(*head));
}
