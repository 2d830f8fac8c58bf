/* SPDX-License-Identifier: Apache-2.0 */
/* Names of addresses in the kernel, its modules and BPF programs. Looking up single addresses is much quicker than
 * printing the list of all functions (/proc/kallsyms), which takes the kernel 40 ms. */
#ifndef STRAINGAUGE_NAMES_H
#define STRAINGAUGE_NAMES_H

#define NAMED_AT_ONCE 64
#define FUNCTION_BYTES 256

struct kernel_name {
    __u64 address;             /* 0 = no further ones */
    char name[FUNCTION_BYTES]; /* `function` or `function [module]`; 0x... outside of all functions */
};
struct kernel_name named[NAMED_AT_ONCE] SEC(".bss.named");
static const char as_symbol[] SEC(".rodata.as_symbol") = "%ps";

/* Run by the reader. */
SEC("syscall")
int name_addresses(void *context) {
    for (__u32 i = 0; i < NAMED_AT_ONCE; i++) {
        __u64 address = named[i].address;

        if (!address)
            break;
        bpf_snprintf(named[i].name, FUNCTION_BYTES, as_symbol, &address, sizeof(address));
    }
    return 0;
}

#endif
