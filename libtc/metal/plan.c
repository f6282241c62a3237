/* SPDX-License-Identifier: MIT
 *
 * Chips, the probe, and steps: how one dispatch becomes as many as its time asks for.
 */
#include "metal/plan_steps.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

/* ---- Chips ---- */

/* Cores and clocks of the full chips; the smallest of a family comes first. */
static const tc_plan_chip chips[] = {
    {"Apple M1", 7, 8, 1.278, 68},         {"Apple M1 Pro", 7, 16, 1.296, 205},   {"Apple M1 Max", 7, 32, 1.296, 410},
    {"Apple M1 Ultra", 7, 64, 1.296, 819}, {"Apple M2", 8, 10, 1.398, 102},       {"Apple M2 Pro", 8, 19, 1.398, 205},
    {"Apple M2 Max", 8, 38, 1.398, 410},   {"Apple M2 Ultra", 8, 76, 1.398, 819}, {"Apple M3", 9, 10, 1.38, 102},
    {"Apple M3 Pro", 9, 18, 1.38, 154},    {"Apple M3 Max", 9, 40, 1.38, 410},    {"Apple M3 Ultra", 9, 80, 1.38, 819},
    {"Apple M4", 9, 10, 1.38, 137},        {"Apple M4 Pro", 9, 20, 1.38, 273},    {"Apple M4 Max", 9, 40, 1.38, 546},
    {"Apple M5", 10, 10, 1.578, 153},      {"Apple M5 Pro", 10, 20, 1.578, 307},  {"Apple M5 Max", 10, 40, 1.578, 614},
};

enum { CHIPS = sizeof chips / sizeof *chips };

const tc_plan_chip *tc_plan_chips(size_t *count) {
  *count = CHIPS;
  return chips;
}

const tc_plan_chip *tc_plan_chip_find(const char *name, int family) {
  const tc_plan_chip *nearest = chips;
  for (const tc_plan_chip *chip = chips; chip < chips + CHIPS; chip++) {
    if (name && !strcmp(chip->name, name)) return chip;
    if (abs(chip->family - family) < abs(nearest->family - family)) nearest = chip;
  }
  return nearest;
}

/* ---- The probe ---- */

const tc_plan_probe_word tc_plan_probe[TC_PROBE_WORDS] = {
    {"a tie rounds down to even", 0x3f801000, 0x3c00, true},
    {"a tie rounds up to even", 0x3f803000, 0x3c02, true},
    {"65520 rounds to infinity", 0x477ff000, 0x7c00, true},
    {"less than 65520 rounds to 65504", 0x477fefff, 0x7bff, true},
    {"subnormal results in half", 0x34400000, 0x0003, true},
    {"NaN in half", 0x7fc00000, 1, true},
    {"subnormal inputs in half", 0x0001, 0x33800000, false},
    {"NaN from half", 0x7e00, 1, false},
    {"subnormal factors in matrix products", 0x0001, 0x38800000, false},
    {"exact products of matrices in float", 0x3c01, 0x3f804008, false},
    {"sums of matrices in float, NaN in its own row", 0x7e00, 1, false},
    {"atomic sums in float", 0x3f000000, 0x41800000, false},
};

/* ---- Plans ---- */

bool tc_plan_kernel_equal(const tc_plan_kernel *a, const tc_plan_kernel *b) {
  if (strcmp(a->name, b->name) || a->constant_count != b->constant_count) return false;
  for (uint32_t i = 0; i < a->constant_count; i++) {
    if (a->constants[i].index != b->constants[i].index || a->constants[i].value != b->constants[i].value) return false;
  }
  return true;
}

void tc_plan_free(tc_plan *plan) {
  free(plan->steps);
  *plan = (tc_plan){0};
}

tc_plan_builder tc_plan_begin(const tc_plan_device *device, tc_plan *plan) {
  plan->count = 0;
  plan->workspace_bytes = 0;
  plan->path = "";
  return (tc_plan_builder){device, plan};
}

tc_status_t tc_plan_reserve(const tc_plan_builder *b, uint64_t bytes, uint64_t *offset) {
  const uint64_t all = b->plan->workspace_bytes + tc_plan_ceil(bytes, TC_PLAN_ALIGNMENT) * TC_PLAN_ALIGNMENT;
  TC_REQUIRE(bytes <= b->device->max_buffer_bytes && all <= b->device->max_buffer_bytes, TC_ERROR_MEMORY,
             "a workspace of %llu bytes is over the device's largest buffer, %llu bytes", (unsigned long long)all,
             (unsigned long long)b->device->max_buffer_bytes);
  *offset = b->plan->workspace_bytes;
  b->plan->workspace_bytes = all;
  return TC_OK;
}

static tc_status_t append(tc_plan *plan, const tc_plan_step *step) {
  if (plan->count == plan->capacity) {
    const size_t capacity = plan->capacity ? 2 * plan->capacity : 8;
    tc_plan_step *steps = realloc(plan->steps, capacity * sizeof *steps);
    TC_REQUIRE(steps, TC_ERROR_MEMORY, "no memory for a plan of %zu steps", capacity);
    plan->steps = steps;
    plan->capacity = capacity;
  }
  plan->steps[plan->count++] = *step;
  return TC_OK;
}

/* ---- Steps ---- */

tc_plan_step tc_plan_step_make(const char *kernel) { return (tc_plan_step){.kernel = {.name = kernel}}; }

void tc_plan_constant_add(tc_plan_step *step, uint32_t index, bool value) {
  step->kernel.constants[step->kernel.constant_count++] = (tc_plan_constant){index, value};
}

void tc_plan_bind(tc_plan_step *step, uint32_t index, tc_plan_role role, bool written) {
  step->bindings[step->binding_count++] = (tc_plan_binding){index, role, written, 0};
}

void tc_plan_bind_workspace(tc_plan_step *step, uint32_t index, uint64_t offset, bool written) {
  step->bindings[step->binding_count++] = (tc_plan_binding){index, TC_ROLE_WORKSPACE, written, offset};
}

void tc_plan_params_set(tc_plan_step *step, const void *params, size_t bytes) {
  memcpy(step->params, params, bytes);
  step->params_bytes = (uint32_t)bytes;
}

/* ---- Cutting ---- */

enum {
  MULTIPLY_CYCLES = 18, /* of a simdgroup, for one 8x8x8 product */
  SIMDGROUPS_AT_ONCE = 4,
  AXIS_LIMIT = 1 << 22, /* threadgroups along an axis of one dispatch: positions of threads stay under 2^32 */
};

static double seconds_of(const tc_plan_device *device, tc_plan_cost cost) {
  const tc_plan_chip *chip = device->chip;
  const double cycles = cost.multiplies * MULTIPLY_CYCLES + cost.cycles;
  const double compute = cycles / (SIMDGROUPS_AT_ONCE * chip->cores * chip->gigahertz * 1e9);
  const double memory = cost.bytes / (chip->gigabytes_per_second * 1e9);
  return compute > memory ? compute : memory;
}

/* Threadgroups along an axis of one step, when so many of them are wanted in all. */
static uint64_t axis_share(uint64_t axis, double *wanted) {
  const uint64_t most = tc_plan_min(axis, AXIS_LIMIT);
  const uint64_t share = *wanted < 1 ? 1 : *wanted < (double)most ? (uint64_t)*wanted : most;
  *wanted /= (double)share;
  return share;
}

/* One of the steps that a grid is cut into: from threadgroup (x, y, z) on. */
static tc_status_t emit_share(const tc_plan_builder *b, tc_plan_step step, const uint64_t first[3], const uint64_t share[3],
                              const uint64_t grid[3], double seconds) {
  const tc_origin origin = {.z = first[2], .x = (uint32_t)first[0], .y = (uint32_t)first[1]};
  memcpy(step.params, &origin, sizeof origin);
  step.seconds = seconds;
  for (int axis = 0; axis < 3; axis++) {
    step.threadgroups[axis] = (uint32_t)tc_plan_min(share[axis], grid[axis] - first[axis]);
    step.seconds *= step.threadgroups[axis];
  }
  return append(b->plan, &step);
}

tc_status_t tc_plan_emit(const tc_plan_builder *b, const tc_plan_step *step, tc_plan_grid size, tc_plan_cost cost) {
  const uint64_t grid[3] = {size.x, size.y, size.z};
  TC_REQUIRE(size.x <= UINT32_MAX && size.y <= UINT32_MAX, TC_ERROR_UNSUPPORTED,
             "%llu by %llu threadgroups are more than the device can number", (unsigned long long)size.x,
             (unsigned long long)size.y);
  const double seconds = seconds_of(b->device, cost);
  double wanted = TC_PLAN_SECONDS / seconds;
  uint64_t share[3], first[3];
  for (int axis = 0; axis < 3; axis++) share[axis] = axis_share(grid[axis], &wanted);
  tc_plan_step sized = *step;
  memcpy(sized.threads, (uint32_t[3]){size.threads[0], size.threads[1], 1}, sizeof sized.threads);
  for (first[2] = 0; first[2] < grid[2]; first[2] += share[2]) {
    for (first[1] = 0; first[1] < grid[1]; first[1] += share[1]) {
      for (first[0] = 0; first[0] < grid[0]; first[0] += share[0]) TC_TRY(emit_share(b, sized, first, share, grid, seconds));
    }
  }
  return TC_OK;
}

tc_status_t tc_plan_emit_elements(const tc_plan_builder *b, const tc_plan_step *step, uint64_t columns, uint64_t rows,
                                  uint64_t items, double bytes) {
  uint32_t across = TC_RUN_THREADS; /* as few columns, in a power of two, as there are */
  while (across > 1 && across / 2 >= columns) across /= 2;
  const uint32_t down = TC_RUN_THREADS / across;
  const tc_plan_grid grid = {tc_plan_ceil(columns, across), tc_plan_ceil(rows, down), items, {across, down}};
  const double cycles = 100 + bytes; /* of a simdgroup: addresses, and about one for each byte of an element */
  return tc_plan_emit(b, step, grid, (tc_plan_cost){0, cycles * TC_RUN_THREADS / 32, bytes * TC_RUN_THREADS});
}

tc_status_t tc_plan_emit_tiles(const tc_plan_builder *b, const tc_plan_step *step, const tc_plan_product *product,
                               const tc_plan_tile *tile, const tc_plan_parts *parts, double slowdown) {
  const double depth = (double)(tc_plan_ceil(parts->part, tile->K) * tile->K);
  const tc_plan_cost cost = {.multiplies = slowdown * tile->M * tile->N * depth / 512,
                             .cycles = 1000, /* to begin and to end */
                             .bytes = 2 * (tile->M + tile->N) * depth + 4 * (double)tile->M * tile->N};
  const tc_plan_grid grid = {
      tc_plan_ceil(product->N, tile->N), tc_plan_ceil(product->M, tile->M), product->items * parts->parts, {tile->threads, 1}};
  return tc_plan_emit(b, step, grid, cost);
}
