/* SPDX-License-Identifier: MIT
 *
 * Sums of a block by tile products. Both operands are split into hi and lo and packed in panels, pairs of tiles: A's panels have as many
 * rows as M divides well into, since the time of a tile product grows with its rows (but not with its columns or terms); B's have 32
 * columns. A panel's steps follow each other, each with the hi tiles and then the lo tiles, so that a register block reads two streams.
 * Terms, rows and columns beyond the operand are zeros in our own memory.
 */
#include "cpu/split.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

#include "cpu/block.h"
#include "cpu/integer.h"

enum { ROW_BYTES = 64 /* of a tile */, LINE = 16 /* floats of a cache line */ };

/* Most rows or columns that are staged at once while rows run along them, and distances between staged rows, which don't share cache
 * sets. Rows are staged since they often do so where they lie. */
enum { WIDE = 256, WIDE_LD = WIDE + 32, LONG_LD = TC_SPLIT_KC + 32, STAGING_HALVES = TC_SPLIT_TERMS * WIDE_LD };

_Static_assert(TC_SPLIT_ROWS_MAX *LONG_LD <= STAGING_HALVES, "either way to stage fits");

/* A task's own memory, in bytes from its start: what it stages, the fp32 sums of a register block, its own packed operands of a
 * range of terms and where they have infinities or NaNs, the vector kernels' sums where there are any, and these kernels' workspace. */
enum {
  RANGE_TERMS = 1024,                          /* at most */
  CHUNKS_MAX = 4,                              /* of a range: chunks have more than TC_SPLIT_KC / 2 terms where there are several */
  SINGLE_CHUNKS = 64,                          /* whose sums are added in fp32 */
  PANELS_MAX = TC_SPLIT_BLOCK_COLUMNS_MAX / 2, /* of at least two rows or columns */
  MR = 2 * TC_SPLIT_ROWS_MAX,
  NR = 2 * TC_SPLIT_COLUMNS,
  B_BYTES = 1 << 20, /* of a range, which stays in a second-level cache while A's panels pass */
  AT_C = STAGING_HALVES * 2,
  AT_A = AT_C + MR * NR * 4,
  AT_B = AT_A + MR * RANGE_TERMS * 4,
  AT_SPECIAL = AT_B + B_BYTES,
  AT_PATCH = AT_SPECIAL + 2 * CHUNKS_MAX * PANELS_MAX,
  AT_PANELS = AT_PATCH + MR * (TC_SPLIT_BLOCK_COLUMNS_MAX + NR) * 8,
};

_Static_assert(RANGE_TERMS / (TC_SPLIT_KC / 2) <= CHUNKS_MAX, "chunks of a range");
_Static_assert(TC_SPLIT_BLOCK_COLUMNS_MAX *TC_SPLIT_KC * 4 <= B_BYTES, "a chunk of the widest block fits");

typedef struct split_memory {
  uint16_t *staging;
  float *c;
  char *a, *b;
  uint8_t *a_special, *b_special;
  double *patch;
  char *panels;
} split_memory;

static split_memory carve(char *workspace) {
  uint8_t *special = (uint8_t *)workspace + AT_SPECIAL;
  return (split_memory){.staging = (uint16_t *)(void *)workspace,
                        .c = (float *)(void *)(workspace + AT_C),
                        .a = workspace + AT_A,
                        .b = workspace + AT_B,
                        .a_special = special,
                        .b_special = special + CHUNKS_MAX * PANELS_MAX,
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

/* Packs tile x (in rows or columns from the strip's first on) of a step from its rows. */
static void pack_tile(const tc_split_plan *plan, const tc_split_operand *operand, int64_t steps, int64_t x, int64_t step,
                      const uint16_t *const *rows, int64_t at, char *dst, uint8_t *special) {
  const tc_split_form form = {operand->source->rows_are_k, operand->pairs, operand->unit, ROW_BYTES};
  const int64_t panel = x / panel_width(operand), half = panel_width(operand) * ROW_BYTES;
  char *hi = dst + (panel * steps + step) * step_bytes(operand) + x % panel_width(operand) * ROW_BYTES;
  special[panel] |= plan->split->pack_halves(&form, rows, at, hi, hi + half);
}

static void list_rows(int64_t count, const uint16_t *staging, int64_t ld, const uint16_t **rows) {
  for (int64_t r = 0; r < count; r++) rows[r] = staging + r * ld;
}

static void zero(uint16_t *out, int64_t n) { memset(out, 0, (size_t)n * sizeof *out); }

/* Rows run along the strip: a tile needs those of a step. */
static void pack_along(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *dst, uint8_t *special,
                       uint16_t *staging) {
  const tc_source *source = operand->source;
  const int64_t steps = ceil_div(s->kn, TC_SPLIT_TERMS), most = WIDE / panel_width(operand) * panel_width(operand);
  const uint16_t *rows[TC_SPLIT_TERMS];
  list_rows(TC_SPLIT_TERMS, staging, WIDE_LD, rows);
  for (int64_t first = 0; first < s->n; first += most) {
    const int64_t n = min(most, s->n - first);
    for (int64_t step = 0; step < steps; step++) {
      for (int64_t p = 0; p < TC_SPLIT_TERMS; p++) {
        const int64_t term = step * TC_SPLIT_TERMS + p, filled = term < s->kn ? n : 0;
        uint16_t *row = staging + p * WIDE_LD;
        if (filled) source->row(source->self, s->item, s->k + term, s->first + first, n, row);
        zero(row + filled, WIDE_LD - filled);
      }
      for (int64_t x = 0; x < n; x += operand->unit) pack_tile(plan, operand, steps, first + x, step, rows, x, dst, special);
    }
  }
}

/* Rows run along the terms: a tile needs as many as it has, with all the terms of the chunk. */
static void pack_across(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *dst, uint8_t *special,
                        uint16_t *staging) {
  const tc_source *source = operand->source;
  const int64_t steps = ceil_div(s->kn, TC_SPLIT_TERMS);
  const uint16_t *rows[TC_SPLIT_ROWS_MAX];
  list_rows(TC_SPLIT_ROWS_MAX, staging, LONG_LD, rows);
  for (int64_t x = 0; x < s->n; x += operand->unit) {
    const int64_t wanted = min(operand->unit, s->n - x);
    for (int64_t r = 0; r < wanted; r++) {
      uint16_t *row = staging + r * LONG_LD;
      source->row(source->self, s->item, s->first + x + r, s->k, s->kn, row);
      zero(row + s->kn, steps * TC_SPLIT_TERMS - s->kn);
    }
    zero(staging + wanted * LONG_LD, (TC_SPLIT_ROWS_MAX - wanted) * LONG_LD);
    for (int64_t step = 0; step < steps; step++)
      pack_tile(plan, operand, steps, x, step, rows, step * TC_SPLIT_TERMS, dst, special);
  }
}

/* Strip by strip: [panel][step] to dst, and for each panel whether it has infinities or NaNs. */
static void pack(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *dst, uint8_t *special,
                 uint16_t *staging) {
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

/* ---- Ranges ---- */

/* Terms of a range: all of them if that are few, and otherwise one chunk. */
static int64_t range_terms(const tc_split_plan *plan) {
  const int64_t all = round_up(plan->product->K, plan->kc);
  return all <= RANGE_TERMS ? all : plan->kc;
}

/* ---- The size of blocks ---- */

/* What takes time on one core, in ns, as measured on a Xeon of the fourth generation: 12 tile products of 16 rows, packing an element from
 * where it lies, fetching a packed one (4 bytes) from a shared or from a second-level cache. */
static const double STEP_NS = 84, PACK_NS = 0.3, SHARED_NS = 0.14, NEAR_NS = 0.03;
static const int64_t NEAR_BYTES = 768 << 10; /* of an operand that then stays in second-level caches */

/* Of a block's part of an operand, of so many rows or columns; whole: nobody else needs it. */
static double operand_ns(const tc_split_plan *plan, const tc_split_operand *operand, int64_t part, bool whole) {
  const double terms = (double)plan->product->K;
  if (whole) return (double)part * terms * PACK_NS;
  return (double)part * terms * (4 * terms * (double)operand->extent <= (double)NEAR_BYTES ? NEAR_NS : SHARED_NS);
}

/* Of the product cut into so many rows and columns of blocks, each with a thread at a time. */
static double estimate_ns(const tc_split_plan *plan, int64_t repeats, int64_t threads, const tc_split_size *size) {
  const tc_product *p = plan->product;
  const int64_t rows = ceil_div(p->M, size->rows), columns = ceil_div(p->N, size->columns);
  const double panels = (double)ceil_div(size->rows, panel_width(&plan->a)) * (double)ceil_div(size->columns, NR);
  const double steps = (double)ceil_div(p->K, TC_SPLIT_TERMS) / (double)repeats;
  const double task =
      panels * steps * STEP_NS * (double)plan->a.unit / TC_SPLIT_ROWS_MAX +
      (operand_ns(plan, &plan->a, size->rows, columns == 1) + operand_ns(plan, &plan->b, size->columns, rows == 1)) /
          (double)repeats;
  const double ahead = (columns > 1 ? (double)p->M : 0) + (rows > 1 ? (double)p->N : 0);
  const int64_t turns = ceil_div(p->items * repeats * rows * columns, threads);
  return ((double)turns + 0.1) * task + (double)p->items * ahead * (double)p->K * PACK_NS / (double)threads;
}

/* With all terms at once, only a panel's sums are kept, so C may have any height, and a block's part of B must stay in a cache. Otherwise its
 * sums wait there too. */
static bool block_fits(const tc_split_plan *plan, const tc_split_size *size) {
  const int64_t terms = range_terms(plan);
  if (size->columns > TC_SPLIT_BLOCK_COLUMNS_MAX || size->columns * terms * 4 > B_BYTES) return false;
  return terms >= plan->product->K || size->rows * size->columns <= TC_SPLIT_ELEMENTS;
}

tc_split_size tc_split_choose(const tc_split_plan *plan, int64_t repeats, int64_t threads) {
  const int64_t M = plan->product->M, N = plan->product->N, mr = panel_width(&plan->a);
  tc_split_size best = {mr, NR};
  double least = INFINITY;
  fenv_t callers; /* may trap inexact results */
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
  for (int64_t rows = 1; rows <= ceil_div(M, mr); rows += ceil_div(rows, 4)) {
    for (int64_t columns = 1; columns <= ceil_div(N, NR); columns += ceil_div(columns, 4)) {
      const tc_split_size size = {round_up(ceil_div(M, rows), mr), round_up(ceil_div(N, columns), NR)};
      if (!block_fits(plan, &size)) continue;
      const double ns = estimate_ns(plan, repeats, threads, &size);
      if (ns < least) least = ns, best = size;
    }
  }
  fesetenv(&callers);
  return best;
}

/* ---- Packed operands ---- */

/* The packed panels of an operand for a range of terms, chunk by chunk. */
typedef struct range {
  const char *panels[CHUNKS_MAX];
  const uint8_t *special[CHUNKS_MAX];
} range;

/* Those of the strip: packed ahead, or now. */
static range range_of(const tc_split_plan *plan, const tc_split_operand *operand, const strip *s, char *memory, uint8_t *special,
                      uint16_t *staging) {
  const int64_t panels = panel_count(operand, s->n);
  range r;
  for (int64_t c = 0; c * plan->kc < s->kn; c++) {
    const strip chunk = {s->item, s->first, s->n, s->k + c * plan->kc, min(plan->kc, s->kn - c * plan->kc)};
    uint8_t *found = special + c * PANELS_MAX;
    if (operand->ahead) {
      r.panels[c] = ahead_panel(plan, operand, &chunk, &found);
    } else {
      pack(plan, operand, &chunk, memory, found, staging);
      r.panels[c] = memory;
      memory += panels * ceil_div(chunk.kn, TC_SPLIT_TERMS) * step_bytes(operand);
    }
    r.special[c] = found;
  }
  return r;
}

/* ---- Products of packed strips ---- */

/* What is left to do beside later products: adding a register block's sums to those before, and handing over the rows of a panel. */
typedef struct worker {
  const tc_split_plan *plan;
  const tc_taker *taker;
  split_memory memory;
  const float *c; /* c[rows][NR] is to be added to sums */
  tc_sums sums;
  int64_t rows, columns;
  tc_block part; /* rows that are done; taken of them are handed over */
  tc_sums done;
  int64_t taken, slice, slices;
} worker;

static tc_sums sums_at(const tc_sums *sums, int64_t i, int64_t j) {
  const int64_t at = i * sums->ld + j;
  return sums->single ? (tc_sums){.single = sums->single + at, .ld = sums->ld} : (tc_sums){.wide = sums->wide + at, .ld = sums->ld};
}

static void add_rows(worker *w, int64_t first, int64_t end) {
  if (first >= end) return;
  const float *c = w->c + first * NR;
  const tc_sums to = sums_at(&w->sums, first, 0);
  if (to.single) {
    w->plan->split->add(end - first, w->columns, c, NR, to.single, to.ld);
  } else {
    for (int64_t i = 0; i < end - first; i++) w->plan->kernels->add(w->columns, c + i * NR, to.wide + i * to.ld);
  }
}

static void finish_add(worker *w) {
  add_rows(w, 0, w->rows);
  w->rows = 0;
}

static void take_rows(worker *w, int64_t end) {
  if (end <= w->taken) return;
  tc_block part = w->part;
  part.i += w->taken;
  part.m = end - w->taken;
  const tc_sums sums = sums_at(&w->done, w->taken, 0);
  w->taker->take(w->taker->self, &part, &sums);
  w->taken = end;
}

static void work_slice(void *self, int64_t slice, int64_t slices) {
  worker *w = self;
  add_rows(w, w->rows * slice / slices, w->rows * (slice + 1) / slices);
  if (w->taken < w->part.m) take_rows(w, min(w->part.m, w->part.m * ++w->slice / w->slices));
}

/* The steps of two panels that meet. */
static void set_steps(tc_split_step *step, int64_t steps, const char *a, int64_t a_bytes, const char *b, int64_t b_bytes) {
  for (int64_t s = 0; s < steps; s++) step[s] = (tc_split_step){a + s * a_bytes, b + s * b_bytes};
}

/* One chunk of a panel of A, the part's rows, by all panels of B. The kernels write the first sums in fp32 where they belong. */
static void multiply(worker *w, const tc_block *part, int64_t steps, const char *a, const char *b, bool first, const tc_sums *to) {
  const tc_split_plan *plan = w->plan;
  const int64_t mr = panel_width(&plan->a), rows = plan->a.unit;
  const int64_t a_bytes = step_bytes(&plan->a), b_bytes = step_bytes(&plan->b);
  const tc_split_layout layout = {ROW_BYTES, mr * ROW_BYTES, rows * ROW_BYTES, ROW_BYTES, NR * ROW_BYTES, NR / 2 * ROW_BYTES};
  const tc_split_side side = {work_slice, w};
  const bool direct = first && to->single;
  const int64_t ldc = direct ? to->ld : NR;
  tc_split_step step[TC_SPLIT_STEPS_MAX];
  for (int64_t j = 0; j < part->n; j += NR) {
    set_steps(step, steps, a, a_bytes, b + j / NR * steps * b_bytes, b_bytes);
    const tc_split_block tiles = {.layout = &layout,
                                  .a_tiles = part->m > rows ? 2 : 1,
                                  .b_tiles = part->n - j > NR / 2 ? 2 : 1,
                                  .rows = rows,
                                  .strict = plan->product->strict,
                                  .steps = steps,
                                  .step = step,
                                  .c = direct ? to->single + j : w->memory.c,
                                  .ldc = ldc,
                                  .c_next = rows * ldc};
    plan->split->gemm(&tiles, &side);
    w->c = w->memory.c;
    w->sums = sums_at(to, 0, j);
    w->rows = direct ? 0 : part->m;
    w->columns = min(NR, part->n - j);
  }
}

/* ---- Infinities and NaNs ---- */

/* The vector kernels' sums of the chunk are infinite or NaN for just those elements that depend on such a value: these are added, to sums
 * in which zeros stood in their place. The others' bits don't depend on what their neighbours are. */
static void patch(const worker *w, const tc_block *part, int64_t k, int64_t kn, const tc_sums *to) {
  const tc_sums vector = tc_panels_sum(w->plan->kernels, w->plan->product, part, k, k + kn, w->memory.patch, w->memory.panels);
  for (int64_t i = 0; i < part->m; i++) {
    for (int64_t j = 0; j < part->n; j++) {
      const double sum = vector.wide[i * vector.ld + j];
      if (isfinite(sum)) continue;
      if (to->single) {
        to->single[i * to->ld + j] += (float)sum;
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

/* The part's terms k .. k+kn-1, a range, are added. */
static void add_range(worker *w, const tc_block *part, int64_t k, int64_t kn, const range *b, bool first, const tc_sums *to) {
  const tc_split_plan *plan = w->plan;
  const strip s = {part->item, part->i, part->m, k, kn};
  const range a = range_of(plan, &plan->a, &s, w->memory.a, w->memory.a_special, w->memory.staging);
  for (int64_t c = 0; c * plan->kc < kn; c++) {
    const int64_t at = c * plan->kc, terms = min(plan->kc, kn - at);
    multiply(w, part, ceil_div(terms, TC_SPLIT_TERMS), a.panels[c], b->panels[c], first && c == 0, to);
    if (!*a.special[c] && !any(b->special[c], panel_count(&plan->b, part->n))) continue;
    finish_add(w);
    patch(w, part, k + at, terms, to);
  }
  finish_add(w);
}

/* Those of rows from i on. With one range they stand in one of two places, in turns, so that the last ones can be handed over meanwhile. */
static tc_sums place_sums(const tc_block *block, int64_t i, int64_t turn, bool single, bool one_range, void *memory) {
  const int64_t ld = one_range ? (ceil_div(block->n, LINE) | 1) * LINE : round_up(block->n, LINE);
  const int64_t at = (one_range ? turn * MR : i) * ld;
  return single ? (tc_sums){.single = (float *)memory + at, .ld = ld} : (tc_sums){.wide = (double *)memory + at, .ld = ld};
}

/* The rows are done: they are handed over beside the products of the next ones. */
static void hand_over(worker *w, const tc_block *part, const tc_sums *sums, int64_t slices) {
  take_rows(w, w->part.m);
  w->part = *part;
  w->done = *sums;
  w->taken = w->slice = 0;
  w->slices = slices;
}

void tc_split_sum(const tc_split_plan *plan, const tc_block *block, int64_t k, int64_t k_end, const tc_taker *taker, void *sums,
                  char *workspace) {
  worker w = {.plan = plan, .taker = taker, .memory = carve(workspace)};
  const int64_t most = range_terms(plan), mr = panel_width(&plan->a);
  const bool single = k_end - k <= SINGLE_CHUNKS * plan->kc, one_range = k_end - k <= most;
  plan->split->begin(plan->a.unit);
  for (int64_t first = k; first < k_end; first += most) {
    const int64_t kn = min(most, k_end - first);
    const strip s = {block->item, block->j, block->n, first, kn};
    const range b = range_of(plan, &plan->b, &s, w.memory.b, w.memory.b_special, w.memory.staging);
    for (int64_t i = 0; i < block->m; i += mr) {
      const tc_block part = {block->item, block->i + i, min(mr, block->m - i), block->j, block->n};
      const tc_sums to = place_sums(block, i, i / mr % 2, single, one_range, sums);
      if (to.wide && first == k) memset(to.wide, 0, (size_t)(part.m * to.ld) * sizeof(double));
      add_range(&w, &part, first, kn, &b, first == k, &to);
      if (first + kn == k_end) hand_over(&w, &part, &to, ceil_div(block->n, NR) * ceil_div(kn, TC_SPLIT_TERMS));
    }
  }
  take_rows(&w, w.part.m);
  plan->split->end();
}
