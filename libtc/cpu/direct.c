/* SPDX-License-Identifier: MIT */
#include "cpu/direct.h"

#include <string.h>

#include "cpu/integer.h"
#include "status.h"

/* A block of C, with all its terms: at most so many rows and columns, and elements that a second-level cache holds. */
enum { ROWS_MAX = 48, COLUMNS_MAX = 1024, ELEMENTS_MAX = 1 << 14 };

/* A task computes some blocks that follow one another: one, or as many small ones as have so many multiply-adds. Otherwise threads would
 * spend their time on taking tasks, and on each other's cache lines of C. */
enum { TASK_MULTIPLIES = 1 << 17 };

/* B's columns that are transposed at once, into a first-level cache. */
enum { TILE = 64 };

typedef struct direct_job {
  const tc_cpu_kernels *kernels;
  const tc_direct *direct;
  int64_t mb, nb; /* of a block */
  int64_t blocks, task_blocks;
} direct_job;

typedef struct block_memory {
  double *sums;     /* [m][ld] */
  float *out;       /* [m][ld], the sums of TC_KC terms and then of all */
  float *columns;   /* [n][m] */
  float *a;         /* [TC_KC][m rounded up] */
  uint16_t *halves; /* [TC_KC][m rounded up, or TILE] */
} block_memory;

static int64_t padded(int64_t n) { return round_up(n, TC_HALF_COLUMNS); }

static size_t workspace_bytes(const direct_job *job) {
  const int64_t elements = job->mb * padded(job->nb), a = TC_KC * padded(job->mb), tile = TC_KC * max(TILE, padded(job->mb));
  return (size_t)elements * (sizeof(double) + 2 * sizeof(float)) + (size_t)a * sizeof(float) + (size_t)tile * sizeof(uint16_t);
}

static block_memory carve(const direct_job *job, char *workspace) {
  const int64_t elements = job->mb * padded(job->nb);
  block_memory memory;
  memory.sums = (double *)(void *)workspace;
  memory.out = (float *)(memory.sums + elements);
  memory.columns = memory.out + elements;
  memory.a = memory.columns + elements;
  memory.halves = (uint16_t *)(memory.a + TC_KC * padded(job->mb));
  return memory;
}

static const uint16_t *row_at(const tc_halves *m, int64_t item, int64_t row, int64_t column) {
  return m->elements + item * m->stride + row * m->ld + column;
}

/* Packs kn terms of A's rows of the block; the distance from one term to the next. */
static int64_t pack_a(const tc_cpu_kernels *kernels, const tc_halves *a, const tc_block *block, int64_t k, int64_t kn,
                      const block_memory *memory) {
  const int64_t m = block->m;
  if (a->rows_are_k) {
    const int64_t rows = a->ld == m ? 1 : kn, n = kn * m / rows; /* dense rows are one */
    for (int64_t p = 0; p < rows; p++) kernels->widen(n, row_at(a, block->item, k + p, block->i), memory->a + p * m);
    return m;
  }
  const uint16_t *rows = row_at(a, block->item, block->i, k);
  if (m == 1) {
    kernels->widen(kn, rows, memory->a);
    return 1;
  }
  kernels->transpose(m, kn, rows, a->ld, memory->halves, padded(m));
  kernels->widen(kn * padded(m), memory->halves, memory->a);
  return padded(m);
}

/* Some columns of B, rows that run along them. */
typedef struct columns {
  const uint16_t *data;
  int64_t ld, n, padded; /* padded is no less than n, and not under TC_HALF_COLUMNS */
} columns;

/* Rows 4 KB apart share sets of a first-level cache. Where a strip of the kernel is narrower than a line, such lines would be fetched
 * once more for each half of them, in every pass over the block's rows. */
static bool thrashes(const tc_cpu_kernels *kernels, const tc_halves *b, const tc_block *block) {
  return b->ld % 2048 == 0 && kernels->nr < 32 && block->m > kernels->mr;
}

static columns copy_columns(const uint16_t *rows, int64_t ld, int64_t n, int64_t kn, uint16_t *copy) {
  if (n == TILE) { /* apart, so that the size is constant */
    for (int64_t p = 0; p < kn; p++) memcpy(copy + p * TILE, rows + p * ld, TILE * sizeof *copy);
  } else {
    memset(copy, 0, (size_t)(kn * padded(n)) * sizeof *copy);
    for (int64_t p = 0; p < kn; p++) memcpy(copy + p * padded(n), rows + p * ld, (size_t)n * sizeof *copy);
  }
  return (columns){copy, padded(n), n, padded(n)};
}

/* The columns from j of the block on: where they lie if rows run along them and are long enough, else a copy of some. */
static columns take_b(const tc_cpu_kernels *kernels, const tc_halves *b, const tc_block *block, int64_t j, int64_t k, int64_t kn,
                      uint16_t *copy) {
  const int64_t left = block->n - j, n = min(left, TILE);
  if (!b->rows_are_k) {
    kernels->transpose(n, kn, row_at(b, block->item, block->j + j, k), b->ld, copy, padded(n));
    return (columns){copy, padded(n), n, padded(n)};
  }
  const uint16_t *rows = row_at(b, block->item, k, block->j + j);
  if (left < TC_HALF_COLUMNS || thrashes(kernels, b, block)) return copy_columns(rows, b->ld, n, kn, copy);
  return (columns){rows, b->ld, left, left};
}

/* memory->out = the block's sums of terms k .. k+kn-1. */
static void multiply(const direct_job *job, const tc_block *block, int64_t k, int64_t kn, const block_memory *memory) {
  const tc_cpu_kernels *kernels = job->kernels;
  const int64_t lda = pack_a(kernels, &job->direct->a, block, k, kn, memory), ld = padded(block->n);
  const int64_t passes = ceil_div(block->m, kernels->mr), rows = ceil_div(block->m, passes);
  columns b;
  for (int64_t j = 0; j < block->n; j += b.n) {
    b = take_b(kernels, &job->direct->b, block, j, k, kn, memory->halves);
    for (int64_t i = 0; i < block->m; i += rows) {
      kernels->gemm_half(min(rows, block->m - i), b.padded, kn, memory->a + i, lda, b.data, b.ld, memory->out + i * ld + j, ld);
    }
  }
}

static void sum(const direct_job *job, const tc_block *block, const block_memory *memory) {
  const int64_t K = job->direct->K, elements = block->m * padded(block->n);
  multiply(job, block, 0, min(K, TC_KC), memory);
  if (K <= TC_KC) return; /* the fp64 sum of one fp32 sum is that sum */
  memset(memory->sums, 0, (size_t)elements * sizeof *memory->sums);
  job->kernels->add(elements, memory->out, memory->sums);
  for (int64_t k = TC_KC; k < K; k += TC_KC) {
    multiply(job, block, k, min(K - k, TC_KC), memory);
    job->kernels->add(elements, memory->out, memory->sums);
  }
  job->kernels->round(elements, memory->sums, memory->out);
}

static void hand_over(const tc_direct *direct, const tc_block *block, const block_memory *memory) {
  const tc_sink *c = &direct->c;
  const int64_t m = block->m, n = block->n, ld = padded(n);
  if (!direct->transposed) {
    for (int64_t i = 0; i < m; i++) c->row(c->self, block->item, block->i + i, block->j, n, memory->out + i * ld);
    return;
  }
  float *values = m == 1 ? memory->out : memory->columns;
  for (int64_t j = 0; m > 1 && j < n; j++) {
    for (int64_t i = 0; i < m; i++) values[j * m + i] = memory->out[i * ld + j];
  }
  const int64_t step = direct->joined_columns && m == direct->M ? n : 1;
  for (int64_t j = 0; j < n; j += step) c->row(c->self, block->item, block->j + j, block->i, step * m, values + j * m);
}

static tc_block block_at(const direct_job *job, int64_t number) {
  const tc_direct *d = job->direct;
  const int64_t rows = ceil_div(d->M, job->mb), across = ceil_div(d->N, job->nb);
  const int64_t i = number % rows * job->mb, j = number / rows % across * job->nb;
  return (tc_block){number / (rows * across), i, min(job->mb, d->M - i), j, min(job->nb, d->N - j)};
}

static void blocks_task(const void *arg, int64_t task, char *workspace) {
  const direct_job *job = arg;
  const block_memory memory = carve(job, workspace);
  const int64_t end = min((task + 1) * job->task_blocks, job->blocks);
  for (int64_t number = task * job->task_blocks; number < end; number++) {
    const tc_block block = block_at(job, number);
    sum(job, &block, &memory);
    hand_over(job->direct, &block, &memory);
  }
}

/* The largest blocks that give every thread some, and how many make a task. No floating point: the caller's environment may trap. */
static void choose_block(direct_job *job, int64_t threads) {
  const tc_direct *d = job->direct;
  job->mb = even_part(d->M, ROWS_MAX);
  const int64_t rows = d->items * ceil_div(d->M, job->mb);
  int64_t limit = min(COLUMNS_MAX, ELEMENTS_MAX / job->mb);
  while (threads > 1 && limit > TILE && rows * ceil_div(d->N, limit) < 4 * threads) limit /= 2;
  job->nb = round_up(even_part(d->N, limit), TC_HALF_COLUMNS);
  job->blocks = rows * ceil_div(d->N, job->nb);
  const int64_t multiplies = job->mb * job->nb * min(d->K, TASK_MULTIPLIES);
  job->task_blocks = min(1 + TASK_MULTIPLIES / multiplies, ceil_div(job->blocks, 4 * threads));
}

tc_status_t tc_direct_run(tc_cpu *cpu, const tc_direct *direct) {
  direct_job job = {.kernels = cpu->kernels, .direct = direct};
  const double multiplies = (double)direct->items * (double)direct->M * (double)direct->N * (double)direct->K;
  const int64_t threads = tc_cpu_threads(cpu, multiplies);
  choose_block(&job, threads);
  const int64_t tasks = ceil_div(job.blocks, job.task_blocks);
  tc_team team;
  TC_TRY(tc_team_take(cpu, threads, tasks, workspace_bytes(&job), &team));
  tc_team_run(&team, tasks, blocks_task, &job);
  tc_team_give(&team);
  return TC_OK;
}
