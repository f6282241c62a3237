/* SPDX-License-Identifier: MIT
 *
 * Which x86 kernels may run, from registers: each bit that is missing refuses, and no feature is taken to imply another one
 * (faiss#5281, xFasterTransformer#113).
 */
#include "common/check.h"
#include "cpu/x86/features.h"

static const uint32_t ecx[] = {1u << 12 /* FMA */, 1u << 27 /* OSXSAVE */, 1u << 28 /* AVX */, 1u << 29 /* F16C */};
static const uint32_t avx2 = 1u << 5;
static const uint32_t avx512[] = {1u << 16 /* F */, 1u << 17 /* DQ */, 1u << 30 /* BW */, 1u << 31 /* VL */};
static const uint64_t states[] = {1 << 1 /* SSE */, 1 << 2 /* AVX */};
static const uint64_t states512[] = {1 << 5 /* opmask */, 1 << 6 /* upper halves */, 1 << 7 /* ZMM16-31 */};

static const uint32_t edx[] = {1u << 22 /* AMX_BF16 */, 1u << 24 /* AMX_TILE */};
static const uint64_t states_tiles[] = {1 << 17 /* sizes */, 1 << 18 /* data */};

static const tc_x86_registers all = {~0u, ~0u, ~0u, ~(uint64_t)0};

static void everything(void) {
  CHECK(tc_x86_has_avx2(all));
  CHECK(tc_x86_has_avx512(all));
  CHECK(tc_x86_has_amxbf16(all));
}

static void nothing(void) {
  CHECK(!tc_x86_has_avx2((tc_x86_registers){0, 0, 0, 0}));
  CHECK(!tc_x86_has_avx512((tc_x86_registers){0, 0, 0, 0}));
  CHECK(!tc_x86_has_amxbf16((tc_x86_registers){0, 0, 0, 0}));
}

/* The least that will do. */
static void least(void) {
  tc_x86_registers r = {ecx[0] | ecx[1] | ecx[2] | ecx[3], avx2, 0, states[0] | states[1]};
  CHECK(tc_x86_has_avx2(r));
  CHECK(!tc_x86_has_avx512(r));
  r.leaf7_ebx |= avx512[0] | avx512[1] | avx512[2] | avx512[3];
  CHECK(!tc_x86_has_avx512(r)); /* the operating system doesn't save the registers */
  r.xcr0 |= states512[0] | states512[1] | states512[2];
  CHECK(tc_x86_has_avx512(r));
  r.leaf7_edx |= edx[0] | edx[1];
  CHECK(!tc_x86_has_amxbf16(r));
  r.xcr0 |= states_tiles[0] | states_tiles[1];
  CHECK(tc_x86_has_amxbf16(r));
}

/* How many of avx2, avx512, amxbf16, each of which needs those before it. */
static void check_level(tc_x86_registers r, int level) {
  note("ecx %08x, ebx %08x, edx %08x, xcr0 %llx", r.leaf1_ecx, r.leaf7_ebx, r.leaf7_edx, (unsigned long long)r.xcr0);
  CHECK(tc_x86_has_avx2(r) == (level >= 1));
  CHECK(tc_x86_has_avx512(r) == (level >= 2));
  CHECK(tc_x86_has_amxbf16(r) == (level >= 3));
}

static void one_missing(void) {
  for (size_t i = 0; i < COUNT(ecx); i++) check_level((tc_x86_registers){~ecx[i], ~0u, ~0u, all.xcr0}, 0);
  check_level((tc_x86_registers){~0u, ~avx2, ~0u, all.xcr0}, 0);
  for (size_t i = 0; i < COUNT(avx512); i++) check_level((tc_x86_registers){~0u, ~avx512[i], ~0u, all.xcr0}, 1);
  for (size_t i = 0; i < COUNT(edx); i++) check_level((tc_x86_registers){~0u, ~0u, ~edx[i], all.xcr0}, 2);
  for (size_t i = 0; i < COUNT(states); i++) check_level((tc_x86_registers){~0u, ~0u, ~0u, ~states[i]}, 0);
  for (size_t i = 0; i < COUNT(states512); i++) check_level((tc_x86_registers){~0u, ~0u, ~0u, ~states512[i]}, 1);
  for (size_t i = 0; i < COUNT(states_tiles); i++) check_level((tc_x86_registers){~0u, ~0u, ~0u, ~states_tiles[i]}, 2);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"everything", everything}, {"nothing", nothing}, {"least", least}, {"one_missing", one_missing}};
  return run_tests("features", tests, COUNT(tests), argc, argv);
}
