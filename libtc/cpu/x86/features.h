/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_X86_FEATURES_H
#define TC_CPU_X86_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

/* The registers that decide which ISA may run: what the CPU has, and what the operating system saves (xcr0). */
typedef struct tc_x86_registers {
  uint32_t leaf1_ecx, leaf7_ebx;
  uint64_t xcr0; /* 0 where the operating system doesn't use XSAVE */
} tc_x86_registers;

tc_x86_registers tc_x86_cpuid(void);

/* Each asks for every bit that the kernels of its file use: one feature is never taken to imply another. */
bool tc_x86_has_avx2(tc_x86_registers r);   /* AVX2, FMA, F16C */
bool tc_x86_has_avx512(tc_x86_registers r); /* these, and AVX-512 F, BW, DQ, VL */

#endif
