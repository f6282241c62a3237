/* SPDX-License-Identifier: MIT
 *
 * Tile operations of AMX, as assembly and not as intrinsics: gcc's intrinsics don't tell the compiler that they read memory, so it may
 * move or drop the stores before them. No operation here names a tile as an operand, because compilers know nothing of tiles; nothing
 * else in the library touches them.
 */
#if !(defined(__AMX_TILE__) || defined(__AMXTILE__)) || !(defined(__AMX_BF16__) || defined(__AMXBF16__)) || !defined(__AVX512F__)
#error "compile this file with -mamx-tile -mamx-bf16 and the flags of avx512.c"
#endif

#define ISA amxbf16
#define TILE_CONFIG(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(config)) : "memory")
#define TILE_RELEASE() __asm__ volatile("tilerelease" : : : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_LOAD(t, base, stride) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"((const void *)(base)), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, base, stride) \
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"((void *)(base)), "r"((int64_t)(stride)) : "memory")
#define TILE_PRODUCT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#define WIDEN(to, from) (*(to) = (floats)_mm512_cvtph_ps((__m256i) * (from)))
#define ANY_NAN(x) (_mm512_cmp_ps_mask((__m512) * (x), (__m512) * (x), _CMP_UNORD_Q) != 0)

#include <immintrin.h>

#include "cpu/split_tmpl.h"
