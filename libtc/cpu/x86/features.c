/* SPDX-License-Identifier: MIT
 * Bits: Intel SDM volume 2, CPUID; volume 1, 13.3 for XCR0. Permission for tiles: Linux, Documentation/arch/x86/xstate.rst. */
#include "cpu/x86/features.h"

#include <cpuid.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- What the machine has ---- */

enum {
  LEAF1_ECX = 1u << 12 /* FMA */ | 1u << 27 /* OSXSAVE */ | 1u << 28 /* AVX */ | 1u << 29 /* F16C */,
  LEAF7_EBX_AVX2 = 1u << 5,
  LEAF7_EDX_AMXBF16 = 1u << 22 /* AMX_BF16 */ | 1u << 24 /* AMX_TILE */,
  XCR0_AVX = 0x06 /* SSE, AVX state */,
  XCR0_AVX512 = 0xe6 /* and opmask, upper halves, ZMM16-31 */,
  XCR0_TILES = 1u << 17 /* their sizes */ | 1u << 18 /* their data */,
};
static const uint32_t leaf7_ebx_avx512 = 1u << 16 /* F */ | 1u << 17 /* DQ */ | 1u << 30 /* BW */ | 1u << 31 /* VL */;

static uint64_t read_xcr0(void) {
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static tc_x86_registers read_registers(void) {
  tc_x86_registers r = {0, 0, 0, 0};
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) r.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    r.leaf7_ebx = ebx;
    r.leaf7_edx = edx;
  }
  if (r.leaf1_ecx & 1u << 27) r.xcr0 = read_xcr0();
  return r;
}

tc_x86_registers tc_x86_cpuid(void) { return tc_x86_this_machine.cpuid(); }

bool tc_x86_has_avx2(tc_x86_registers r) {
  return (r.leaf1_ecx & LEAF1_ECX) == LEAF1_ECX && (r.leaf7_ebx & LEAF7_EBX_AVX2) && (r.xcr0 & XCR0_AVX) == XCR0_AVX;
}

bool tc_x86_has_avx512(tc_x86_registers r) {
  return tc_x86_has_avx2(r) && (r.leaf7_ebx & leaf7_ebx_avx512) == leaf7_ebx_avx512 && (r.xcr0 & XCR0_AVX512) == XCR0_AVX512;
}

bool tc_x86_has_amxbf16(tc_x86_registers r) {
  return tc_x86_has_avx512(r) && (r.leaf7_edx & LEAF7_EDX_AMXBF16) == LEAF7_EDX_AMXBF16 && (r.xcr0 & XCR0_TILES) == XCR0_TILES;
}

/* ---- Permission for tiles ---- */

enum { GET_PERMISSION = 0x1022, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

#ifdef __linux__
static long call_arch_prctl(int code, uintptr_t argument) { return syscall(SYS_arch_prctl, code, argument); }
#else
static long call_arch_prctl(int code, uintptr_t argument) {
  (void)code, (void)argument;
  errno = ENOSYS;
  return -1;
}
#endif

tc_x86_machine tc_x86_this_machine = {read_registers, call_arch_prctl};

static bool has_permission(void) {
  uint64_t components = 0;
  return tc_x86_this_machine.arch_prctl(GET_PERMISSION, (uintptr_t)&components) == 0 && (components >> TILE_DATA & 1);
}

static char refusal[80];
static _Atomic bool refused;

static void ask(void) {
  if (has_permission()) return;
  const bool requested = tc_x86_this_machine.arch_prctl(REQUEST_PERMISSION, TILE_DATA) == 0;
  const int error = errno;
  if (requested && has_permission()) return;
  char reason[48] = "it was granted without effect";
  if (!requested && strerror_r(error, reason, sizeof reason) != 0) snprintf(reason, sizeof reason, "errno %d", error);
  snprintf(refusal, sizeof refusal, "arch_prctl(ARCH_REQ_XCOMP_PERM): %s", reason);
  atomic_store(&refused, true);
}

const char *tc_x86_amx_refusal(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, ask);
  return tc_x86_amx_refused() ? refusal : NULL;
}

bool tc_x86_amx_refused(void) { return atomic_load(&refused); }
