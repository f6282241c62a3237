/* SPDX-License-Identifier: MIT
 *
 * Which tile and which parts of K a product gets.
 */
#include "metal/plan_steps.h"

#include <string.h>

#define TILE(m, n, k, simdgroups_m, simdgroups_n) {#m "x" #n, m, n, k, 32 * simdgroups_m * simdgroups_n},
#define ONE(m, n, k, simdgroups_m, simdgroups_n) +1
const tc_plan_tile tc_plan_tiles[] = {TC_GEMM_TILES(TILE)};
const size_t tc_plan_tile_count = sizeof tc_plan_tiles / sizeof *tc_plan_tiles;
const size_t tc_plan_conv2d_tile_count = 0 TC_TILES(ONE);
#undef ONE
#undef TILE

/* ---- The table ---- */

/* A GPU's size, by its cores: the plain chips, Pro and Max, Ultra. */
enum { SMALL = 1, MEDIUM = 2, LARGE = 4, ANY = SMALL | MEDIUM | LARGE };
enum { MEDIUM_CORES = 14, LARGE_CORES = 48 };

/* The first row that fits is taken. 0 is no limit. */
static const struct rule {
  int first_family;
  int sizes;
  uint64_t largest_M, largest_N;
  bool along_k;          /* for GEMM with both operands along K only */
  double fewer_per_core; /* where 64x64 tiles would be fewer than so many for each core */
  const char *tile;
} rules[] = {
    {0, ANY, 8, 0, false, 0, "8x64"},    /* a vector, or a few channels: the matrix is read once, by whole lines */
    {0, ANY, 0, 8, false, 0, "64x8"},    /* */
    {0, ANY, 32, 0, false, 0, "32x64"},  /* */
    {0, ANY, 0, 0, false, 2.5, "32x32"}, /* fewer could not hide the memory's latency */
    {0, ANY, 0, 0, false, 3, "32x64"},   /* would leave cores without work at the end */
    {0, SMALL, 0, 0, true, 0, "64x32"},  /* its blocks are 32 along K, so that each row is read 64 bytes at a time */
    {0, ANY, 0, 0, false, 0, "64x64"},
};

static int size_of(const tc_plan_chip *chip) {
  return chip->cores >= LARGE_CORES ? LARGE : chip->cores >= MEDIUM_CORES ? MEDIUM : SMALL;
}

static bool fits(const struct rule *r, const tc_plan_device *device, const tc_plan_product *p, uint64_t parts) {
  const uint64_t tiles = tc_plan_ceil(p->M, 64) * tc_plan_ceil(p->N, 64) * parts;
  const uint64_t few = (uint64_t)(r->fewer_per_core * device->chip->cores);
  return device->chip->family >= r->first_family && (r->sizes & size_of(device->chip)) && (!r->largest_M || p->M <= r->largest_M) &&
         (!r->largest_N || p->N <= r->largest_N) && (!r->along_k || (p->matrices && p->along_k)) &&
         (!few || (tiles < few && p->items < few && tiles * p->items < few));
}

static const tc_plan_tile *tile_named(const char *name) {
  const tc_plan_tile *tile = tc_plan_tiles;
  while (strcmp(tile->name, name)) tile++;
  return tile;
}

const tc_plan_tile *tc_plan_tile_choose(const tc_plan_device *device, const tc_plan_product *product, uint64_t parts) {
  const struct rule *r = rules;
  while (!fits(r, device, product, parts)) r++;
  return tile_named(r->tile);
}

/* ---- Parts of K ---- */

enum {
  BUSY_PER_CORE = 3,          /* threadgroups that keep a core busy */
  LONG_THREADGROUPS = 256,    /* that keep any device busy */
  PARTIALS_BYTES = 256 << 20, /* that parts may take without need */
};

tc_plan_parts tc_plan_parts_even(const tc_plan_device *device, const tc_plan_product *p, const tc_plan_tile *tile) {
  const uint64_t parts = tc_plan_ceil(p->K, TC_SUM_PRODUCTS), busy = (uint64_t)(BUSY_PER_CORE * device->chip->cores);
  const uint64_t rows = tc_plan_ceil(p->M, tile->M), columns = tc_plan_ceil(p->N, tile->N);
  const bool few = rows < busy && columns < busy && p->items < busy && rows * columns * p->items < busy;
  const bool fits_memory = few && parts < PARTIALS_BYTES / 4 / (p->M * p->N * p->items);
  if (parts > 1 && parts <= TC_SUM_PRODUCTS && fits_memory) return (tc_plan_parts){TC_SUM_PRODUCTS, parts};
  return (tc_plan_parts){p->K, 1};
}

/* Doubles parts until their sums fit, which matters only where M, N and K all are large. Kernels count a part's products in an int. */
static uint64_t within_memory(const tc_plan_product *p, uint64_t part) {
  const double sums = (double)p->M * (double)p->N * (double)p->items * 4;
  while (part < p->K && part < 1 << 30 && sums * (double)(p->K / part) > PARTIALS_BYTES) part *= 2;
  return part;
}

tc_plan_parts tc_plan_parts_long(const tc_plan_product *p) {
  const uint64_t blocks = tc_plan_max(1, tc_plan_ceil(p->M, 64) * tc_plan_ceil(p->N, 64) * p->items);
  const uint64_t wanted = tc_plan_ceil(LONG_THREADGROUPS, blocks);
  const uint64_t even = tc_plan_ceil(tc_plan_ceil(p->K, wanted), TC_SUM_PRODUCTS) * TC_SUM_PRODUCTS;
  const uint64_t part = within_memory(p, tc_plan_min(tc_plan_max(even, 2 * TC_SUM_PRODUCTS), TC_PLAN_LONG_K));
  if (part >= p->K) return (tc_plan_parts){p->K, 1};
  return (tc_plan_parts){part, tc_plan_ceil(p->K, part)};
}
