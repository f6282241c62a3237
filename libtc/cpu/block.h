/* SPDX-License-Identifier: MIT
 *
 * The two ways in which product.c gets the sums of a block: vector kernels on fp32 panels (panels.c), and tile products on split panels
 * (split.c).
 */
#ifndef TC_CPU_BLOCK_H
#define TC_CPU_BLOCK_H

#include "cpu/product.h"

/* The largest block of a task: its fp64 sums and a part of one operand stay in a second-level cache. */
enum {
  TC_TILE_ELEMENTS = 48 << 10,
  TC_TILE_ROWS_MAX = 384,
  TC_TILE_COLUMNS_MAX = 1024,
  TC_SPLIT_BLOCK_COLUMNS_MAX = 512,
  TC_SPLIT_ELEMENTS = 160 << 10
};

_Static_assert((int)TC_TILE_ELEMENTS >= TC_MC * TC_NC && (int)TC_TILE_ROWS_MAX >= TC_MC && (int)TC_TILE_COLUMNS_MAX >= TC_NC,
               "a block of dCol is no larger");

/* Sums of a block, element (i, j) at [i*ld + j]: in fp32, or in fp64 (and the other pointer is NULL). They stand in the caller's memory
 * of TC_TILE_ELEMENTS doubles. */
typedef struct tc_sums {
  float *single;
  double *wide;
  int64_t ld;
} tc_sums;

/* Takes the sums of a part of a block, some whole rows of it. */
typedef struct tc_taker {
  void (*take)(const void *self, const tc_block *part, const tc_sums *sums);
  const void *self;
} tc_taker;

/* The block's terms k .. k_end-1 in fp64, in chunks of TC_KC from k on. */
size_t tc_panels_bytes(const tc_cpu_kernels *kernels);
tc_sums tc_panels_sum(const tc_cpu_kernels *kernels, const tc_product *product, const tc_block *block, int64_t k, int64_t k_end,
                      double *memory, char *workspace);

/* An operand of tile products. Its panels are pairs of tiles; unit is the rows or columns of a tile. */
typedef struct tc_split_operand {
  const tc_source *source;
  int64_t extent, unit;
  bool pairs;  /* of terms, as in B tiles */
  char *ahead; /* panels that were packed before the tasks: [item of the pass][chunk][panel][step]; NULL: each task packs its own */
  uint8_t *special; /* for each of these, [item of the pass][chunk][panel], whether there are infinities or NaNs */
} tc_split_operand;

typedef struct tc_split_plan {
  const tc_cpu_kernels *kernels; /* vector kernels for all else */
  const tc_split_kernels *split;
  const tc_product *product;
  int64_t kc;         /* terms of a chunk, which one fp32 sum takes: the same for all but the last one */
  int64_t first_item; /* of this pass */
  tc_split_operand a, b;
} tc_split_plan;

/* Of a block of C, in whole panels. */
typedef struct tc_split_size {
  int64_t rows, columns;
} tc_split_size;

/* The size of blocks with which the product is estimated to take the least time, its terms being cut into so many parts (repeats). */
tc_split_size tc_split_choose(const tc_split_plan *plan, int64_t repeats, int64_t threads);

tc_split_plan tc_split_plan_of(const tc_cpu *cpu, const tc_product *product, int64_t m);

/* Packing ahead: bytes for an item, how the memory is divided, and the tasks, each with a workspace of tc_split_bytes. */
size_t tc_split_ahead_bytes(const tc_split_plan *plan, const tc_split_operand *operand);
void tc_split_ahead_place(const tc_split_plan *plan, tc_split_operand *operand, int64_t items, char *memory);
int64_t tc_split_ahead_tasks(const tc_split_plan *plan, const tc_split_operand *operand);
void tc_split_ahead_task(const tc_split_plan *plan, const tc_split_operand *operand, int64_t task, char *workspace);

/* The block's terms k .. k_end-1, at least one, k being a multiple of the plan's kc: in fp32 if that is one chunk, else in fp64. The taker
 * gets them part by part, in rising rows. A block is one that tc_split_choose found, or has at most TC_TILE_ELEMENTS; memory is of
 * TC_SPLIT_ELEMENTS doubles. */
size_t tc_split_bytes(const tc_cpu_kernels *kernels);
void tc_split_sum(const tc_split_plan *plan, const tc_block *block, int64_t k, int64_t k_end, const tc_taker *taker, void *memory,
                  char *workspace);

#endif
