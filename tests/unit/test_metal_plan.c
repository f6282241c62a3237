/* SPDX-License-Identifier: MIT
 *
 * Plans of the Metal backend, without Metal: every element of an output is some threadgroup's, once; no step is too long, no number
 * too large; what bits depend on is not what the device or the batch is.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/conv_case.h"
#include "metal/plan_steps.h"

static const tc_plan_request none = {TC_CONV_PATH_ANY, false, false, false}, scratch = {TC_CONV_PATH_COL, true, true, true};

static tc_plan_device device_of(const char *chip) { return (tc_plan_device){tc_plan_chip_find(chip, 7), UINT64_C(1) << 36, false}; }

static tc_gemm_batched_desc gemm_of(int64_t M, int64_t N, int64_t K, int64_t batch) {
  tc_gemm_batched_desc d = TC_GEMM_BATCHED_DESC_INIT;
  d.M = M;
  d.N = d.ldb = d.ldc = N;
  d.K = d.lda = K;
  d.batch = batch;
  d.stride_a = M * K;
  d.stride_b = K * N;
  d.stride_c = M * N;
  return d;
}

static tc_conv2d_desc conv_of(conv_shape s) { return conv_make(CONV_FORWARD, s).desc; }

typedef tc_status_t conv_planner(const tc_plan_device *, const tc_conv2d_desc *, const tc_plan_request *, tc_plan *);
static conv_planner *const planners[CONV_OPS] = {tc_plan_conv2d_backward_input, tc_plan_conv2d_backward_weight,
                                                 tc_plan_conv2d_forward};

static bool starts(const char *name, const char *prefix) { return !strncmp(name, prefix, strlen(prefix)); }

static tc_origin origin_of(const tc_plan_step *step) {
  tc_origin origin;
  memcpy(&origin, step->params, sizeof origin);
  return origin;
}

/* ---- Cutting ---- */

/* Steps that are one grid cut: their threadgroups fill the box from 0 to the largest corner, none twice. They come in rising order, so
 * volumes tell. */
static void check_cut(const tc_plan *plan, size_t first, size_t end, const uint64_t grid[3]) {
  uint64_t volume = 0;
  for (size_t i = first; i < end; i++) {
    const tc_plan_step *s = &plan->steps[i];
    const tc_origin o = origin_of(s);
    const uint64_t corner[3] = {o.x + (uint64_t)s->threadgroups[0], o.y + (uint64_t)s->threadgroups[1], o.z + s->threadgroups[2]};
    for (int axis = 0; axis < 3; axis++) CHECK(corner[axis] <= grid[axis] && s->threadgroups[axis] > 0);
    volume += (uint64_t)s->threadgroups[0] * s->threadgroups[1] * s->threadgroups[2];
    if (i > first) {
      const tc_origin before = origin_of(s - 1);
      CHECK(o.z != before.z ? o.z > before.z : o.y != before.y ? o.y > before.y : o.x > before.x);
    }
  }
  CHECK_INT((int64_t)volume, (int64_t)(grid[0] * grid[1] * grid[2]));
}

/* What holds for every step of every plan. */
static void check_steps(const tc_plan *plan) {
  for (size_t i = 0; i < plan->count; i++) {
    const tc_plan_step *s = &plan->steps[i];
    uint64_t threads = 1, groups = 1;
    for (int axis = 0; axis < 3; axis++) {
      threads *= s->threads[axis];
      groups *= s->threadgroups[axis];
      CHECK((uint64_t)s->threads[axis] * s->threadgroups[axis] <= UINT32_MAX);
    }
    CHECK(threads > 0 && threads <= 256 && groups > 0);
    CHECK(groups == 1 || s->seconds <= TC_PLAN_SECONDS * 1.001);
    CHECK(s->params_bytes <= TC_PLAN_PARAMS_BYTES && s->binding_count <= TC_PLAN_BINDINGS &&
          s->kernel.constant_count <= TC_PLAN_CONSTANTS);
    for (uint32_t b = 0; b < s->binding_count; b++) {
      CHECK(s->bindings[b].offset % TC_PLAN_ALIGNMENT == 0);
      CHECK(s->bindings[b].role == TC_ROLE_WORKSPACE ? s->bindings[b].offset < plan->workspace_bytes : s->bindings[b].offset == 0);
      for (uint32_t other = 0; other < b; other++) CHECK(s->bindings[b].index != s->bindings[other].index);
    }
    for (uint32_t c = 0; c < s->kernel.constant_count; c++) {
      for (uint32_t other = 0; other < c; other++) CHECK(s->kernel.constants[c].index != s->kernel.constants[other].index);
    }
  }
}

/* The tile in a kernel's name. */
static const tc_plan_tile *tile_of(const tc_plan_step *step) {
  const char *name = strrchr(step->kernel.name, '_') + 1;
  for (size_t i = 0; i < tc_plan_tile_count; i++) {
    if (!strcmp(tc_plan_tiles[i].name, name)) return &tc_plan_tiles[i];
  }
  return NULL;
}

/* Runs of steps of one kernel. */
static size_t run_end(const tc_plan *plan, size_t first) {
  size_t end = first + 1;
  while (end < plan->count && !strcmp(plan->steps[end].kernel.name, plan->steps[first].kernel.name)) end++;
  return end;
}

static const char *const chip_names[] = {"Apple M1", "Apple M1 Max", "Apple M2 Ultra", "Apple M4 Max", "Apple M5"};

static void gemm_covered(void) {
  static const int64_t sizes[] = {1, 7, 8, 9, 32, 33, 64, 65, 1000, 4097, 33333};
  tc_plan plan = {0};
  rng r = {test_seed()};
  for (int i = 0; i < 2000; i++) {
    const tc_plan_device device = device_of(chip_names[i % (int)COUNT(chip_names)]);
    tc_gemm_batched_desc d = gemm_of(rng_pick(&r, sizes), rng_pick(&r, sizes), rng_pick(&r, sizes), rng_pick(&r, sizes) % 70 + 1);
    d.transpose_b = rng_one_in(&r, 2);
    note("M=%" PRId64 " N=%" PRId64 " K=%" PRId64 " batch=%" PRId64 " %s", d.M, d.N, d.K, d.batch, device.chip->name);
    if (!CHECK_OK(tc_plan_gemm(&device, &d, &plan))) continue;
    check_steps(&plan);
    tc_gemm_params p;
    memcpy(&p, plan.steps[0].params, sizeof p);
    const tc_plan_tile *tile = tile_of(&plan.steps[0]);
    if (!CHECK(tile != NULL)) continue;
    CHECK(p.part * p.parts >= p.K && p.part * (p.parts - 1) < p.K && (p.parts == 1 || p.part % TC_SUM_PRODUCTS == 0));
    const uint64_t grid[3] = {tc_plan_ceil(p.N, tile->N), tc_plan_ceil(p.M, tile->M), (uint64_t)d.batch * p.parts};
    const size_t end = run_end(&plan, 0);
    check_cut(&plan, 0, end, grid);
    CHECK_INT((int64_t)(end < plan.count), (int64_t)(p.parts > 1));
    CHECK(p.parts == 1 || plan.workspace_bytes >= 4 * p.M * p.N * (uint64_t)d.batch * p.parts);
  }
  tc_plan_free(&plan);
}

static void conv_covered(void) {
  tc_plan plan = {0};
  rng r = {test_seed() + 1};
  for (int i = 0; i < 1000; i++) {
    const tc_plan_device device = device_of(chip_names[i % (int)COUNT(chip_names)]);
    const conv_shape s = conv_random_shape(&r, 1 << 26);
    const conv_case c = conv_make((conv_op)(i % CONV_OPS), s);
    const tc_plan_request request = {(tc_conv_path_t)rng_between(&r, 0, 2), c.bias, rng_one_in(&r, 2), rng_one_in(&r, 2)};
    conv_note(&c);
    if (!CHECK_OK(planners[c.op](&device, &c.desc, &request, &plan))) continue;
    check_steps(&plan);
    for (size_t first = 0; first < plan.count; first = run_end(&plan, first)) {
      const tc_plan_step *step = &plan.steps[first];
      const tc_plan_tile *tile = tile_of(step);
      tc_conv2d_params p;
      memcpy(&p, step->params, sizeof p);
      if (!tile || starts(plan.path, "col")) continue;
      const uint64_t products =
          strstr(step->kernel.name, "input_window") ? tc_plan_min(p.stride_h, p.H) * tc_plan_min(p.stride_w, p.W) : 1;
      const uint64_t grid[3] = {tc_plan_ceil(p.N, tile->N), tc_plan_ceil(p.M, tile->M), p.groups * products * p.parts};
      check_cut(&plan, first, run_end(&plan, first), grid);
    }
  }
  tc_plan_free(&plan);
}

/* ---- Huge problems ---- */

/* Operands of terabytes: steps are many, numbers right. */
static void huge_gemm(void) {
  const tc_plan_device device = device_of("Apple M1");
  tc_plan plan = {0};
  tc_gemm_batched_desc d = gemm_of(INT64_C(1) << 33, 40, 16, 3);
  CHECK_OK(tc_plan_gemm(&device, &d, &plan));
  check_steps(&plan);
  const tc_plan_tile *tile = tile_of(&plan.steps[0]);
  check_cut(&plan, 0, plan.count, (const uint64_t[3]){tc_plan_ceil(40, tile->N), (UINT64_C(1) << 33) / tile->M, 3});
  d = gemm_of(3, 3, INT64_C(1) << 40, 1);
  CHECK_OK(tc_plan_gemm(&device, &d, &plan));
  check_steps(&plan);
  d = gemm_of(1 << 14, 1 << 14, INT64_C(1) << 34, 1); /* no part has more products than an int counts, whatever memory that takes */
  tc_gemm_params p;
  CHECK_OK(tc_plan_gemm(&device, &d, &plan));
  memcpy(&p, plan.steps[0].params, sizeof p);
  CHECK(p.part <= INT32_MAX && p.part * p.parts >= p.K);
  d = gemm_of(1, 1, 1, INT64_C(1) << 36);
  CHECK_OK(tc_plan_gemm(&device, &d, &plan));
  check_steps(&plan);
  check_cut(&plan, 0, plan.count, (const uint64_t[3]){1, 1, UINT64_C(1) << 36});
  tc_plan_free(&plan);
}

static void huge_conv(void) {
  const tc_plan_device device = device_of("Apple M1");
  tc_plan plan = {0};
  tc_conv2d_desc d = conv_of((conv_shape){1 << 20, 16, 32, 64, 64, 3, 3, 1, 1, 1, 1, 1}); /* 2^36 elements of X */
  for (conv_op op = 0; op < CONV_OPS; op++) {
    for (int col = 0; col < 2; col++) {
      note("%s, col %d", conv_names[op], col);
      CHECK_OK(planners[op](&device, &d, col ? &scratch : &none, &plan));
      check_steps(&plan);
    }
  }
  tc_plan_free(&plan);
}

/* What indices of 32 bits inside a tile can't reach is an error, with its size. */
static void too_large(void) {
  const tc_plan_device device = device_of("Apple M1");
  static const struct {
    const char *name;
    conv_shape shape;
  } rows[] = {
      {"W + 2*pad_left", {1, 1, 1, 1, INT64_C(1) << 31, 1, 3, 0, 0, 1, 1, 1}},
      {"H*W", {1, 1, 1, 1 << 16, 1 << 16, 3, 3, 0, 0, 1, 1, 1}},
      {"kH*kW", {1, 1, 1, 1, 1, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1, 1, 1}},
      {"in_channels/groups*H*W", {1, 1 << 10, 1, 1 << 12, 1 << 12, 3, 3, 1, 1, 1, 1, 1}},
      {"groups", {1, INT64_C(1) << 31, INT64_C(1) << 31, 1, 1, 1, 1, 0, 0, 1, 1, INT64_C(1) << 31}},
  };
  tc_plan plan = {0};
  for (size_t i = 0; i < COUNT(rows); i++) {
    const tc_conv2d_desc d = conv_of(rows[i].shape);
    note("%s", rows[i].name);
    for (conv_op op = 0; op < CONV_OPS; op++) {
      CHECK_STATUS(planners[op](&device, &d, &none, &plan), TC_ERROR_UNSUPPORTED);
      CHECK(strstr(tc_last_error(), rows[i].name) != NULL);
    }
  }
  tc_plan_free(&plan);
}

static void too_much_memory(void) {
  tc_plan_device device = device_of("Apple M1");
  device.max_buffer_bytes = 1 << 16;
  tc_plan plan = {0};
  const tc_gemm_batched_desc d = gemm_of(64, 64, 1 << 16, 1);
  CHECK_STATUS(tc_plan_gemm(&device, &d, &plan), TC_ERROR_MEMORY);
  tc_plan_free(&plan);
}

/* ---- What bits depend on ---- */

/* A cut sum is cut into parts of TC_SUM_PRODUCTS, whose order of adding is the one inside a threadgroup: for forward and
 * backward_input nothing else is allowed, so that batch and device can't matter; for GEMM neither, up to the length at which all sums
 * are cut. */
static bool order_is_one(uint64_t part, uint64_t parts) {
  return parts == 1 || (part == TC_SUM_PRODUCTS && parts <= TC_SUM_PRODUCTS); /* more are added in groups */
}

static void check_conv_order(conv_op op, const tc_plan_device *device, conv_shape s, tc_plan *plan) {
  const tc_conv2d_desc d = conv_of(s);
  CHECK_OK(planners[op](device, &d, &none, plan));
  for (size_t k = 0; k < plan->count; k++) {
    tc_conv2d_params p;
    memcpy(&p, plan->steps[k].params, sizeof p);
    if (tile_of(&plan->steps[k])) CHECK(order_is_one(p.part, p.parts));
  }
}

static void order_of_sums(void) {
  tc_plan plan = {0};
  rng r = {test_seed() + 2};
  for (int i = 0; i < 2000; i++) {
    const tc_plan_device device = device_of(chip_names[i % (int)COUNT(chip_names)]);
    conv_shape s = conv_random_shape(&r, 1 << 22);
    s.in_channels *= 40;
    s.out_channels *= 40;
    s.batch *= rng_between(&r, 1, 100);
    check_conv_order(i % 2 ? CONV_FORWARD : CONV_BACKWARD_INPUT, &device, s, &plan);
    const tc_gemm_batched_desc g = gemm_of(rng_between(&r, 1, 500), rng_between(&r, 1, 500), rng_between(&r, 1, TC_PLAN_LONG_K), 1);
    CHECK_OK(tc_plan_gemm(&device, &g, &plan));
    tc_gemm_params p;
    memcpy(&p, plan.steps[0].params, sizeof p);
    CHECK(order_is_one(p.part, p.parts));
  }
  const tc_plan_device device = device_of("Apple M1");
  check_conv_order(CONV_FORWARD, &device, (conv_shape){1, 40000, 8, 3, 3, 3, 3, 0, 0, 1, 1, 1}, &plan);
  check_conv_order(CONV_BACKWARD_INPUT, &device, (conv_shape){1, 8, 40000, 3, 3, 3, 3, 0, 0, 1, 1, 1}, &plan);
  tc_plan_free(&plan);
}

/* The parts of dW and of long products depend on the problem only. */
static void parts_on_any_device(void) {
  tc_plan plan = {0};
  rng r = {test_seed() + 3};
  for (int i = 0; i < 300; i++) {
    conv_shape s = conv_random_shape(&r, 1 << 22);
    s.batch *= 50;
    const tc_conv2d_desc d = conv_of(s);
    const tc_gemm_batched_desc g = gemm_of(s.in_channels, s.out_channels, TC_PLAN_LONG_K + rng_between(&r, 1, 1 << 20), 1);
    uint64_t parts[2][COUNT(chip_names)];
    for (size_t c = 0; c < COUNT(chip_names); c++) {
      const tc_plan_device device = device_of(chip_names[c]);
      tc_conv2d_params p;
      tc_gemm_params q;
      CHECK_OK(tc_plan_conv2d_backward_weight(&device, &d, &none, &plan));
      memcpy(&p, plan.steps[0].params, sizeof p);
      CHECK_OK(tc_plan_gemm(&device, &g, &plan));
      memcpy(&q, plan.steps[0].params, sizeof q);
      parts[0][c] = p.part;
      parts[1][c] = q.part;
      CHECK(parts[0][c] == parts[0][0] && parts[1][c] == parts[1][0]);
    }
  }
  tc_plan_free(&plan);
}

/* ---- Paths and scratch ---- */

static bool has_step(const tc_plan *plan, const char *prefix) {
  for (size_t i = 0; i < plan->count; i++) {
    if (starts(plan->steps[i].kernel.name, prefix)) return true;
  }
  return false;
}

static void paths(void) {
  const tc_plan_device device = device_of("Apple M1");
  tc_plan plan = {0};
  tc_conv2d_desc d = conv_of((conv_shape){2, 3, 4, 9, 9, 3, 3, 1, 1, 1, 1, 1});
  CHECK_OK(tc_plan_conv2d_forward(&device, &d, &scratch, &plan));
  CHECK(has_step(&plan, "tc_conv2d_im2col"));
  CHECK_STRING(plan.path, "col");
  CHECK_OK(tc_plan_conv2d_backward_weight(&device, &d, &scratch, &plan));
  CHECK(has_step(&plan, "tc_conv2d_im2col"));
  CHECK_OK(tc_plan_conv2d_backward_input(&device, &d, &scratch, &plan));
  CHECK(has_step(&plan, "tc_conv2d_col2im"));
  d.math_mode = TC_MATH_DETERMINISTIC;
  CHECK_OK(tc_plan_conv2d_backward_input(&device, &d, &scratch, &plan));
  CHECK(!has_step(&plan, "tc_conv2d_col2im"));
  CHECK_STRING(plan.path, "implicit");
  for (conv_op op = 0; op < CONV_OPS; op++) { /* no scratch, no matrix */
    const tc_plan_request request = {TC_CONV_PATH_COL, false, false, false};
    CHECK_OK(planners[op](&device, &d, &request, &plan));
    CHECK(!has_step(&plan, "tc_conv2d_im2col") && !has_step(&plan, "tc_conv2d_col2im"));
  }
  tc_plan_free(&plan);
}

/* dCol in fp32 stays inside scratch_col's documented bytes, and its slices together are all rows of all images, each once. */
static void slices(void) {
  const tc_plan_device device = device_of("Apple M1");
  tc_plan plan = {0};
  rng r = {test_seed() + 4};
  for (int i = 0; i < 2000; i++) {
    const conv_case c = conv_make(CONV_BACKWARD_INPUT, conv_random_shape(&r, 1 << 20));
    const tc_conv2d_desc *d = &c.desc;
    conv_note(&c);
    CHECK_OK(tc_plan_conv2d_backward_input(&device, d, &scratch, &plan));
    uint64_t elements = 0;
    for (size_t k = 0; k < plan.count; k++) {
      const tc_plan_step *s = &plan.steps[k];
      tc_conv2d_params p;
      memcpy(&p, s->params, sizeof p);
      if (!starts(s->kernel.name, "tc_conv2d_col2im")) continue;
      CHECK(4 * p.M * p.N <= tc_conv2d_scratch_col_bytes(d->batch, d->in_channels, d->kH, d->kW, d->out_H, d->out_W));
      CHECK(p.first_row + p.M <= (uint64_t)(d->in_channels * d->kH * d->kW));
      elements += p.M * p.N;
    }
    CHECK(!starts(plan.path, "col") || elements == (uint64_t)(d->batch * d->in_channels * d->kH * d->kW * d->out_H * d->out_W));
  }
  tc_plan_free(&plan);
}

/* ---- Tiles ---- */

static void tiles(void) {
  static const struct {
    const char *chip;
    int64_t M, N, K;
    int32_t transpose_b;
    const char *kernel;
  } rows[] = {
      {"Apple M1", 1024, 1024, 1024, 0, "tc_gemm_nn_64x64"},     {"Apple M1", 1024, 1024, 1024, 1, "tc_gemm_nt_64x32"},
      {"Apple M1 Max", 2048, 2048, 64, 1, "tc_gemm_nt_64x64"},   {"Apple M1", 128, 128, 64, 0, "tc_gemm_nn_32x32"},
      {"Apple M1", 1, 4096, 4096, 0, "tc_gemm_nn_8x64"},         {"Apple M1", 4096, 1, 4096, 0, "tc_gemm_nn_64x8"},
      {"Apple M1", 32, 4096, 64, 0, "tc_gemm_nn_32x64"},         {"Apple M2 Ultra", 1024, 1024, 1024, 0, "tc_gemm_nn_64x64"},
      {"Apple M2 Ultra", 512, 1568, 512, 0, "tc_gemm_nn_32x64"},
  };
  tc_plan plan = {0};
  for (size_t i = 0; i < COUNT(rows); i++) {
    const tc_plan_device device = device_of(rows[i].chip);
    tc_gemm_batched_desc d = gemm_of(rows[i].M, rows[i].N, rows[i].K, 1);
    d.transpose_b = rows[i].transpose_b;
    CHECK_OK(tc_plan_gemm(&device, &d, &plan));
    CHECK_STRING(plan.steps[0].kernel.name, rows[i].kernel);
  }
  tc_plan_free(&plan);
}

static void chips(void) {
  size_t count;
  const tc_plan_chip *all = tc_plan_chips(&count);
  for (size_t i = 0; i < count; i++) CHECK(tc_plan_chip_find(all[i].name, 0) == &all[i]);
  CHECK_STRING(tc_plan_chip_find("Apple M2 Ultra", 7)->name, "Apple M2 Ultra");
  CHECK_STRING(tc_plan_chip_find("Apple M9", 9)->name, "Apple M3");
  CHECK_STRING(tc_plan_chip_find(NULL, 8)->name, "Apple M2");
  CHECK_STRING(tc_plan_chip_find("no such", 99)->name, "Apple M5");
  CHECK_STRING(tc_plan_chip_find("no such", 1)->name, "Apple M1");
}

int main(int argc, char **argv) {
  static const test tests[] = {{"gemm_covered", gemm_covered},
                               {"conv_covered", conv_covered},
                               {"huge_gemm", huge_gemm},
                               {"huge_conv", huge_conv},
                               {"too_large", too_large},
                               {"too_much_memory", too_much_memory},
                               {"order_of_sums", order_of_sums},
                               {"parts_on_any_device", parts_on_any_device},
                               {"paths", paths},
                               {"slices", slices},
                               {"tiles", tiles},
                               {"chips", chips}};
  return run_tests("metal_plan", tests, COUNT(tests), argc, argv);
}
