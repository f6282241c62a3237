/* SPDX-License-Identifier: MIT
 *
 * Sums of a block by tile products. Both operands are split into hi and lo and packed in panels, pairs of tiles: A's panels have as many
 * rows as M divides well into, since the time of a tile product grows with its rows (but not with its columns or terms); B's have 32
 * columns. A panel's steps follow each other, each with the hi tiles and then the lo tiles, so that a register block reads two streams.
 * Terms, rows and columns beyond the operand are zeros in our own memory.
 */
#include "cpu/split.h"

#include <math.h>
#include <string.h>

#include "cpu/block.h"
#include "cpu/integer.h"

enum { ROW_BYTES = 64 /* of a tile */, LINE = 16 /* floats of a cache line */ };

/* Most rows or columns that are staged at once while rows run along them, and distances between staged rows. */
enum { WIDE = 256, WIDE_LD = WIDE + 32, LONG_LD = TC_SPLIT_KC + 16, STAGING_FLOATS = TC_SPLIT_TERMS * WIDE_LD };

_Static_assert(TC_SPLIT_ROWS_MAX *LONG_LD <= STAGING_FLOATS, "either way to stage fits");

/* A task's own memory, in bytes from its start: what it stages, a register block, the packed operands of a chunk and where
 * they have infinities or NaNs, the sums of the vector kernels where there are any, and these kernels' workspace. */
enum {
  PANELS_MAX = TC_SPLIT_BLOCK_COLUMNS_MAX / 2, /* of at least two rows or columns */
  BLOCK_FLOATS = 2 * TC_SPLIT_ROWS_MAX * 2 * TC_SPLIT_COLUMNS,
  AT_C = STAGING_FLOATS * 4,
  AT_A = AT_C + BLOCK_FLOATS * 4,
  AT_B = AT_A + (TC_TILE_ROWS_MAX + 2 * TC_SPLIT_ROWS_MAX) * TC_SPLIT_KC * 4,
  AT_SPECIAL = AT_B + (TC_SPLIT_BLOCK_COLUMNS_MAX + 2 * TC_SPLIT_COLUMNS) * TC_SPLIT_KC * 4,
  AT_PATCH = AT_SPECIAL + 2 * PANELS_MAX,
  AT_PANELS = AT_PATCH + TC_TILE_ELEMENTS * 8,
};

typedef struct split_memory {
  float *staging, *c;
  char *a, *b;
  uint8_t *a_special, *b_special;
  double *patch;
  char *panels;
} split_memory;

static split_memory carve(char *workspace) {
  uint8_t *special = (uint8_t *)workspace + AT_SPECIAL;
  return (split_memory){.staging = (float *)(void *)workspace,
                        .c = (float *)(void *)(workspace + AT_C),
                        .a = workspace + AT_A,
                        .b = workspace + AT_B,
                        .a_special = special,
                        .b_special = special + PANELS_MAX,
                        .patch = (double *)(void *)(workspace + AT_PATCH),
                        .panels = workspace + AT_PANELS};
}

size_t tc_split_bytes(const tc_cpu_kernels *kernels) { return AT_PANELS + tc_panels_bytes(kernels); }

/* ---- The plan ---- */

tc_split_plan tc_split_plan_of(const tc_cpu *cpu, const tc_product *product, int64_t m) {
  return (tc_split_plan){
      .kernels = cpu->kernels,
      .split = cpu->split,
      .product = product,
      .kc = product->K ? round_up(even_part(product->K, TC_SPLIT_KC), TC_SPLIT_TERMS) : TC_SPLIT_KC,
      .a = {.source = &product->a, .extent = product->M, .unit = even_part(m, TC_SPLIT_ROWS_MAX)},
      .b = {.source = &product->b, .extent = product->N, .unit = TC_SPLIT_COLUMNS, .pairs = true},
  };
}

static int64_t panel_width(const tc_split_operand *operand) { return 2 * operand->unit; }

static int64_t panel_count(const tc_split_operand *operand, int64_t n) { return ceil_div(n, panel_width(operand)); }

static int64_t step_bytes(const tc_split_operand *operand) { return 2 * panel_width(operand) * ROW_BYTES; }

/* ---- Packing ---- */

/* The part of an operand that is packed at once: n rows (of A) or columns (of B) from first on, kn terms of one chunk from k on. */
typedef struct strip {
  int64_t item, first, n, k, kn;
} strip;

/* Packs tile x (in rows or columns from the strip's first on) of a step from what is staged. */
static void pack_tile(const tc_split_plan *plan, const tc_split_operand *operand, int64_t steps, int64_t x, int64_t step,
                      const float *staged, int64_t ld, char *dst, uint8_t *special) {
  const tc_split_form form = {operand->source->rows_are_k, operand->pairs, operand->unit, ROW_BYTES};
  const int64_t panel = x / panel_width(operand), half = panel_width(operand) * ROW_BYTES;
  char *hi = dst + (panel * steps + step) * step_bytes(operand) + x % panel_width(operand) * ROW_BYTES;
  special[panel] |= plan->split->pack(&form, staged, ld, hi, hi + half);
}

static void zero(float *out, int64_t n) { memset(out, 0, (size_t)n * sizeof(float)); }

/* Rows run along the strip: those of a step are staged. */
static void pack_along(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *dst, uint8_t *special,
                       float *staging) {
  const tc_source *source = operand->source;
  const int64_t steps = ceil_div(s->kn, TC_SPLIT_TERMS), most = WIDE / panel_width(operand) * panel_width(operand);
  for (int64_t first = 0; first < s->n; first += most) {
    const int64_t n = min(most, s->n - first);
    for (int64_t step = 0; step < steps; step++) {
      for (int64_t p = 0; p < TC_SPLIT_TERMS; p++) {
        const int64_t term = step * TC_SPLIT_TERMS + p, filled = term < s->kn ? n : 0;
        float *row = staging + p * WIDE_LD;
        if (filled) source->row(source->self, s->item, s->k + term, s->first + first, n, row);
        zero(row + filled, WIDE_LD - filled);
      }
      for (int64_t x = 0; x < n; x += operand->unit)
        pack_tile(plan, operand, steps, first + x, step, staging + x, WIDE_LD, dst, special);
    }
  }
}

/* Rows run along the terms: those of a tile are staged, with all the terms of the chunk. */
static void pack_across(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *dst, uint8_t *special,
                        float *staging) {
  const tc_source *source = operand->source;
  const int64_t steps = ceil_div(s->kn, TC_SPLIT_TERMS);
  for (int64_t x = 0; x < s->n; x += operand->unit) {
    const int64_t rows = min(operand->unit, s->n - x);
    for (int64_t r = 0; r < rows; r++) {
      float *row = staging + r * LONG_LD;
      source->row(source->self, s->item, s->first + x + r, s->k, s->kn, row);
      zero(row + s->kn, steps * TC_SPLIT_TERMS - s->kn);
    }
    zero(staging + rows * LONG_LD, (TC_SPLIT_ROWS_MAX - rows) * LONG_LD);
    for (int64_t step = 0; step < steps; step++)
      pack_tile(plan, operand, steps, x, step, staging + step * TC_SPLIT_TERMS, LONG_LD, dst, special);
  }
}

/* Strip by strip: [panel][step] to dst, and for each panel whether it has infinities or NaNs. */
static void pack(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *dst, uint8_t *special,
                 float *staging) {
  memset(special, 0, (size_t)panel_count(operand, s->n));
  (operand->source->rows_are_k ? pack_along : pack_across)(plan, operand, s, dst, special, staging);
}

/* ---- Packing ahead ---- */

enum { AHEAD_PANELS = 8 }; /* of a task */

static int64_t chunk_count(const tc_split_plan *plan) { return ceil_div(plan->product->K, plan->kc); }

size_t tc_split_ahead_bytes(const tc_split_plan *plan, const tc_split_operand *operand) {
  const int64_t panels = panel_count(operand, operand->extent), steps = ceil_div(plan->product->K, TC_SPLIT_TERMS);
  return (size_t)(panels * steps * step_bytes(operand) + round_up(panels * chunk_count(plan), ROW_BYTES));
}

void tc_split_ahead_place(const tc_split_plan *plan, tc_split_operand *operand, int64_t items, char *memory) {
  const int64_t panels = panel_count(operand, operand->extent), steps = ceil_div(plan->product->K, TC_SPLIT_TERMS);
  operand->ahead = memory;
  operand->special = (uint8_t *)memory + items * panels * steps * step_bytes(operand);
}

/* Where a panel that was packed ahead lies, and its byte in special. */
static char *ahead_panel(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, uint8_t **special) {
  const int64_t panels = panel_count(operand, operand->extent), steps = ceil_div(plan->product->K, TC_SPLIT_TERMS);
  const int64_t item = s->item - plan->first_item, panel = s->first / panel_width(operand);
  *special = operand->special + (item * chunk_count(plan) + s->k / plan->kc) * panels + panel;
  const int64_t before = s->k / TC_SPLIT_TERMS * panels + panel * ceil_div(s->kn, TC_SPLIT_TERMS);
  return operand->ahead + (item * panels * steps + before) * step_bytes(operand);
}

static int64_t ahead_strips(const tc_split_operand *operand) {
  return ceil_div(panel_count(operand, operand->extent), AHEAD_PANELS);
}

int64_t tc_split_ahead_tasks(const tc_split_plan *plan, const tc_split_operand *operand) {
  return ahead_strips(operand) * chunk_count(plan);
}

void tc_split_ahead_task(const tc_split_plan *plan, const tc_split_operand *operand, int64_t task, char *workspace) {
  const int64_t strips = ahead_strips(operand), chunks = chunk_count(plan), width = AHEAD_PANELS * panel_width(operand);
  const int64_t first = task % strips * width, k = task / strips % chunks * plan->kc;
  const strip s = {plan->first_item + task / (strips * chunks), first, min(width, operand->extent - first), k,
                   min(plan->kc, plan->product->K - k)};
  uint8_t *special;
  char *dst = ahead_panel(plan, operand, &s, &special);
  pack(plan, operand, &s, dst, special, carve(workspace).staging);
}

/* The strip's panels, packed ahead or now. */
static const char *panels_of(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *memory,
                             uint8_t *memory_special, float *staging, const uint8_t **special) {
  if (operand->ahead) {
    uint8_t *found;
    const char *panels = ahead_panel(plan, operand, s, &found);
    *special = found;
    return panels;
  }
  pack(plan, operand, s, memory, memory_special, staging);
  *special = memory_special;
  return memory;
}

/* ---- Products of packed strips ---- */

/* The second level of a register block's sums, left to the kernel that computes the next one. */
typedef struct pending {
  const tc_cpu_kernels *kernels;
  const float *c;
  double *sums;
  int64_t rows, columns, ld;
} pending;

static void add_slice(void *self, int64_t slice, int64_t slices) {
  const pending *p = self;
  for (int64_t i = p->rows * slice / slices; i < p->rows * (slice + 1) / slices; i++)
    p->kernels->add(p->columns, p->c + i * 2 * TC_SPLIT_COLUMNS, p->sums + i * p->ld);
}

/* The steps of two panels that meet. */
static void set_steps(tc_split_step *step, int64_t steps, const char *a, int64_t a_bytes, const char *b, int64_t b_bytes) {
  for (int64_t s = 0; s < steps; s++) step[s] = (tc_split_step){a + s * a_bytes, b + s * b_bytes};
}

static void multiply(const tc_split_plan *plan, const tc_block *block, int64_t steps, const char *a, const char *b,
                     const tc_sums *to, const split_memory *memory) {
  const int64_t mr = panel_width(&plan->a), nr = panel_width(&plan->b), rows = plan->a.unit;
  const int64_t a_bytes = step_bytes(&plan->a), b_bytes = step_bytes(&plan->b);
  const tc_split_layout layout = {ROW_BYTES, mr * ROW_BYTES, rows * ROW_BYTES, ROW_BYTES, nr * ROW_BYTES, nr / 2 * ROW_BYTES};
  tc_split_step step[TC_SPLIT_STEPS_MAX];
  pending last = {.kernels = plan->kernels};
  const tc_split_side add = {add_slice, &last};
  for (int64_t j = 0; j < block->n; j += nr) {
    for (int64_t i = 0; i < block->m; i += mr) {
      float *c = to->single ? to->single + i * to->ld + j : memory->c;
      set_steps(step, steps, a + i / mr * steps * a_bytes, a_bytes, b + j / nr * steps * b_bytes, b_bytes);
      const int64_t ldc = to->single ? to->ld : nr;
      const tc_split_block tiles = {.layout = &layout,
                                    .a_tiles = block->m - i > rows ? 2 : 1,
                                    .b_tiles = block->n - j > nr / 2 ? 2 : 1,
                                    .rows = rows,
                                    .strict = plan->product->strict,
                                    .steps = steps,
                                    .step = step,
                                    .c = c,
                                    .ldc = ldc,
                                    .c_next = rows * ldc};
      plan->split->gemm(&tiles, last.rows ? &add : NULL);
      if (to->single) continue;
      last = (pending){plan->kernels, c, to->wide + i * to->ld + j, min(mr, block->m - i), min(nr, block->n - j), to->ld};
    }
  }
  if (last.rows) add_slice(&last, 0, 1);
}

/* ---- Infinities and NaNs ---- */

/* The vector kernels' sums of the chunk are infinite or NaN for just those elements that depend on such a value: these are added, to sums
 * in which zeros stood in their place. The others' bits don't depend on what their neighbours are. */
static void patch(const tc_split_plan *plan, const tc_block *block, int64_t k, int64_t kn, const tc_sums *to,
                  const split_memory *memory) {
  const tc_sums vector = tc_panels_sum(plan->kernels, plan->product, block, k, k + kn, memory->patch, memory->panels);
  for (int64_t i = 0; i < block->m; i++) {
    for (int64_t j = 0; j < block->n; j++) {
      const double sum = vector.wide[i * vector.ld + j];
      if (isfinite(sum)) continue;
      if (to->single) {
        to->single[i * to->ld + j] = (float)sum;
      } else {
        to->wide[i * to->ld + j] += sum;
      }
    }
  }
}

static bool any(const uint8_t *special, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (special[i]) return true;
  }
  return false;
}

/* ---- Blocks ---- */

/* The kernels write all sums of one chunk; the sums of several are added to zeros. */
static tc_sums place_sums(const tc_block *block, bool single, bool empty, void *memory) {
  const int64_t ld = single ? (ceil_div(block->n, LINE) | 1) * LINE : round_up(block->n, LINE);
  if (!single || empty) memset(memory, 0, (size_t)(block->m * ld) * (single ? sizeof(float) : sizeof(double)));
  return single ? (tc_sums){.single = memory, .ld = ld} : (tc_sums){.wide = memory, .ld = ld};
}

tc_sums tc_split_sum(const tc_split_plan *plan, const tc_block *block, int64_t k, int64_t k_end, void *memory_of_sums,
                     char *workspace) {
  const split_memory memory = carve(workspace);
  const tc_sums sums = place_sums(block, k_end - k <= plan->kc, k == k_end, memory_of_sums);
  plan->split->begin(plan->a.unit);
  for (; k < k_end; k += plan->kc) {
    const int64_t kn = min(plan->kc, k_end - k);
    const uint8_t *a_special, *b_special;
    const strip a_strip = {block->item, block->i, block->m, k, kn}, b_strip = {block->item, block->j, block->n, k, kn};
    const char *a = panels_of(plan, &plan->a, &a_strip, memory.a, memory.a_special, memory.staging, &a_special);
    const char *b = panels_of(plan, &plan->b, &b_strip, memory.b, memory.b_special, memory.staging, &b_special);
    multiply(plan, block, ceil_div(kn, TC_SPLIT_TERMS), a, b, &sums, &memory);
    if (any(a_special, panel_count(&plan->a, block->m)) || any(b_special, panel_count(&plan->b, block->n)))
      patch(plan, block, k, kn, &sums, &memory);
  }
  plan->split->end();
  return sums;
}
