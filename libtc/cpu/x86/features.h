/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_X86_FEATURES_H
#define TC_CPU_X86_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

/* The registers that decide which ISA may run: what the CPU has, and what the operating system saves (xcr0). */
typedef struct tc_x86_registers {
  uint32_t leaf1_ecx, leaf7_ebx, leaf7_edx;
  uint64_t xcr0; /* 0 where the operating system doesn't use XSAVE */
} tc_x86_registers;

tc_x86_registers tc_x86_cpuid(void);

/* Each asks for every bit that the kernels of its file use: one feature is never taken to imply another. */
bool tc_x86_has_avx2(tc_x86_registers r);    /* AVX2, FMA, F16C */
bool tc_x86_has_avx512(tc_x86_registers r);  /* these, and AVX-512 F, BW, DQ, VL */
bool tc_x86_has_amxbf16(tc_x86_registers r); /* these, and AMX tiles with bf16 products */

/* Linux gives tiles only to a process that asks for them. Asks, the first time, and remembers the answer for the process and the children
 * that it forks: NULL if the process may use tiles, else why not. It's refused where a thread has a signal stack too small for
 * tiles, or where a sandbox forbids the system call; to be granted has the effect that such stacks can't be set up any more. */
const char *tc_x86_amx_refusal(void);
bool tc_x86_amx_refused(void); /* has been asked for, and refused */

/* The machine that the above sees; tests put another one in its place. */
typedef struct tc_x86_machine {
  tc_x86_registers (*cpuid)(void);
  long (*arch_prctl)(int code, uintptr_t argument); /* -1 and errno if it fails */
} tc_x86_machine;

extern tc_x86_machine tc_x86_this_machine;

#endif
