/* SPDX-License-Identifier: MIT
 *
 * Sums of a block by the vector kernels, after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM TOMS
 * 34(3), 2008): packed panels of A (mr rows) and B (nr columns), of TC_KC terms, meet in a register tile.
 */
#include <string.h>

#include "cpu/block.h"
#include "cpu/integer.h"

/* Rows of packed operands lie an odd number of cache lines apart, so that they don't share cache sets. */
enum { LINE = 16, STAGING_LD = TC_KC + LINE };

typedef struct panel_memory {
  float *a, *b;   /* packed operands */
  float *staging; /* rows that wait to be transposed */
} panel_memory;

static int64_t staging_floats(const tc_cpu_kernels *kernels) { return max(kernels->mr, kernels->nr) * STAGING_LD; }

/* From one term to the next of a packed strip of n, zeros included, whose rows run along it. */
static int64_t row_distance(int64_t n) { return (ceil_div(n, LINE) | 1) * LINE; }

size_t tc_panels_bytes(const tc_cpu_kernels *kernels) {
  const int64_t floats = (row_distance(TC_TILE_ROWS_MAX) + row_distance(TC_TILE_COLUMNS_MAX)) * TC_KC + staging_floats(kernels);
  return (size_t)floats * sizeof(float);
}

static panel_memory carve(char *workspace) {
  panel_memory memory;
  memory.a = (float *)(void *)workspace;
  memory.b = memory.a + row_distance(TC_TILE_ROWS_MAX) * TC_KC;
  memory.staging = memory.b + row_distance(TC_TILE_COLUMNS_MAX) * TC_KC;
  return memory;
}

/* ---- Packing ---- */

/* The part of an operand that is packed at once: n rows (of A) or columns (of B) from first on, kn terms from k on. */
typedef struct strip {
  int64_t item, first, n, k, kn;
} strip;

/* A packed strip: term p of column x (or row x) is data[x / width * panel + x % width + p * ld]. Zeros follow up to a multiple of
 * width. */
typedef struct packed {
  const float *data;
  int64_t panel, ld;
} packed;

static void widen_row(const tc_cpu_kernels *kernels, const tc_source *source, int64_t item, int64_t r, int64_t first, int64_t n,
                      float *out) {
  uint16_t halves[TC_TILE_COLUMNS_MAX];
  source->row(source->self, item, r, first, n, halves);
  kernels->widen(n, halves, out);
}

/* Rows run along the strip: they are packed as they are. */
static packed pack_along(const tc_cpu_kernels *kernels, const tc_source *source, const strip *s, int64_t width, float *memory) {
  const int64_t padded = round_up(s->n, width), ld = row_distance(padded);
  for (int64_t p = 0; p < s->kn; p++) {
    widen_row(kernels, source, s->item, s->k + p, s->first, s->n, memory + p * ld);
    for (int64_t x = s->n; x < padded; x++) memory[p * ld + x] = 0;
  }
  return (packed){memory, width, ld};
}

typedef float four __attribute__((vector_size(16)));
typedef float unaligned_four __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (__typeof__((a) < (a))){i, j, k, l})
#endif

/* dst[p][r] = src[r][p], for r and p < 4; rows of src are STAGING_LD apart, those of dst ld. */
static inline void transpose_4x4(const float *src, float *dst, int64_t ld) {
  const four r0 = *(const unaligned_four *)src, r1 = *(const unaligned_four *)(src + STAGING_LD);
  const four r2 = *(const unaligned_four *)(src + 2 * STAGING_LD), r3 = *(const unaligned_four *)(src + 3 * STAGING_LD);
  const four low01 = PICK(r0, r1, 0, 4, 1, 5), high01 = PICK(r0, r1, 2, 6, 3, 7);
  const four low23 = PICK(r2, r3, 0, 4, 1, 5), high23 = PICK(r2, r3, 2, 6, 3, 7);
  *(unaligned_four *)dst = PICK(low01, low23, 0, 1, 4, 5);
  *(unaligned_four *)(dst + ld) = PICK(low01, low23, 2, 3, 6, 7);
  *(unaligned_four *)(dst + 2 * ld) = PICK(high01, high23, 0, 1, 4, 5);
  *(unaligned_four *)(dst + 3 * ld) = PICK(high01, high23, 2, 3, 6, 7);
}

/* panel[p][r] = staging[r][p], for r < width and p < kn. */
static void transpose(const float *staging, int64_t width, int64_t kn, float *panel) {
  const int64_t whole_r = width / 4 * 4, whole_p = kn / 4 * 4;
  for (int64_t p = 0; p < whole_p; p += 4) {
    for (int64_t r = 0; r < whole_r; r += 4) transpose_4x4(staging + r * STAGING_LD + p, panel + p * width + r, width);
  }
  for (int64_t p = 0; p < kn; p++) {
    for (int64_t r = p < whole_p ? whole_r : 0; r < width; r++) panel[p * width + r] = staging[r * STAGING_LD + p];
  }
}

/* Rows run along k: width of them are read, then transposed into a panel. */
static packed pack_across(const tc_cpu_kernels *kernels, const tc_source *source, const strip *s, int64_t width, float *memory,
                          float *staging) {
  for (int64_t x = 0; x < s->n; x += width) {
    const int64_t rows = min(width, s->n - x);
    for (int64_t r = 0; r < rows; r++) widen_row(kernels, source, s->item, s->first + x + r, s->k, s->kn, staging + r * STAGING_LD);
    memset(staging + rows * STAGING_LD, 0, (size_t)((width - rows) * STAGING_LD) * sizeof(float));
    transpose(staging, width, s->kn, memory + x * s->kn);
  }
  return (packed){memory, width * s->kn, width};
}

static packed pack(const tc_cpu_kernels *kernels, const tc_source *source, const strip *s, int64_t width, float *memory,
                   float *staging) {
  return source->rows_are_k ? pack_along(kernels, source, s, width, memory)
                            : pack_across(kernels, source, s, width, memory, staging);
}

/* ---- Sums ---- */

tc_sums tc_panels_sum(const tc_cpu_kernels *kernels, const tc_product *product, const tc_block *block, int64_t k, int64_t k_end,
                      double *sums, char *workspace) {
  const panel_memory memory = carve(workspace);
  const int64_t mr = kernels->mr, nr = kernels->nr, ld = round_up(block->n, nr);
  memset(sums, 0, (size_t)(block->m * ld) * sizeof(double));
  for (; k < k_end; k += TC_KC) {
    const int64_t kn = min(TC_KC, k_end - k);
    const packed a = pack(kernels, &product->a, &(strip){block->item, block->i, block->m, k, kn}, mr, memory.a, memory.staging);
    const packed b = pack(kernels, &product->b, &(strip){block->item, block->j, block->n, k, kn}, nr, memory.b, memory.staging);
    for (int64_t j = 0; j < block->n; j += nr) {
      for (int64_t i = 0; i < block->m; i += mr) {
        kernels->gemm(min(mr, block->m - i), kn, a.data + i / mr * a.panel, a.ld, b.data + j / nr * b.panel, b.ld,
                      sums + i * ld + j, ld);
      }
    }
  }
  return (tc_sums){.wide = sums, .ld = ld};
}
