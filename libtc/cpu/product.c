/* SPDX-License-Identifier: MIT
 *
 * Blocking after Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM TOMS 34(3), 2008): packed panels
 * of A (mr rows) and B (nr columns), of TC_KC terms, meet in a register tile. Each task computes one cache tile of C with all its
 * terms, so tasks share nothing, and the bits don't depend on who runs them: each element is the fp64 sum, in rising k, of fp32
 * sums of TC_KC terms.
 */
#include "cpu/product.h"

#include <string.h>

#include "cpu/integer.h"
#include "status.h"

/* ---- Workspace of a block ---- */

/* The largest tile: the fp64 sums and A's panels stay in a second-level cache, B's panels are read once for each visit. */
enum { TILE_ELEMENTS = 48 << 10, TILE_ROWS_MAX = 384, TILE_COLUMNS_MAX = 1024 };

_Static_assert((int)TILE_ELEMENTS >= TC_MC * TC_NC && (int)TILE_ROWS_MAX >= TC_MC && (int)TILE_COLUMNS_MAX >= TC_NC,
               "a block of dCol is no larger");

/* Rows of packed operands lie an odd number of cache lines apart, so that they don't share cache sets. */
enum { LINE = 16, STAGING_LD = TC_KC + LINE };

typedef struct block_memory {
  double *sums;   /* [m][ld], ld = n rounded up to nr */
  float *a, *b;   /* packed operands */
  float *staging; /* rows that wait to be transposed, or that leave the sums */
} block_memory;

static int64_t staging_floats(const tc_cpu_kernels *kernels) { return max(kernels->mr, kernels->nr) * STAGING_LD; }

/* From one term to the next of a packed strip of n, zeros included, whose rows run along it. */
static int64_t row_distance(int64_t n) { return (ceil_div(n, LINE) | 1) * LINE; }

size_t tc_block_workspace_bytes(const tc_cpu_kernels *kernels) {
  const int64_t floats = (row_distance(TILE_ROWS_MAX) + row_distance(TILE_COLUMNS_MAX)) * TC_KC + staging_floats(kernels);
  return TILE_ELEMENTS * sizeof(double) + (size_t)floats * sizeof(float);
}

static block_memory carve(char *workspace) {
  block_memory memory;
  memory.sums = (double *)(void *)workspace;
  memory.a = (float *)(memory.sums + TILE_ELEMENTS);
  memory.b = memory.a + row_distance(TILE_ROWS_MAX) * TC_KC;
  memory.staging = memory.b + row_distance(TILE_COLUMNS_MAX) * TC_KC;
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

/* Rows run along the strip: they are packed as they are. */
static packed pack_along(const tc_source *source, const strip *s, int64_t width, float *memory) {
  const int64_t padded = round_up(s->n, width), ld = row_distance(padded);
  for (int64_t p = 0; p < s->kn; p++) {
    source->row(source->self, s->item, s->k + p, s->first, s->n, memory + p * ld);
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
static packed pack_across(const tc_source *source, const strip *s, int64_t width, float *memory, float *staging) {
  for (int64_t x = 0; x < s->n; x += width) {
    const int64_t rows = min(width, s->n - x);
    for (int64_t r = 0; r < rows; r++) source->row(source->self, s->item, s->first + x + r, s->k, s->kn, staging + r * STAGING_LD);
    memset(staging + rows * STAGING_LD, 0, (size_t)((width - rows) * STAGING_LD) * sizeof(float));
    transpose(staging, width, s->kn, memory + x * s->kn);
  }
  return (packed){memory, width * s->kn, width};
}

static packed pack(const tc_source *source, const strip *s, int64_t width, float *memory, float *staging) {
  return source->rows_are_k ? pack_along(source, s, width, memory) : pack_across(source, s, width, memory, staging);
}

/* ---- Blocks ---- */

/* sums = the block's terms k .. k_end-1; k is a multiple of TC_KC. */
static void compute(const tc_cpu_kernels *kernels, const tc_product *product, const tc_block *block, int64_t k, int64_t k_end,
                    const block_memory *memory) {
  const int64_t mr = kernels->mr, nr = kernels->nr, ld = round_up(block->n, nr);
  memset(memory->sums, 0, (size_t)(block->m * ld) * sizeof(double));
  for (; k < k_end; k += TC_KC) {
    const int64_t kn = min(TC_KC, k_end - k);
    const packed a = pack(&product->a, &(strip){block->item, block->i, block->m, k, kn}, mr, memory->a, memory->staging);
    const packed b = pack(&product->b, &(strip){block->item, block->j, block->n, k, kn}, nr, memory->b, memory->staging);
    for (int64_t j = 0; j < block->n; j += nr) {
      for (int64_t i = 0; i < block->m; i += mr) {
        kernels->gemm(min(mr, block->m - i), kn, a.data + i / mr * a.panel, a.ld, b.data + j / nr * b.panel, b.ld,
                      memory->sums + i * ld + j, ld);
      }
    }
  }
}

void tc_block_run(const tc_cpu_kernels *kernels, const tc_product *product, const tc_block *block, char *workspace) {
  const block_memory memory = carve(workspace);
  compute(kernels, product, block, 0, product->K, &memory);
  const int64_t ld = round_up(block->n, kernels->nr);
  for (int64_t i = 0; i < block->m; i++) {
    kernels->round(block->n, memory.sums + i * ld, memory.staging);
    product->c.row(product->c.self, block->item, block->i + i, block->j, block->n, memory.staging);
  }
}

/* ---- Pieces of K ---- */

/* A product with few elements of C and long sums is cut along k into pieces, whose sums are kept in fp64 and then added in order.
 */
enum { PIECE_TERMS_MIN = 2048, PIECES_MAX = 32, SPLIT_ELEMENTS_MAX = 1 << 18, PARTIAL_BYTES_MAX = 1 << 26 };

static int64_t piece_count(const tc_product *product) {
  if (!product->split_k || product->M > SPLIT_ELEMENTS_MAX / product->N) return 1;
  const int64_t by_elements = SPLIT_ELEMENTS_MAX / (product->M * product->N), by_terms = product->K / PIECE_TERMS_MIN;
  const int64_t pieces = min(min(by_elements, by_terms), PIECES_MAX);
  return pieces < 1 ? 1 : pieces;
}

/* ---- The whole product ---- */

typedef struct product_job {
  const tc_cpu_kernels *kernels;
  const tc_product *product;
  int64_t pieces, piece_terms; /* piece p has the terms from p * piece_terms on */
  int64_t mc, nc;              /* tile of a task */
  int64_t first;               /* item of this pass */
  double *partials;            /* [item of the pass][pieces][M][N], if there are several pieces */
} product_job;

static int64_t item_tiles(const product_job *job) {
  return job->pieces * ceil_div(job->product->M, job->mc) * ceil_div(job->product->N, job->nc);
}

/* The largest multiple of unit that is at most a, but at least one. */
static int64_t round_down(int64_t a, int64_t unit) { return max(a / unit, 1) * unit; }

/* Cuts an extent into parts of even size, at most limit. */
static int64_t even_part(int64_t extent, int64_t limit, int64_t unit) {
  return round_up(ceil_div(extent, ceil_div(extent, limit)), unit);
}

/* A tile's packing costs a.cost/nc + b.cost/mc for each product, and mc*nc is given by the caches: so mc/nc = b.cost/a.cost is the
 * best, unless M or N is shorter. */
static void largest_tile(const product_job *job, int64_t *mc, int64_t *nc) {
  const tc_product *p = job->product;
  const int64_t mr = job->kernels->mr, nr = job->kernels->nr;
  int64_t rows = mr;
  while ((rows + mr) * (rows + mr) * p->a.cost <= TILE_ELEMENTS * p->b.cost) rows += mr;
  rows = min(rows, round_up(p->M, mr));
  *nc = min(round_up(p->N, nr), round_down(min(TILE_ELEMENTS / rows, TILE_COLUMNS_MAX), nr));
  *mc = min(round_up(p->M, mr), round_down(min(TILE_ELEMENTS / *nc, TILE_ROWS_MAX), mr));
}

/* Tiles of even size, the largest ones that give every thread some. */
static void choose_tile(product_job *job, int64_t threads) {
  const tc_product *p = job->product;
  const int64_t mr = job->kernels->mr, nr = job->kernels->nr;
  int64_t mc, nc;
  largest_tile(job, &mc, &nc);
  for (;;) {
    job->mc = even_part(p->M, mc, mr);
    job->nc = even_part(p->N, nc, nr);
    const bool tall = job->mc > 4 * mr, wide = job->nc > 2 * nr;
    if (p->items * item_tiles(job) >= 2 * threads || !(tall || wide)) return;
    if (wide && (job->nc >= job->mc || !tall)) {
      nc = round_down(job->nc / 2, nr);
    } else {
      mc = round_down(job->mc / 2, mr);
    }
  }
}

static double *partial_row(const product_job *job, int64_t item, int64_t piece, int64_t i) {
  return job->partials + (((item - job->first) * job->pieces + piece) * job->product->M + i) * job->product->N;
}

static void tile_task(const void *arg, int64_t task, char *workspace) {
  const product_job *job = arg;
  const tc_product *p = job->product;
  const int64_t rows = ceil_div(p->M, job->mc), columns = ceil_div(p->N, job->nc);
  const int64_t i = task % rows * job->mc, j = task / rows % columns * job->nc;
  const int64_t piece = task / (rows * columns) % job->pieces, item = job->first + task / (rows * columns * job->pieces);
  const tc_block block = {item, i, min(job->mc, p->M - i), j, min(job->nc, p->N - j)};
  if (job->pieces == 1) {
    tc_block_run(job->kernels, p, &block, workspace);
    return;
  }
  const block_memory memory = carve(workspace);
  const int64_t k = piece * job->piece_terms, ld = round_up(block.n, job->kernels->nr);
  compute(job->kernels, p, &block, k, min(k + job->piece_terms, p->K), &memory);
  for (int64_t r = 0; r < block.m; r++) {
    memcpy(partial_row(job, item, piece, i + r) + j, memory.sums + r * ld, (size_t)block.n * sizeof(double));
  }
}

/* One row of C: the sum of its pieces, in their order. */
static void reduce_task(const void *arg, int64_t task, char *workspace) {
  const product_job *job = arg;
  const tc_product *p = job->product;
  const block_memory memory = carve(workspace);
  const int64_t item = job->first + task / p->M, i = task % p->M;
  const int64_t step = staging_floats(job->kernels);
  for (int64_t j = 0; j < p->N; j += step) {
    const int64_t n = min(step, p->N - j);
    double *sums = partial_row(job, item, 0, i) + j;
    for (int64_t piece = 1; piece < job->pieces; piece++) {
      const double *more = partial_row(job, item, piece, i) + j;
      for (int64_t x = 0; x < n; x++) sums[x] += more[x];
    }
    job->kernels->round(n, sums, memory.staging);
    p->c.row(p->c.self, item, i, j, n, memory.staging);
  }
}

/* Passes over as many items as the cap on partial sums allows. */
static tc_status_t run_pieces(product_job *job, const tc_team *team) {
  const tc_product *p = job->product;
  const int64_t item_bytes = job->pieces * p->M * p->N * (int64_t)sizeof(double);
  const int64_t pass = min(p->items, PARTIAL_BYTES_MAX / item_bytes);
  void *partials;
  TC_TRY(tc_workspace_take(team->cpu, TC_WORKSPACE_PARTIALS, (size_t)(pass * item_bytes), &partials));
  job->partials = partials;
  for (; job->first < p->items; job->first += pass) {
    const int64_t items = min(pass, p->items - job->first);
    tc_team_run(team, items * item_tiles(job), tile_task, job);
    tc_team_run(team, items * p->M, reduce_task, job);
  }
  tc_workspace_give(team->cpu, TC_WORKSPACE_PARTIALS, partials);
  return TC_OK;
}

tc_status_t tc_product_run(tc_cpu *cpu, const tc_product *product) {
  product_job job = {.kernels = cpu->kernels, .product = product, .pieces = piece_count(product)};
  job.piece_terms = round_up(ceil_div(product->K, job.pieces), TC_KC);
  if (product->K) job.pieces = ceil_div(product->K, job.piece_terms);
  const double multiplies = (double)product->items * (double)product->M * (double)product->N * (double)(product->K + 1);
  const int64_t threads = tc_cpu_threads(cpu, multiplies);
  choose_tile(&job, threads);
  const int64_t tasks = product->items * item_tiles(&job);
  tc_team team;
  TC_TRY(tc_team_take(cpu, threads, tasks, tc_block_workspace_bytes(cpu->kernels), &team));
  tc_status_t status = TC_OK;
  if (job.pieces == 1) {
    tc_team_run(&team, tasks, tile_task, &job);
  } else {
    status = run_pieces(&job, &team);
  }
  tc_team_give(&team);
  return status;
}
