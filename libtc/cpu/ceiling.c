/* SPDX-License-Identifier: MIT
 *
 * What this machine's cores reach with the micro-kernel of an ISA alone, out of their first-level caches: the ceiling that
 * `python -m tcpy bench` compares products with. A library of its own, since it is no part of the API.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/split.h"

#define EXPORT __attribute__((visibility("default")))

/* FLOP of one call of the ISA's kernel, as its user counts them; 0 if this machine or this build can't do it. */
EXPORT double tc_ceiling_flops(const char *isa);

/* Calls the kernel so often on each of so many threads. 0, or -1 if memory or a thread is missing. */
EXPORT int tc_ceiling_run(const char *isa, int64_t threads, int64_t calls);

enum { MR_MAX = 12, NR_MAX = 32, STEPS = 4, TILES = 2, TILE_ROW_BYTES = 64, TILE_BYTES = TC_SPLIT_ROWS_MAX * TILE_ROW_BYTES };

/* Operands of a thread: of vector kernels, or of tile kernels as [step][hi, lo][tile]. */
typedef struct operands {
  _Alignas(64) float a[TC_KC * MR_MAX];
  _Alignas(64) float b[TC_KC * NR_MAX];
  _Alignas(64) double sums[MR_MAX * NR_MAX];
  _Alignas(64) uint16_t tiles_a[STEPS * 2 * TILES * TILE_BYTES / 2];
  _Alignas(64) uint16_t tiles_b[STEPS * 2 * TILES * TILE_BYTES / 2];
  _Alignas(64) float c[TILES * TC_SPLIT_ROWS_MAX * TILES * TC_SPLIT_COLUMNS];
} operands;

static const tc_cpu_isa *find(const char *name) {
  for (int i = 0; i < tc_cpu_isa_count; i++) {
    const tc_cpu_isa *isa = &tc_cpu_isas[i];
    if (strcmp(isa->name, name) == 0) return isa->supported() && !(isa->refusal && isa->refusal()) ? isa : NULL;
  }
  return NULL;
}

/* ---- Operands: random, since a processor may slow down on some data ---- */

/* 16 bits of a linear congruential generator. */
static uint16_t random_bits(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint16_t)(*state >> 48);
}

/* bf16 numbers of both signs with magnitudes from 1 to 4. */
static uint16_t random_bf16(uint64_t *state) { return (uint16_t)((random_bits(state) & 0x80ff) | 0x3f80); }

static void fill_floats(float *values, size_t n, uint64_t *state) {
  for (size_t i = 0; i < n; i++) {
    const uint32_t bits = (uint32_t)random_bf16(state) << 16 | random_bits(state);
    memcpy(&values[i], &bits, sizeof bits);
  }
}

static operands *new_operands(void) {
  uint64_t state = 1;
  operands *o = aligned_alloc(64, sizeof *o);
  if (!o) return NULL;
  memset(o, 0, sizeof *o);
  fill_floats(o->a, sizeof o->a / sizeof *o->a, &state);
  fill_floats(o->b, sizeof o->b / sizeof *o->b, &state);
  for (size_t i = 0; i < sizeof o->tiles_a / sizeof *o->tiles_a; i++) o->tiles_a[i] = random_bf16(&state);
  for (size_t i = 0; i < sizeof o->tiles_b / sizeof *o->tiles_b; i++) o->tiles_b[i] = random_bf16(&state);
  return o;
}

/* ---- Calls ---- */

static void call_vectors(const tc_cpu_kernels *kernels, operands *o, int64_t calls) {
  for (int64_t i = 0; i < calls; i++) {
    kernels->gemm(kernels->mr, TC_KC, o->a, kernels->mr, o->b, kernels->nr, o->sums, kernels->nr);
  }
}

static void call_tiles(const tc_split_kernels *kernels, operands *o, int64_t calls) {
  static const tc_split_layout layout = {TILE_ROW_BYTES, TILES * TILE_BYTES, TILE_BYTES,
                                         TILE_ROW_BYTES, TILES * TILE_BYTES, TILE_BYTES};
  const int64_t ldc = TILES * TC_SPLIT_COLUMNS;
  tc_split_step step[STEPS];
  for (int s = 0; s < STEPS; s++) {
    step[s] = (tc_split_step){(char *)o->tiles_a + s * 2 * TILES * TILE_BYTES, (char *)o->tiles_b + s * 2 * TILES * TILE_BYTES};
  }
  const tc_split_block block = {.layout = &layout,
                                .a_tiles = TILES,
                                .b_tiles = TILES,
                                .rows = TC_SPLIT_ROWS_MAX,
                                .steps = STEPS,
                                .step = step,
                                .c = o->c,
                                .ldc = ldc,
                                .c_next = TC_SPLIT_ROWS_MAX * ldc};
  kernels->begin(block.rows);
  for (int64_t i = 0; i < calls; i++) kernels->gemm(&block, NULL);
  kernels->end();
}

double tc_ceiling_flops(const char *name) {
  const tc_cpu_isa *isa = find(name);
  if (!isa) return 0;
  const int64_t rows = TILES * TC_SPLIT_ROWS_MAX, columns = TILES * TC_SPLIT_COLUMNS;
  return isa->split ? 2.0 * (double)(rows * columns * STEPS * TC_SPLIT_TERMS)
                    : 2.0 * (double)(isa->kernels->mr * isa->kernels->nr * TC_KC);
}

/* ---- Threads ---- */

typedef struct share {
  pthread_t thread;
  const tc_cpu_isa *isa;
  operands *memory;
  int64_t calls;
} share;

static void *run_share(void *arg) {
  const share *s = arg;
  if (s->isa->split) {
    call_tiles(s->isa->split, s->memory, s->calls);
  } else {
    call_vectors(s->isa->kernels, s->memory, s->calls);
  }
  return NULL;
}

int tc_ceiling_run(const char *name, int64_t threads, int64_t calls) {
  const tc_cpu_isa *isa = find(name);
  share *shares = isa && threads > 0 ? calloc((size_t)threads, sizeof *shares) : NULL;
  if (!shares) return -1;
  int64_t started = 0;
  for (; started < threads; started++) {
    share *s = &shares[started];
    *s = (share){.isa = isa, .memory = new_operands(), .calls = calls};
    if (!s->memory || pthread_create(&s->thread, NULL, run_share, s) != 0) break;
  }
  for (int64_t i = 0; i < started; i++) pthread_join(shares[i].thread, NULL);
  for (int64_t i = 0; i < threads; i++) free(shares[i].memory);
  free(shares);
  return started == threads ? 0 : -1;
}
