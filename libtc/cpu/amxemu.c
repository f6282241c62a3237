/* SPDX-License-Identifier: MIT */
#include "cpu/amxemu.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "f16.h"

/* ---- Tiles ---- */

enum { TILES = 8, ROWS_MAX = 16, ROW_BYTES_MAX = 64, LANES_MAX = ROW_BYTES_MAX / 4 };

typedef struct tile {
  int rows, row_bytes; /* 0 and 0 if it isn't configured */
  uint8_t data[ROWS_MAX][ROW_BYTES_MAX];
} tile;

static _Thread_local tile tiles[TILES];

static void fault_unless(bool legal) {
  if (!legal) __builtin_trap();
}

static tile *configured(int t) {
  fault_unless(tiles[t].rows > 0);
  return &tiles[t];
}

void tc_amxemu_config(const void *config) {
  const uint8_t *byte = config;
  fault_unless(byte[0] == 1 && byte[1] == 0); /* palette, and the row to restart from */
  for (int i = 2; i < 16; i++) fault_unless(byte[i] == 0);
  for (int t = 0; t < 16; t++) {
    uint16_t row_bytes;
    memcpy(&row_bytes, byte + 16 + 2 * t, sizeof row_bytes);
    const int rows = byte[48 + t];
    fault_unless(t < TILES ? rows <= ROWS_MAX && row_bytes <= ROW_BYTES_MAX : rows == 0 && row_bytes == 0);
    fault_unless((rows == 0) == (row_bytes == 0));
    if (t < TILES) tiles[t] = (tile){.rows = rows, .row_bytes = row_bytes};
  }
}

void tc_amxemu_release(void) { memset(tiles, 0, sizeof tiles); }

void tc_amxemu_zero(int t) { memset(configured(t)->data, 0, sizeof tiles[t].data); }

/* Rows and bytes beyond the tile's size become 0. */
void tc_amxemu_load(int t, const void *base, int64_t stride) {
  tile *dst = configured(t);
  memset(dst->data, 0, sizeof dst->data);
  for (int i = 0; i < dst->rows; i++) memcpy(dst->data[i], (const char *)base + i * stride, (size_t)dst->row_bytes);
}

void tc_amxemu_store(int t, void *base, int64_t stride) {
  const tile *src = configured(t);
  for (int i = 0; i < src->rows; i++) memcpy((char *)base + i * stride, src->data[i], (size_t)src->row_bytes);
}

/* ---- TDPBF16PS ---- */

/* A subnormal value is read as 0 of its sign (DAZ). */
static inline float no_subnormal(float value) { return fabsf(value) < 0x1p-126f ? copysignf(0, value) : value; }

/* To nearest even; what is below the smallest normal number when rounded to 24 bits becomes 0 (FTZ). */
static inline float rounded(double value) { return fabs(value) < 0x1p-126 - 0x1p-151 ? copysignf(0, (float)value) : (float)value; }

/* A fused multiply-add of bf16 values to an fp32 sum. The product has 16 bits and the sum 24, so where fp64 can't hold their sum, they
 * lie so far apart that rounding to fp64 first changes nothing. */
static inline float multiply_add(float a, float b, float sum) { return rounded((double)a * (double)b + (double)sum); }

/* The bf16 in the lower or the upper half of a word, widened. */
static inline float bf16(uint32_t word, int half) {
  const uint32_t bits = half ? word & 0xffff0000u : word << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return no_subnormal(value);
}

/* sums[h][n] += a_h * b_h[n], for the halves h of a word of A and of a row of B. */
static inline void add_products(uint32_t a, const uint32_t *b, float sums[2][LANES_MAX]) {
  for (int h = 0; h < 2; h++) {
    const float left = bf16(a, h);
    for (int n = 0; n < LANES_MAX; n++) sums[h][n] = multiply_add(left, bf16(b[n], h), sums[h][n]);
  }
}

/* For each element: the sums over the even and over the odd terms, each in rising order, their sum, and this added to C. All lanes are
 * computed, since those beyond the size are 0. */
void tc_amxemu_product(int c, int a, int b) {
  tile *sum = configured(c);
  const tile *left = configured(a), *right = configured(b);
  fault_unless(c != a && c != b && a != b);
  fault_unless(left->rows == sum->rows && right->row_bytes == sum->row_bytes && left->row_bytes == right->rows * 4);
  fault_unless(left->row_bytes % 4 == 0 && right->row_bytes % 4 == 0);
  for (int m = 0; m < sum->rows; m++) {
    float sums[2][LANES_MAX] = {{0}}, before[LANES_MAX];
    uint32_t words[LANES_MAX], pairs[LANES_MAX];
    memcpy(words, left->data[m], sizeof words);
    memcpy(before, sum->data[m], sizeof before);
    for (int k = 0; k < right->rows; k++) {
      memcpy(pairs, right->data[k], sizeof pairs);
      add_products(words[k], pairs, sums);
    }
    for (int n = 0; n < LANES_MAX; n++) {
      const float both = rounded((double)sums[0][n] + (double)sums[1][n]);
      before[n] = rounded((double)no_subnormal(before[n]) + (double)both);
    }
    memcpy(sum->data[m], before, sizeof before);
  }
}

/* ---- Vectors ---- */

static void widen(float *to, const uint16_t *from) {
  for (int i = 0; i < LANES_MAX; i++) to[i] = f16_to_f32(from[i]);
}

static bool any_nan(const float *x) {
  for (int i = 0; i < LANES_MAX; i++) {
    if (isnan(x[i])) return true;
  }
  return false;
}

/* ---- The kernels ---- */

#define ISA amxemu
#define TILE_CONFIG(config) tc_amxemu_config(config)
#define TILE_RELEASE() tc_amxemu_release()
#define TILE_ZERO(t) tc_amxemu_zero(t)
#define TILE_LOAD(t, base, stride) tc_amxemu_load(t, base, stride)
#define TILE_STORE(t, base, stride) tc_amxemu_store(t, base, stride)
#define TILE_PRODUCT(c, a, b) tc_amxemu_product(c, a, b)

#define WIDEN(to, from) widen((float *)(to), (const uint16_t *)(from))
#define ANY_NAN(x) any_nan((const float *)(x))

#include "cpu/split_tmpl.h"
