/* SPDX-License-Identifier: MIT
 *
 * The product in cache tiles. Each task computes one tile of C with all its terms, so tasks share nothing, and the bits don't depend on
 * who runs them: each element is summed in fp32 over chunks of k, in rising k, and these sums in fp64 (block.h).
 */
#include "cpu/product.h"

#include <string.h>

#include "cpu/block.h"
#include "cpu/integer.h"
#include "status.h"

typedef struct product_job {
  const tc_cpu_kernels *kernels;
  const tc_product *product;
  tc_split_plan *plan;         /* for tile products, else NULL */
  int64_t mr, nr;              /* the register tile */
  int64_t pieces, piece_terms; /* piece p has the terms from p * piece_terms on */
  int64_t mc, nc;              /* tile of a task */
  int64_t first;               /* item of this pass */
  double *partials;            /* [item of the pass][pieces][M][N], if there are several pieces */
} product_job;

/* ---- Blocks ---- */

/* A task's own memory, in bytes from its start: sums, a row that leaves them, and the workspace of what computes them. */
enum { ROW = TC_TILE_COLUMNS_MAX, AT_ROW = TC_SPLIT_ELEMENTS * 8, AT_REST = AT_ROW + ROW * 4 };

size_t tc_block_workspace_bytes(const tc_cpu *cpu) {
  return AT_REST + (cpu->split ? tc_split_bytes(cpu->kernels) : tc_panels_bytes(cpu->kernels));
}

/* Computes a block's terms k .. k_end-1 for the taker. */
static void sum_block(const product_job *job, const tc_block *block, int64_t k, int64_t k_end, const tc_taker *taker,
                      char *workspace) {
  if (job->plan) {
    tc_split_sum(job->plan, block, k, k_end, taker, workspace, workspace + AT_REST);
  } else {
    const tc_sums sums =
        tc_panels_sum(job->kernels, job->product, block, k, k_end, (double *)(void *)workspace, workspace + AT_REST);
    taker->take(taker->self, block, &sums);
  }
}

typedef struct whole_sums {
  const product_job *job;
  float *row;
} whole_sums;

static void take_whole(const void *self, const tc_block *part, const tc_sums *sums) {
  const whole_sums *w = self;
  const tc_sink *c = &w->job->product->c;
  for (int64_t i = 0; i < part->m; i++) {
    float *row = sums->single ? sums->single + i * sums->ld : w->row;
    if (sums->wide) w->job->kernels->round(part->n, sums->wide + i * sums->ld, row);
    c->row(c->self, part->item, part->i + i, part->j, part->n, row);
  }
}

static void run_block(const product_job *job, const tc_block *block, char *workspace) {
  const whole_sums whole = {job, (float *)(void *)(workspace + AT_ROW)};
  const tc_taker taker = {take_whole, &whole};
  sum_block(job, block, 0, job->product->K, &taker, workspace);
}

void tc_block_run(const tc_cpu *cpu, const tc_product *product, const tc_block *block, char *workspace) {
  tc_split_plan plan;
  product_job job = {.kernels = cpu->kernels, .product = product};
  if (product->tiles) {
    tc_kernel_use(cpu->split->name);
    plan = tc_split_plan_of(cpu, product, block->m);
    job.plan = &plan;
  }
  run_block(&job, block, workspace);
}

/* ---- Whether tile products pay ---- */

/* Fewer rows or columns leave tiles, and with them the work of packing, too little used; fewer terms leave a step mostly zeros. */
static const struct { int64_t side, terms, multiplies; } least_for_tiles = {8, 16, 1 << 14};

bool tc_tiles_pay(const tc_cpu *cpu, int64_t M, int64_t N, int64_t K) {
  return cpu->split && min(M, N) >= least_for_tiles.side && K >= least_for_tiles.terms &&
         (double)M * (double)N * (double)K >= (double)least_for_tiles.multiplies;
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

/* ---- Tiles ---- */

static int64_t item_tiles(const product_job *job) {
  return job->pieces * ceil_div(job->product->M, job->mc) * ceil_div(job->product->N, job->nc);
}

/* The largest multiple of unit that is at most a, but at least one. */
static int64_t round_down(int64_t a, int64_t unit) { return max(a / unit, 1) * unit; }

/* A tile's packing costs a.cost/nc + b.cost/mc for each product, and mc*nc is given by the caches: so mc/nc = b.cost/a.cost is the
 * best, unless M or N is shorter. */
static void largest_tile(const product_job *job, int64_t *mc, int64_t *nc) {
  const tc_product *p = job->product;
  const int64_t mr = job->mr, nr = job->nr;
  int64_t rows = mr;
  while ((rows + mr) * (rows + mr) * p->a.cost <= TC_TILE_ELEMENTS * p->b.cost) rows += mr;
  rows = min(rows, round_up(p->M, mr));
  *nc = min(round_up(p->N, nr), round_down(min(TC_TILE_ELEMENTS / rows, TC_TILE_COLUMNS_MAX), nr));
  *mc = min(round_up(p->M, mr), round_down(min(TC_TILE_ELEMENTS / *nc, TC_TILE_ROWS_MAX), mr));
}

/* Tiles of even size, the largest ones that give every thread some. */
static void choose_tile(product_job *job, int64_t threads) {
  const tc_product *p = job->product;
  const int64_t mr = job->mr, nr = job->nr;
  int64_t mc, nc;
  largest_tile(job, &mc, &nc);
  for (;;) {
    job->mc = round_up(even_part(p->M, mc), mr);
    job->nc = round_up(even_part(p->N, nc), nr);
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

typedef struct piece_sums {
  const product_job *job;
  int64_t piece;
} piece_sums;

static void take_piece(const void *self, const tc_block *part, const tc_sums *sums) {
  const piece_sums *p = self;
  for (int64_t i = 0; i < part->m; i++) {
    double *row = partial_row(p->job, part->item, p->piece, part->i + i) + part->j;
    if (sums->wide) {
      memcpy(row, sums->wide + i * sums->ld, (size_t)part->n * sizeof(double));
    } else {
      for (int64_t x = 0; x < part->n; x++) row[x] = (double)sums->single[i * sums->ld + x];
    }
  }
}

static void tile_task(const void *arg, int64_t task, char *workspace) {
  const product_job *job = arg;
  const tc_product *p = job->product;
  const int64_t rows = ceil_div(p->M, job->mc), columns = ceil_div(p->N, job->nc);
  const int64_t i = task % rows * job->mc, j = task / rows % columns * job->nc;
  const int64_t piece = task / (rows * columns) % job->pieces, item = job->first + task / (rows * columns * job->pieces);
  const tc_block block = {item, i, min(job->mc, p->M - i), j, min(job->nc, p->N - j)};
  if (job->pieces == 1) {
    run_block(job, &block, workspace);
  } else {
    const int64_t k = piece * job->piece_terms;
    const piece_sums sums = {job, piece};
    const tc_taker taker = {take_piece, &sums};
    sum_block(job, &block, k, min(k + job->piece_terms, p->K), &taker, workspace);
  }
}

/* One row of C: the sum of its pieces, in their order. */
static void reduce_task(const void *arg, int64_t task, char *workspace) {
  const product_job *job = arg;
  const tc_product *p = job->product;
  const int64_t item = job->first + task / p->M, i = task % p->M;
  float *row = (float *)(void *)(workspace + AT_ROW);
  for (int64_t j = 0; j < p->N; j += ROW) {
    const int64_t n = min(ROW, p->N - j);
    double *sums = partial_row(job, item, 0, i) + j;
    for (int64_t piece = 1; piece < job->pieces; piece++) {
      const double *more = partial_row(job, item, piece, i) + j;
      for (int64_t x = 0; x < n; x++) sums[x] += more[x];
    }
    job->kernels->round(n, sums, row);
    p->c.row(p->c.self, item, i, j, n, row);
  }
}

/* ---- Packing ahead ---- */

/* An operand that several tiles need is packed before them, unless that takes too much memory. */
enum { AHEAD_BYTES_MAX = 1 << 28 };

typedef struct ahead_job {
  const tc_split_plan *plan;
  const tc_split_operand *operand;
} ahead_job;

static void ahead_task(const void *arg, int64_t task, char *workspace) {
  const ahead_job *ahead = arg;
  tc_split_ahead_task(ahead->plan, ahead->operand, task, workspace + AT_REST);
}

/* Bytes for an item of A (0) and of B (1), 0 if each task packs its own. */
static void ahead_bytes(const product_job *job, int64_t bytes[2]) {
  bytes[0] = bytes[1] = 0;
  if (!job->plan) return;
  if (job->nc < job->product->N) bytes[0] = tc_split_ahead_bytes(job->plan, &job->plan->a);
  if (job->mc < job->product->M) bytes[1] = tc_split_ahead_bytes(job->plan, &job->plan->b);
  for (int i = 0; i < 2; i++) {
    if (bytes[i] > AHEAD_BYTES_MAX / 2) bytes[i] = 0;
  }
}

static void pack_ahead(const product_job *job, const tc_team *team, int64_t items, const int64_t bytes[2], char *memory) {
  tc_split_operand *const operands[] = {&job->plan->a, &job->plan->b};
  job->plan->first_item = job->first;
  for (int i = 0; i < 2; i++) {
    if (!bytes[i]) continue;
    const ahead_job ahead = {job->plan, operands[i]};
    tc_split_ahead_place(job->plan, operands[i], items, memory + (i ? items * bytes[0] : 0));
    tc_team_run(team, items * tc_split_ahead_tasks(job->plan, operands[i]), ahead_task, &ahead);
  }
}

/* ---- The whole product ---- */

/* Items of a pass: as many as the caps on partial sums and on packed operands allow. */
static int64_t pass_items(const product_job *job, int64_t partial_bytes, int64_t packed_bytes) {
  int64_t items = job->product->items;
  if (partial_bytes) items = min(items, PARTIAL_BYTES_MAX / partial_bytes);
  if (packed_bytes) items = min(items, AHEAD_BYTES_MAX / packed_bytes);
  return items;
}

static void run_pass(const product_job *job, const tc_team *team, int64_t items) {
  tc_team_run(team, items * item_tiles(job), tile_task, job);
  if (job->pieces > 1) tc_team_run(team, items * job->product->M, reduce_task, job);
}

/* The memory that all tasks share, if any: partial sums and packed operands. */
static tc_status_t run_passes(product_job *job, const tc_team *team) {
  const tc_product *p = job->product;
  int64_t bytes[2];
  ahead_bytes(job, bytes);
  const int64_t packed_bytes = bytes[0] + bytes[1];
  const int64_t partial_bytes = job->pieces > 1 ? job->pieces * p->M * p->N * (int64_t)sizeof(double) : 0;
  const int64_t pass = pass_items(job, partial_bytes, packed_bytes);
  void *partials = NULL, *packed = NULL;
  if (partial_bytes) TC_TRY(tc_workspace_take(team->cpu, TC_WORKSPACE_PARTIALS, (size_t)(pass * partial_bytes), &partials));
  tc_status_t status = TC_OK;
  if (packed_bytes) status = tc_workspace_take(team->cpu, TC_WORKSPACE_PACKED, (size_t)(pass * packed_bytes), &packed);
  job->partials = partials;
  for (; status == TC_OK && job->first < p->items; job->first += pass) {
    const int64_t items = min(pass, p->items - job->first);
    if (packed) pack_ahead(job, team, items, bytes, packed);
    run_pass(job, team, items);
  }
  if (packed) tc_workspace_give(team->cpu, TC_WORKSPACE_PACKED, packed);
  if (partials) tc_workspace_give(team->cpu, TC_WORKSPACE_PARTIALS, partials);
  return status;
}

/* Where k is cut depends on the shape only. */
static void cut_terms(product_job *job) {
  const tc_product *p = job->product;
  const int64_t kc = job->plan ? job->plan->kc : TC_KC;
  job->pieces = piece_count(p);
  job->piece_terms = round_up(ceil_div(p->K, job->pieces), kc);
  if (p->K) job->pieces = ceil_div(p->K, job->piece_terms);
}

tc_status_t tc_product_run(tc_cpu *cpu, const tc_product *product) {
  product_job job = {.kernels = cpu->kernels, .product = product, .mr = cpu->kernels->mr, .nr = cpu->kernels->nr};
  tc_split_plan plan;
  if (product->tiles) {
    plan = tc_split_plan_of(cpu, product, product->M);
    job.plan = &plan;
    job.mr = 2 * plan.a.unit;
    job.nr = 2 * plan.b.unit;
  }
  cut_terms(&job);
  const double multiplies = (double)product->items * (double)product->M * (double)product->N * (double)(product->K + 1);
  const int64_t threads = tc_cpu_threads(cpu, multiplies);
  if (job.plan) {
    const tc_split_size size = tc_split_choose(job.plan, job.pieces, threads);
    job.mc = size.rows;
    job.nc = size.columns;
  } else {
    choose_tile(&job, threads);
  }
  const int64_t tasks = product->items * item_tiles(&job);
  tc_team team;
  TC_TRY(tc_team_take(cpu, threads, tasks, tc_block_workspace_bytes(cpu), &team));
  const tc_status_t status = run_passes(&job, &team);
  tc_team_give(&team);
  return status;
}
