/* SPDX-License-Identifier: MIT
 * Bits: Intel SDM volume 2, CPUID; volume 1, 13.3 for XCR0. */
#include "cpu/x86/features.h"

#include <cpuid.h>

enum {
  LEAF1_ECX = 1u << 12 /* FMA */ | 1u << 27 /* OSXSAVE */ | 1u << 28 /* AVX */ | 1u << 29 /* F16C */,
  LEAF7_EBX_AVX2 = 1u << 5,
  XCR0_AVX = 0x06 /* SSE, AVX state */,
  XCR0_AVX512 = 0xe6 /* and opmask, upper halves, ZMM16-31 */,
};
static const uint32_t leaf7_ebx_avx512 = 1u << 16 /* F */ | 1u << 17 /* DQ */ | 1u << 30 /* BW */ | 1u << 31 /* VL */;

static uint64_t read_xcr0(void) {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

tc_x86_registers tc_x86_cpuid(void) {
  tc_x86_registers r = {0, 0, 0};
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) r.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) r.leaf7_ebx = ebx;
  if (r.leaf1_ecx & 1u << 27) r.xcr0 = read_xcr0();
  return r;
}

bool tc_x86_has_avx2(tc_x86_registers r) {
  return (r.leaf1_ecx & LEAF1_ECX) == LEAF1_ECX && (r.leaf7_ebx & LEAF7_EBX_AVX2) && (r.xcr0 & XCR0_AVX) == XCR0_AVX;
}

bool tc_x86_has_avx512(tc_x86_registers r) {
  return tc_x86_has_avx2(r) && (r.leaf7_ebx & leaf7_ebx_avx512) == leaf7_ebx_avx512 && (r.xcr0 & XCR0_AVX512) == XCR0_AVX512;
}
