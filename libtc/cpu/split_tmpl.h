/* SPDX-License-Identifier: MIT
 *
 * The tile kernels (split.h), written once against a small set of tile operations, which the including file defines:
 *   ISA                              suffix of the names and value of TC_CPU_ISA
 *   TILE_CONFIG(config), TILE_RELEASE()          this thread's tiles: their sizes; none
 *   TILE_ZERO(t)                                 tile t = 0
 *   TILE_LOAD(t, base, stride), TILE_STORE(t, base, stride)   rows of memory, stride bytes apart
 *   TILE_PRODUCT(c, a, b)                        tile c += a * b, bf16 pairs with fp32 sums
 *   WIDEN(to, from)                              *to = *from, vectors of 16 fp32 and fp16
 *   ANY_NAN(x)                                   whether one of the 16 fp32 of *x is NaN
 * Tiles are named by literal numbers: C is 0 to 3, A 4 and 5, B 6 and 7.
 *
 * What the order of operations is good for, at 16 rows (the tile unit takes 16 cycles for a product, a load from L1 takes 8):
 * with 2 by 2 tiles a step has 12 products and 8 loads, so loads hide behind products. A product finds its B where the one before it
 * had it. The three parts of a step are hi*lo, hi*hi, lo*hi, so that from one to the next only one operand is loaded anew.
 */
#include <string.h>

#include "cpu/split.h"

#define NAME2(prefix, isa) prefix##_##isa
#define NAME1(prefix, isa) NAME2(prefix, isa)
#define NAME(prefix) NAME1(prefix, ISA)
#define TEXT1(x) #x
#define TEXT(x) TEXT1(x)

/* ---- Sizes of tiles ---- */

typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;

_Static_assert(sizeof(tile_config) == 64, "what the instruction reads");

#define CONFIG(r)                                                             \
  {                                                                           \
    1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, { r, r, r, r, r, r, 16, 16 } \
  }

/* Constant, and not made on the stack: compilers have dropped stores that only the tile instructions read. */
static const tile_config configs[TC_SPLIT_ROWS_MAX]
    __attribute__((aligned(64))) = {CONFIG(1), CONFIG(2),  CONFIG(3),  CONFIG(4),  CONFIG(5),  CONFIG(6),  CONFIG(7),  CONFIG(8),
                                    CONFIG(9), CONFIG(10), CONFIG(11), CONFIG(12), CONFIG(13), CONFIG(14), CONFIG(15), CONFIG(16)};

static void NAME(split_begin)(int64_t rows) { TILE_CONFIG(&configs[rows - 1]); }

static void NAME(split_end)(void) { TILE_RELEASE(); }

/* ---- The product ---- */

/* Every function below is inlined with constant numbers of tiles. */
#define INLINE __attribute__((always_inline)) static inline

INLINE void zero_c(int64_t a_tiles, int64_t b_tiles) {
  TILE_ZERO(0);
  if (b_tiles > 1) TILE_ZERO(1);
  if (a_tiles > 1) TILE_ZERO(2);
  if (a_tiles > 1 && b_tiles > 1) TILE_ZERO(3);
}

INLINE void load_a(int64_t a_tiles, const tc_split_layout *l, const char *a) {
  TILE_LOAD(4, a, l->lda);
  if (a_tiles > 1) TILE_LOAD(5, a + l->a_next, l->lda);
}

INLINE void load_b(int64_t b_tiles, const tc_split_layout *l, const char *b) {
  TILE_LOAD(6, b, l->ldb);
  if (b_tiles > 1) TILE_LOAD(7, b + l->b_next, l->ldb);
}

INLINE void multiply(int64_t a_tiles, int64_t b_tiles) {
  TILE_PRODUCT(0, 4, 6);
  if (a_tiles > 1) TILE_PRODUCT(2, 5, 6);
  if (b_tiles > 1) TILE_PRODUCT(1, 4, 7);
  if (a_tiles > 1 && b_tiles > 1) TILE_PRODUCT(3, 5, 7);
}

INLINE void store_c(int64_t a_tiles, int64_t b_tiles, const tc_split_block *block) {
  const int64_t stride = block->ldc * (int64_t)sizeof(float), next = block->c_next * (int64_t)sizeof(float);
  char *c = (char *)block->c;
  TILE_STORE(0, c, stride);
  if (b_tiles > 1) TILE_STORE(1, c + 64, stride);
  if (a_tiles > 1) TILE_STORE(2, c + next, stride);
  if (a_tiles > 1 && b_tiles > 1) TILE_STORE(3, c + next + 64, stride);
}

INLINE void gemm_tiles(int64_t a_tiles, int64_t b_tiles, bool strict, const tc_split_block *block, const tc_split_side *side) {
  const tc_split_layout layout = *block->layout;
  zero_c(a_tiles, b_tiles);
  for (int64_t s = 0; s < block->steps; s++) {
    const char *a = block->step[s].a, *b = block->step[s].b;
    if (strict) {
      load_a(a_tiles, &layout, a + layout.a_lo);
      load_b(b_tiles, &layout, b + layout.b_lo);
      multiply(a_tiles, b_tiles);
      load_a(a_tiles, &layout, a);
    } else {
      load_a(a_tiles, &layout, a);
      load_b(b_tiles, &layout, b + layout.b_lo);
    }
    multiply(a_tiles, b_tiles);
    load_b(b_tiles, &layout, b);
    multiply(a_tiles, b_tiles);
    load_a(a_tiles, &layout, a + layout.a_lo);
    multiply(a_tiles, b_tiles);
    if (side) side->slice(side->self, s, block->steps);
  }
  store_c(a_tiles, b_tiles, block);
}

static void NAME(split_gemm)(const tc_split_block *block, const tc_split_side *side) {
  switch (block->a_tiles * 4 + block->b_tiles * 2 + block->strict) {
#define TILES(a_tiles, b_tiles)                       \
  case (a_tiles)*4 + (b_tiles)*2:                     \
    gemm_tiles(a_tiles, b_tiles, false, block, side); \
    break;                                            \
  case (a_tiles)*4 + (b_tiles)*2 + 1:                 \
    gemm_tiles(a_tiles, b_tiles, true, block, side);  \
    break;
    TILES(1, 1)
    TILES(1, 2)
    TILES(2, 1)
    TILES(2, 2)
  }
}

/* ---- Packing ---- */

typedef uint32_t words __attribute__((vector_size(64)));
typedef float floats __attribute__((vector_size(64)));
typedef float unaligned_floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t row_bf16 __attribute__((vector_size(64)));
typedef uint16_t halves __attribute__((vector_size(32)));
typedef uint16_t unaligned_halves __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint16_t aliased_halves __attribute__((vector_size(32), may_alias));
typedef uint16_t unaligned_row __attribute__((vector_size(64), aligned(2), may_alias));

#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (__typeof__((a) < (b))){__VA_ARGS__})
#endif

/* A row of a tile of fp16: 32 terms of a row of A, or 16 pairs of terms. */
typedef struct half_row {
  halves first, second;
} half_row;

/* The words of two rows, side by side. */
INLINE void join(const uint16_t *even, const uint16_t *odd, half_row *row) {
  const halves e = *(const unaligned_halves *)even, o = *(const unaligned_halves *)odd;
  row->first = PICK(e, o, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  row->second = PICK(e, o, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

INLINE void load(const uint16_t *src, half_row *row) {
  row->first = *(const unaligned_halves *)src;
  row->second = *(const unaligned_halves *)(src + 16);
}

/* 0 in the place of infinities and NaNs. */
INLINE void clean_up(halves *x) { *x &= ~(halves)((*x & 0x7c00u) == 0x7c00u); }

/* x = hi + lo, with their bf16 in the upper halves of the lanes. Adding half of the last place, then cutting, rounds to nearest, ties
 * away from 0. Of infinity and NaN, lo is NaN. */
INLINE void split(const floats *x, words *hi, floats *lo) {
  *hi = ((words)*x + 0x8000u) & 0xffff0000u;
  *lo = *x - (floats)*hi;
}

#define UPPER \
  1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63

/* Writes a row of a hi tile and of a lo tile. nans gathers what isn't finite, which none of it is once rows are clean. */
INLINE void split_row(half_row *row, bool clean, char *hi, char *lo, floats *nans) {
  floats first, second;
  if (clean) clean_up(&row->first);
  if (clean) clean_up(&row->second);
  WIDEN(&first, &row->first);
  WIDEN(&second, &row->second);
  words first_hi, second_hi;
  floats first_lo, second_lo;
  split(&first, &first_hi, &first_lo);
  split(&second, &second_hi, &second_lo);
  *nans += first_lo;
  *nans += second_lo;
  *(unaligned_row *)hi = PICK((row_bf16)first_hi, (row_bf16)second_hi, UPPER);
  *(unaligned_row *)lo = PICK((row_bf16)first_lo, (row_bf16)second_lo, UPPER);
}

/* Exchanges, for all rows that differ by d, their lanes that differ by d. */
#define EXCHANGE(t, d, low, high)         \
  for (int i = 0; i < 16; i++) {          \
    if (i & (d)) continue;                \
    const words a = t[i], b = t[i + (d)]; \
    t[i] = PICK(a, b, low);               \
    t[i + (d)] = PICK(a, b, high);        \
  }
#define LOW1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define LOW2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31

/* Of 16 by 16 words, each of which is a pair of terms. */
INLINE void transpose(words t[16]){EXCHANGE(t, 1, LOW1, HIGH1) EXCHANGE(t, 2, LOW2, HIGH2) EXCHANGE(t, 4, LOW4, HIGH4)
                                       EXCHANGE(t, 8, LOW8, HIGH8)}

INLINE void source_row(bool along, const uint16_t *const *rows, int64_t at, int64_t i, half_row *row) {
  if (along) {
    join(rows[2 * i] + at, rows[2 * i + 1] + at, row);
  } else {
    load(rows[i] + at, row);
  }
}

/* Two rows along x are the words of one pair, for each x: a row of a B tile. One row along the terms is a row of an A tile. */
INLINE bool pack(bool along, bool clean, int64_t n, int64_t distance, const uint16_t *const *rows, int64_t at, char *hi, char *lo) {
  floats nans = {0};
  for (int64_t i = 0; i < n; i++) {
    half_row row;
    source_row(along, rows, at, i, &row);
    split_row(&row, clean, hi + i * distance, lo + i * distance, &nans);
  }
  return ANY_NAN(&nans);
}

/* The other form than the one that rows are in. */
INLINE bool pack_transposed(bool along, bool clean, int64_t n, int64_t distance, const uint16_t *const *rows, int64_t at, char *hi,
                            char *lo) {
  words t[16];
  floats nans = {0};
  for (int64_t i = 0; i < 16; i++) {
    half_row row;
    source_row(along, rows, at, i, &row);
    ((aliased_halves *)&t[i])[0] = row.first;
    ((aliased_halves *)&t[i])[1] = row.second;
  }
  transpose(t);
  for (int64_t i = 0; i < n; i++) {
    half_row row = {((const aliased_halves *)&t[i])[0], ((const aliased_halves *)&t[i])[1]};
    split_row(&row, clean, hi + i * distance, lo + i * distance, &nans);
  }
  return ANY_NAN(&nans);
}

INLINE bool pack_form(const tc_split_form *form, bool clean, const uint16_t *const *rows, int64_t at, char *hi, char *lo) {
  if (form->pairs)
    return form->along ? pack(true, clean, 16, 64, rows, at, hi, lo) : pack_transposed(false, clean, 16, 64, rows, at, hi, lo);
  return form->along ? pack_transposed(true, clean, form->rows, form->lda, rows, at, hi, lo)
                     : pack(false, clean, form->rows, form->lda, rows, at, hi, lo);
}

static bool NAME(split_pack)(const tc_split_form *form, const uint16_t *const *rows, int64_t at, void *hi, void *lo) {
  if (!pack_form(form, false, rows, at, hi, lo)) return false;
  pack_form(form, true, rows, at, hi, lo);
  return true;
}

/* ---- Sums ---- */

static void NAME(split_add)(int64_t rows, int64_t columns, const float *src, int64_t lds, float *dst, int64_t ldd) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j += 16) {
      *(unaligned_floats *)(dst + i * ldd + j) += *(const unaligned_floats *)(src + i * lds + j);
    }
  }
}

/* ---- Packing fp32 copies of fp16 values, which conv_tiles.c and conv_tiles_weight.c stage ---- */

typedef uint32_t unaligned_words __attribute__((vector_size(64), aligned(4), may_alias));
/* hi and lo have their bf16 in the upper halves of the lanes. Adding one less than half of the last place, and one more if it is odd,
 * then cutting, rounds to nearest even. A value of infinity or NaN becomes 0 and sets bits of special. */
INLINE void split_single(const floats *x, words *hi, words *lo, words *special) {
  const words bits = (words)*x, infinite = (words)((bits & 0x7f800000u) == 0x7f800000u), finite = bits & ~infinite;
  *special |= infinite;
  *hi = (finite + 0x7fffu + (finite >> 16 & 1u)) & 0xffff0000u;
  *lo = (words)((floats)finite - (floats)*hi);
}

/* The pairs (even, odd) of each lane. */
INLINE void split_pairs(const floats *even, const floats *odd, words *hi, words *lo, words *special) {
  words even_hi, even_lo, odd_hi, odd_lo;
  split_single(even, &even_hi, &even_lo, special);
  split_single(odd, &odd_hi, &odd_lo, special);
  *hi = even_hi >> 16 | odd_hi;
  *lo = even_lo >> 16 | odd_lo;
}

INLINE void store(const words *t, void *dst) { *(unaligned_words *)dst = *t; }

/* Pairs of terms are words. Two rows along x give the words of one pair, for each x: row i of a B tile. One row along the terms gives the
 * words of one x: row i of an A tile. */
INLINE void single_row(bool along, int64_t i, const float *src, int64_t ld, words *hi, words *lo, words *special) {
  const float *row = src + (along ? 2 * i : i) * ld;
  const floats first = *(const unaligned_floats *)row, second = *(const unaligned_floats *)(row + (along ? ld : 16));
  const floats even = along ? first : PICK(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const floats odd = along ? second : PICK(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  split_pairs(&even, &odd, hi, lo, special);
}

INLINE bool any_lane(const words *special) {
  uint32_t any = 0;
  for (int i = 0; i < 16; i++) any |= (*special)[i];
  return any;
}

INLINE bool pack_singles(bool along, int64_t rows, int64_t distance, const float *src, int64_t ld, char *hi, char *lo) {
  words special = {0};
  for (int64_t i = 0; i < rows; i++) {
    words h, l;
    single_row(along, i, src, ld, &h, &l, &special);
    store(&h, hi + i * distance);
    store(&l, lo + i * distance);
  }
  return any_lane(&special);
}

/* The other form than the one that src gives row by row. */
INLINE bool pack_singles_transposed(bool along, int64_t rows, int64_t distance, const float *src, int64_t ld, char *hi, char *lo) {
  words h[16], l[16], special = {0};
  for (int64_t i = 0; i < 16; i++) single_row(along, i, src, ld, &h[i], &l[i], &special);
  transpose(h);
  transpose(l);
  for (int64_t i = 0; i < rows; i++) {
    store(&h[i], hi + i * distance);
    store(&l[i], lo + i * distance);
  }
  return any_lane(&special);
}

static bool NAME(pack_singles)(const tc_split_form *form, const float *src, int64_t ld, void *hi, void *lo) {
  if (form->pairs)
    return form->along ? pack_singles(true, 16, 64, src, ld, hi, lo) : pack_singles_transposed(false, 16, 64, src, ld, hi, lo);
  return form->along ? pack_singles_transposed(true, form->rows, form->lda, src, ld, hi, lo)
                     : pack_singles(false, form->rows, form->lda, src, ld, hi, lo);
}

const tc_split_kernels NAME(tc_split_kernels) = {
    .name = "tc_gemm_bf16x2bf16x2_f32_32x32_" TEXT(ISA),
    .begin = NAME(split_begin),
    .end = NAME(split_end),
    .gemm = NAME(split_gemm),
    .add = NAME(split_add),
    .pack = NAME(pack_singles),
    .pack_halves = NAME(split_pack),
};
