/* SPDX-License-Identifier: MIT
 *
 * What the plans of all ops share: tiles and parts, and steps. Errors of these functions: MEMORY, UNSUPPORTED.
 */
#ifndef TC_METAL_PLAN_STEPS_H
#define TC_METAL_PLAN_STEPS_H

#include "metal/plan.h"

static inline uint64_t tc_plan_ceil(uint64_t size, uint64_t step) { return size / step + (size % step != 0); }
static inline uint64_t tc_plan_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t tc_plan_max(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- Tiles (plan_tile.c) ---- */

/* A tile that kernels are made for: a row of TC_GEMM_TILES in metal/params.h. */
typedef struct tc_plan_tile {
  const char *name; /* the last word of its kernels' names: "64x64" */
  uint32_t M, N, K; /* of a block */
  uint32_t threads;
} tc_plan_tile;

/* The tiles of TC_TILES stand before those that are for GEMM only. */
extern const tc_plan_tile tc_plan_tiles[];
extern const size_t tc_plan_tile_count, tc_plan_conv2d_tile_count;

/* One of several products of the same sizes. */
typedef struct tc_plan_product {
  uint64_t M, N, K;
  uint64_t items; /* how many */
  bool matrices;  /* GEMM, whose tiles are more */
  bool along_k;   /* both operands lie along K */
} tc_plan_product;

/* How its sums are cut: each one is the sum of its parts, in order, and each part that of TC_SUM_PRODUCTS at a time. */
typedef struct tc_plan_parts {
  uint64_t part, parts; /* products in a part; parts is 1 if the sums aren't cut */
} tc_plan_parts;

/* parts: of each product, as far as they are known. No choice of a tile changes a bit of a result. */
const tc_plan_tile *tc_plan_tile_choose(const tc_plan_device *device, const tc_plan_product *product, uint64_t parts);

/* Enough threadgroups for the device, where the tiles alone are too few: parts of TC_SUM_PRODUCTS, which give the bits of uncut sums.
 * So results don't depend on the device or on the number of items. Sums of more than TC_SUM_PRODUCTS such parts stay whole, since a
 * reduction adds those in another order than a threadgroup. */
tc_plan_parts tc_plan_parts_even(const tc_plan_device *device, const tc_plan_product *product, const tc_plan_tile *tile);

/* Sums that long need parts, lest the sums of TC_SUM_PRODUCTS become too many to add one by one. */
#define TC_PLAN_LONG_K (1 << 17)

/* Parts of at most TC_PLAN_LONG_K, where there is memory for them. They depend on M, N, K and items only. */
tc_plan_parts tc_plan_parts_long(const tc_plan_product *product);

/* ---- Steps (plan.c) ---- */

typedef struct tc_plan_builder {
  const tc_plan_device *device;
  tc_plan *plan;
} tc_plan_builder;

/* Empties the plan. */
tc_plan_builder tc_plan_begin(const tc_plan_device *device, tc_plan *plan);

/* Room in the workspace; *offset is where. */
tc_status_t tc_plan_reserve(const tc_plan_builder *b, uint64_t bytes, uint64_t *offset);

tc_plan_step tc_plan_step_make(const char *kernel);
void tc_plan_constant_add(tc_plan_step *step, uint32_t index, bool value);
void tc_plan_bind(tc_plan_step *step, uint32_t index, tc_plan_role role, bool written);
void tc_plan_bind_workspace(tc_plan_step *step, uint32_t index, uint64_t offset, bool written);
/* params begin with a tc_origin. */
void tc_plan_params_set(tc_plan_step *step, const void *params, size_t bytes);

/* What one threadgroup costs, as a part of what the device can do at once. */
typedef struct tc_plan_cost {
  double multiplies; /* 8x8x8 products of matrices */
  double cycles;     /* of a simdgroup, for all else */
  double bytes;      /* of device memory */
} tc_plan_cost;

typedef struct tc_plan_grid {
  uint64_t x, y, z; /* threadgroups */
  uint32_t threads[2];
} tc_plan_grid;

/* Appends the step, cut into as many as the model of time and 32-bit grids ask for. */
tc_status_t tc_plan_emit(const tc_plan_builder *b, const tc_plan_step *step, tc_plan_grid grid, tc_plan_cost cost);

/* A step whose threads do an element each: columns, rows, items. bytes: of device memory, for each element. */
tc_status_t tc_plan_emit_elements(const tc_plan_builder *b, const tc_plan_step *step, uint64_t columns, uint64_t rows,
                                  uint64_t items, double bytes);

/* A step of tiles; slowdown: how many times the products' time it may take. */
tc_status_t tc_plan_emit_tiles(const tc_plan_builder *b, const tc_plan_step *step, const tc_plan_product *product,
                               const tc_plan_tile *tile, const tc_plan_parts *parts, double slowdown);

#endif
