/* Makes each system call of processes named two_calls cost more, with a BPF program on sys_enter that counts down
 * from a number and times itself. It is written as instructions, so no BPF compiler is needed; raw tracepoints work
 * without tracefs.
 *
 * usage: dear_calls NUMBER FILE       until SIGTERM; then it appends the total nanoseconds and the number of runs to
 *                                     FILE
 */
#include <linux/bpf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel compares one word of the name. */
static const char name[8] = "two_call";

static struct bpf_insn instruction(int code, int to, int from, int offset, int value) {
    struct bpf_insn made = {.code = (uint8_t)code, .off = (int16_t)offset, .imm = value};

    made.dst_reg = (uint8_t)to & 15;
    made.src_reg = (uint8_t)from & 15;
    return made;
}

static int bpf(int command, union bpf_attr *attributes) {
    int descriptor = (int)syscall(SYS_bpf, command, attributes, sizeof *attributes);

    if (descriptor < 0) {
        perror("bpf");
        exit(1);
    }
    return descriptor;
}

static void attach(int loops, int map) {
    union bpf_attr load = {0}, open = {0};
    uint32_t low, high;

    memcpy(&low, name, 4);
    memcpy(&high, name + 4, 4);
    struct bpf_insn program[] = {
        /* The name of this process: 16 bytes below the frame pointer. */
        instruction(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_10, 0, 0),
        instruction(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_1, 0, 0, -16),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_2, 0, 0, 16),
        instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_current_comm),
        instruction(BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_10, -16, 0),
        instruction(BPF_LD | BPF_IMM | BPF_DW, BPF_REG_2, 0, 0, (int)low),
        instruction(0, 0, 0, 0, (int)high),
        instruction(BPF_JMP | BPF_JNE | BPF_X, BPF_REG_1, BPF_REG_2, 18, 0),
        /* The countdown, between two readings of the clock. */
        instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ktime_get_ns),
        instruction(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_7, BPF_REG_0, 0, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_6, 0, 0, loops),
        instruction(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_6, 0, 0, -1),
        instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_6, 0, -2, 0),
        instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ktime_get_ns),
        instruction(BPF_ALU64 | BPF_SUB | BPF_X, BPF_REG_0, BPF_REG_7, 0, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_7, BPF_REG_0, 0, 0),
        /* Adds the time to the sum, and 1 to the number of runs. */
        instruction(BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, -20, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0),
        instruction(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -20),
        instruction(BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
        instruction(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 3, 0),
        instruction(BPF_STX | BPF_XADD | BPF_DW, BPF_REG_0, BPF_REG_7, 0, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_7, 0, 0, 1),
        instruction(BPF_STX | BPF_XADD | BPF_DW, BPF_REG_0, BPF_REG_7, 8, 0),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0),
        instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    };
    load.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
    load.insns = (uint64_t)(uintptr_t)program;
    load.insn_cnt = sizeof program / sizeof program[0];
    load.license = (uint64_t)(uintptr_t)"GPL";
    open.raw_tracepoint.name = (uint64_t)(uintptr_t)"sys_enter";
    open.raw_tracepoint.prog_fd = (uint32_t)bpf(BPF_PROG_LOAD, &load);
    bpf(BPF_RAW_TRACEPOINT_OPEN, &open);
}

int main(int count, char **arguments) {
    union bpf_attr make = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 16, .max_entries = 1};
    union bpf_attr read = {0};
    uint64_t sums[2] = {0, 0};
    uint32_t key = 0;
    sigset_t ending;
    int map, ended;
    FILE *file;

    if (count != 3 || atoi(arguments[1]) < 1) {
        fprintf(stderr, "usage: dear_calls NUMBER FILE\n");
        return 2;
    }
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigprocmask(SIG_BLOCK, &ending, NULL);
    map = bpf(BPF_MAP_CREATE, &make);
    attach(atoi(arguments[1]), map);
    sigwait(&ending, &ended);
    read.map_fd = (uint32_t)map;
    read.key = (uint64_t)(uintptr_t)&key;
    read.value = (uint64_t)(uintptr_t)sums;
    bpf(BPF_MAP_LOOKUP_ELEM, &read);
    file = fopen(arguments[2], "a");
    if (file == NULL || fprintf(file, "%llu %llu\n", (unsigned long long)sums[0], (unsigned long long)sums[1]) < 0 ||
        fclose(file) != 0)
        return 1;
    return 0;
}
