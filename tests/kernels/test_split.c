/* SPDX-License-Identifier: MIT
 *
 * The tile kernels of one ISA (split.h): packing against every fp16 value and every form, the product to the bit against TDPBF16PS as
 * its definition says it, with operands flush against guard pages.
 */
#include "common/check.h"
#include "common/operand.h"
#include "cpu/kernels.h"
#include "cpu/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tc_split_kernels *kernels;

/* The tile kernels that TC_CPU_ISA names. */
static const tc_split_kernels *find_kernels(void) {
  const char *isa = getenv("TC_CPU_ISA");
  if (!isa) isa = "amxemu";
  for (int i = 0; i < tc_cpu_isa_count; i++) {
    const tc_cpu_isa *entry = &tc_cpu_isas[i];
    if (strcmp(entry->name, isa) != 0) continue;
    if (!entry->supported() || (entry->refusal && entry->refusal())) skip("this machine can't do %s", isa);
    return entry->split;
  }
  skip("the compiler of this build can't do %s", isa);
}

/* ---- bf16 ---- */

static float bf16_value(uint16_t bf16) {
  uint32_t bits = (uint32_t)bf16 << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/* The nearest bf16 value, ties to even; x is a normal number or 0. */
static float bf16_nearest(float x) {
  if (x == 0) return x;
  double unit = ldexp(1, ilogb(x) - 7);
  return (float)(nearbyint((double)x / unit) * unit);
}

static bool same_bits(float a, float b) { return memcmp(&a, &b, sizeof(a)) == 0; }

/* ---- Packing ---- */

enum { TERMS = TC_SPLIT_TERMS, COLUMNS = TC_SPLIT_COLUMNS };

/* The bf16 of term p of row or column x in a tile. */
static float tile_value(const uint8_t *tile, tc_split_form form, int64_t x, int64_t p) {
  uint16_t bf16;
  memcpy(&bf16, form.pairs ? tile + p / 2 * 64 + x * 4 + p % 2 * 2 : tile + x * form.lda + p * 2, sizeof(bf16));
  return bf16_value(bf16);
}

/* Packs 16 by 32 values, all between guard pages, and checks the tiles and the report. */
static void check_pack(tc_split_form form, const float values[16][32], int64_t gap) {
  int64_t ld = (form.along ? 16 : TERMS) + gap, src_rows = form.along ? TERMS : form.pairs ? 16 : form.rows;
  int64_t rows = form.pairs ? 16 : form.rows, lda = form.pairs ? 64 : form.lda, bytes = (rows - 1) * lda + 64;
  guarded src = guarded_open((size_t)((src_rows - 1) * ld + ld - gap) * sizeof(float), gap % 2 ? AT_START : AT_END);
  guarded hi = guarded_open((size_t)bytes, AT_END), lo = guarded_open((size_t)bytes, AT_END);
  float *at = (float *)(void *)src.data;
  bool special = false;
  memset(hi.data, 0xee, hi.bytes);
  memset(lo.data, 0xee, lo.bytes);
  for (int64_t i = 0; i < src_rows * ld - gap; i++) at[i] = NAN; /* in the gaps, which aren't to be read */
  for (int64_t x = 0; x < (form.along || form.pairs ? 16 : rows); x++) {
    for (int64_t p = 0; p < TERMS; p++) {
      at[form.along ? p * ld + x : x * ld + p] = values[x][p];
      special |= !isfinite(values[x][p]);
    }
  }
  note("along %d, pairs %d, rows %lld, gap %lld, first %a", form.along, form.pairs, (long long)form.rows, (long long)gap,
       (double)values[0][0]);
  CHECK(kernels->pack(&form, at, ld, hi.data, lo.data) == special);
  bool same = true;
  for (int64_t x = 0; x < rows; x++) {
    for (int64_t p = 0; p < TERMS; p++) {
      float value = isfinite(values[x][p]) ? values[x][p] : 0, high = bf16_nearest(value);
      same &= same_bits(tile_value(hi.data, form, x, p), high);
      same &= tile_value(lo.data, form, x, p) == value - high;
    }
    for (int64_t i = x * lda + 64; i < (x + 1) * lda && x + 1 < rows; i++) same &= hi.data[i] == 0xee && lo.data[i] == 0xee;
  }
  CHECK(same);
  guarded_close(&src);
  guarded_close(&hi);
  guarded_close(&lo);
}

/* The same values as fp16: hi is a nearest bf16 value, lo the rest. */
static void check_pack_halves(tc_split_form form, const uint16_t values[16][32], int64_t gap) {
  int64_t ld = (form.along ? 16 : TERMS) + gap, src_rows = form.along ? TERMS : form.pairs ? 16 : form.rows;
  int64_t rows = form.pairs ? 16 : form.rows, lda = form.pairs ? 64 : form.lda, bytes = (rows - 1) * lda + 64;
  guarded src = guarded_open((size_t)(src_rows * ld - gap) * sizeof(uint16_t), gap % 2 ? AT_START : AT_END);
  guarded hi = guarded_open((size_t)bytes, AT_END), lo = guarded_open((size_t)bytes, AT_END);
  uint16_t *from = (uint16_t *)(void *)src.data;
  const uint16_t *row[TERMS];
  bool special = false, same = true;
  for (int64_t i = 0; i < src_rows * ld - gap; i++) from[i] = 0x7e00;
  for (int64_t i = 0; i < src_rows; i++) row[i] = from + i * ld;
  for (int64_t x = 0; x < (form.along || form.pairs ? 16 : rows); x++) {
    for (int64_t p = 0; p < TERMS; p++) {
      from[form.along ? p * ld + x : x * ld + p] = values[x][p];
      special |= !isfinite(half_value(values[x][p]));
    }
  }
  note("halves along %d, pairs %d, rows %lld, gap %lld", form.along, form.pairs, (long long)form.rows, (long long)gap);
  CHECK(kernels->pack_halves(&form, row, 0, hi.data, lo.data) == special);
  for (int64_t x = 0; x < rows; x++) {
    for (int64_t p = 0; p < TERMS; p++) {
      double value = half_value(values[x][p]), high = (double)tile_value(hi.data, form, x, p);
      if (!isfinite(value)) value = 0;
      same &= high + (double)tile_value(lo.data, form, x, p) == value;
      same &= fabs(value - high) <= (value == 0 ? 0 : ldexp(0.5, ilogb(value) - 7));
    }
  }
  CHECK(same);
  guarded_close(&src);
  guarded_close(&hi);
  guarded_close(&lo);
}

static void pack_halves(void) {
  for (uint32_t first = 0; first < 0x10000; first += 16 * TERMS) {
    uint16_t values[16][32];
    for (uint32_t i = 0; i < 16 * TERMS; i++) values[i / TERMS][i % TERMS] = (uint16_t)(first + i);
    for (int form = 0; form < 4; form++)
      check_pack_halves((tc_split_form){form & 1, form & 2, 1 + first / 512 % 16, 64}, values, form);
  }
}

static void pack_every_value(void) {
  for (uint32_t first = 0; first < 0x10000; first += 16 * TERMS) {
    float values[16][32];
    for (uint32_t i = 0; i < 16 * TERMS; i++) values[i / TERMS][i % TERMS] = (float)half_value((uint16_t)(first + i));
    for (int form = 0; form < 4; form++) check_pack((tc_split_form){form & 1, form & 2, 16, 64}, values, form);
  }
}

static void pack_forms(void) {
  rng r = {test_seed()};
  for (int form = 0; form < 4; form++) {
    for (int64_t rows = 1; rows <= 16; rows++) {
      float values[16][32];
      for (int64_t i = 0; i < 16 * TERMS; i++) values[i / TERMS][i % TERMS] = (float)half_value(half_round(rng_normal(&r)));
      if (rows < 16) values[rows][3] = NAN;
      check_pack((tc_split_form){form & 1, form & 2, rows, 64 * (1 + rows % 3)}, values, rows % 5);
    }
  }
}

/* One infinity or NaN is reported wherever it stands, and becomes 0. */
static void pack_reports(void) {
  static const float special[] = {INFINITY, -INFINITY, NAN};
  for (int64_t at = 0; at < 16 * TERMS; at++) {
    float values[16][32] = {{0}};
    values[at / TERMS][at % TERMS] = special[at % 3];
    for (int form = 0; form < 4; form++) check_pack((tc_split_form){form & 1, form & 2, 16, 64}, values, 0);
  }
}

/* Rows that overlap: each is written after the one before it. */
static void pack_overlapping(void) {
  float values[16][32];
  uint8_t hi[15 * 8 + 64], lo[15 * 8 + 64];
  const tc_split_form form = {.rows = 16, .lda = 8};
  for (int64_t i = 0; i < 16 * TERMS; i++) values[i / TERMS][i % TERMS] = (float)(300 + i);
  kernels->pack(&form, values[0], TERMS, hi, lo);
  for (int64_t x = 0; x < 16; x++) {
    for (int64_t p = 0; p < (x == 15 ? TERMS : 4); p++)
      CHECK(tile_value(hi, form, x, p) + tile_value(lo, form, x, p) == values[x][p]);
  }
}

/* ---- Products ---- */

/* Operands as bf16 in memory of any layout: [step][hi, lo][tile], rows of A and of B with gaps. */
typedef struct operands {
  tc_split_block block;
  tc_split_layout layout;
  tc_split_step step[TC_SPLIT_STEPS_MAX];
  guarded a, b, c;
} operands;

static uint8_t *a_tile(const operands *o, int64_t step, int lo, int64_t tile) {
  return (uint8_t *)(uintptr_t)o->step[step].a + lo * o->layout.a_lo + tile * o->layout.a_next;
}

static uint8_t *b_tile(const operands *o, int64_t step, int lo, int64_t tile) {
  return (uint8_t *)(uintptr_t)o->step[step].b + lo * o->layout.b_lo + tile * o->layout.b_next;
}

static void fill(uint8_t *tile, int64_t rows, int64_t ld, int lo, rng *r) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t p = 0; p < TERMS; p++) {
      float x = (float)half_value(half_round(rng_normal(r))), high = bf16_nearest(x), part = lo ? x - high : high;
      uint32_t bits;
      memcpy(&bits, &part, sizeof(bits));
      uint16_t bf16 = (uint16_t)(bits >> 16);
      memcpy(tile + i * ld + p * 2, &bf16, sizeof(bf16));
    }
  }
}

/* Steps stand in reverse order, so that only their addresses say where they are. */
static void open_operands(operands *o, rng *r) {
  tc_split_block *b = &o->block;
  int64_t lda = 64 * rng_between(r, 1, 3), ldb = 64 * rng_between(r, 1, 2);
  int64_t a_tile_bytes = (b->rows - 1) * lda + 64, b_tile_bytes = 15 * ldb + 64;
  int64_t a_step = 2 * b->a_tiles * a_tile_bytes, b_step = 2 * b->b_tiles * b_tile_bytes;
  o->layout = (tc_split_layout){lda, b->a_tiles * a_tile_bytes, a_tile_bytes, ldb, b->b_tiles * b_tile_bytes, b_tile_bytes};
  placement place = rng_one_in(r, 2) ? AT_END : AT_START;
  o->a = guarded_open((size_t)(b->steps * a_step), place);
  o->b = guarded_open((size_t)(b->steps * b_step), place);
  b->ldc = b->b_tiles * COLUMNS + rng_between(r, 0, 3);
  b->c_next = b->rows * b->ldc + rng_between(r, 0, 3) * 5;
  o->c =
      guarded_open((size_t)((b->a_tiles - 1) * b->c_next + (b->rows - 1) * b->ldc + b->b_tiles * COLUMNS) * sizeof(float), place);
  memset(o->a.data, 0xff, o->a.bytes); /* NaN in the gaps */
  memset(o->b.data, 0xff, o->b.bytes);
  memset(o->c.data, 0xff, o->c.bytes);
  for (int64_t s = 0; s < b->steps; s++) {
    o->step[s] = (tc_split_step){o->a.data + (b->steps - 1 - s) * a_step, o->b.data + (b->steps - 1 - s) * b_step};
    for (int lo = 0; lo < 2; lo++) {
      for (int64_t t = 0; t < b->a_tiles; t++) fill(a_tile(o, s, lo, t), b->rows, lda, lo, r);
      for (int64_t t = 0; t < b->b_tiles; t++) fill(b_tile(o, s, lo, t), 16, ldb, lo, r);
    }
  }
  b->layout = &o->layout;
  b->step = o->step;
  b->c = (float *)(void *)o->c.data;
}

static void close_operands(operands *o) {
  guarded_close(&o->a);
  guarded_close(&o->b);
  guarded_close(&o->c);
}

/* What TDPBF16PS adds to an element: the sums over even and over odd terms with fused multiply-adds, and these two's sum. */
static float products(const uint8_t *a_row, const uint8_t *b, int64_t ldb, int64_t column) {
  float sums[2] = {0, 0};
  for (int64_t q = 0; q < TERMS / 2; q++) {
    for (int64_t h = 0; h < 2; h++) {
      uint16_t left, right;
      memcpy(&left, a_row + q * 4 + h * 2, sizeof(left));
      memcpy(&right, b + q * ldb + column * 4 + h * 2, sizeof(right));
      sums[h] = fmaf(bf16_value(left), bf16_value(right), sums[h]);
    }
  }
  return sums[0] + sums[1];
}

static float reference(const operands *o, int64_t i, int64_t j) {
  static const int parts[][2] = {
      {1, 1}, {0, 1}, {0, 0}, {1, 0}}; /* lo of A, lo of B: in this order, the first one in strict mode only */
  float sum = 0;
  for (int64_t s = 0; s < o->block.steps; s++) {
    for (int part = o->block.strict ? 0 : 1; part < 4; part++) {
      const uint8_t *a = a_tile(o, s, parts[part][0], i / o->block.rows) + i % o->block.rows * o->layout.lda;
      sum += products(a, b_tile(o, s, parts[part][1], j / COLUMNS), o->layout.ldb, j % COLUMNS);
    }
  }
  return sum;
}

typedef struct slices {
  int64_t next, count;
  bool right;
} slices;

static void count_slice(void *self, int64_t slice, int64_t count) {
  slices *s = self;
  s->right &= slice == s->next++ && count == s->count;
}

static void check_product(int64_t rows, int64_t a_tiles, int64_t b_tiles, int64_t steps, bool strict, rng *r) {
  operands o = {.block = {.a_tiles = a_tiles, .b_tiles = b_tiles, .rows = rows, .strict = strict, .steps = steps}};
  slices seen = {0, steps, true};
  const tc_split_side side = {count_slice, &seen};
  note("%lld rows, %lld by %lld tiles, %lld steps, strict %d", (long long)rows, (long long)a_tiles, (long long)b_tiles,
       (long long)steps, strict);
  open_operands(&o, r);
  kernels->begin(rows);
  kernels->gemm(&o.block, steps % 2 ? &side : NULL);
  kernels->end();
  bool same = true;
  const uint32_t untouched = ~0u;
  int64_t written = 0, found = 0;
  for (int64_t i = 0; i < a_tiles * rows; i++) {
    const float *row = o.block.c + i / rows * o.block.c_next + i % rows * o.block.ldc;
    for (int64_t j = 0; j < b_tiles * COLUMNS; j++, written++) same &= same_bits(row[j], reference(&o, i, j));
  }
  for (size_t i = 0; i < o.c.bytes / sizeof(float); i++) found += memcmp(&o.block.c[i], &untouched, sizeof(untouched)) != 0;
  same &= found == written;
  CHECK(same);
  CHECK(seen.right && seen.next == (steps % 2 ? steps : 0));
  close_operands(&o);
}

static void product(void) {
  static const int64_t steps[] = {1, 2, 5, TC_SPLIT_STEPS_MAX};
  rng r = {test_seed()};
  for (int64_t rows = 1; rows <= TC_SPLIT_ROWS_MAX; rows++) {
    for (int shape = 0; shape < 8; shape++) {
      for (size_t s = 0; s < COUNT(steps); s++) check_product(rows, 1 + (shape & 1), 1 + (shape >> 1 & 1), steps[s], shape & 4, &r);
    }
  }
}

static void limits(void) {
  CHECK(TC_SPLIT_KC <= 512); /* design rule 1 */
  CHECK_INT(TC_SPLIT_KC % TC_SPLIT_TERMS, 0);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"pack_halves", pack_halves},
                               {"pack_every_value", pack_every_value},
                               {"pack_forms", pack_forms},
                               {"pack_reports", pack_reports},
                               {"pack_overlapping", pack_overlapping},
                               {"product", product},
                               {"limits", limits}};
  kernels = find_kernels();
  return run_tests("split", tests, COUNT(tests), argc, argv);
}
