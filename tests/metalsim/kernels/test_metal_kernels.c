/* SPDX-License-Identifier: MIT
 *
 * The Metal kernels by themselves: the steps of a plan on the face, without Metal's host API, for devices of different sizes, whose
 * plans have different tiles and parts; against fp64, and bit by bit against each other.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/context.h"
#include "common/conv_case.h"
#include "common/gemm_case.h"
#include "dispatch.h"

static tc_context *ctx; /* the CPU's; it wraps the operands' memory and computes nothing */

/* With one core no product has few tiles; with very many, each has, so that it gets small tiles and is cut along K. */
static const tc_plan_chip tiny = {"one core", 7, 1, 1, 50}, huge = {"many cores", 9, 100000, 1, 1e6};
static const tc_plan_device devices[] = {
    {&tiny, UINT64_C(1) << 40, false},
    {&huge, UINT64_C(1) << 40, false},
    {&tiny, UINT64_C(1) << 40, true},
};

/* ---- GEMM ---- */

static face_binding bound(const operand *o) { return (face_binding){o->memory.data, o->memory.bytes}; }

/* As the core does: leading dimensions are filled in. */
static tc_gemm_batched_desc complete(const gemm_case *g) {
  tc_gemm_batched_desc d = g->desc;
  if (!d.lda) d.lda = d.transpose_a ? d.M : d.K;
  if (!d.ldb) d.ldb = d.transpose_b ? d.K : d.N;
  if (!d.ldc) d.ldc = d.N;
  return d;
}

static bool gemm_run(gemm_case *g, const tc_plan_device *device) {
  tc_plan plan = {0};
  const tc_gemm_batched_desc d = complete(g);
  operand_restore(&g->C, g->before);
  bool good = CHECK_OK(tc_plan_gemm(device, &d, &plan));
  good =
      good &&
      plan_run(&plan, (face_binding[TC_ROLES]){[TC_ROLE_A] = bound(&g->A), [TC_ROLE_B] = bound(&g->B), [TC_ROLE_C] = bound(&g->C)});
  tc_plan_free(&plan);
  return good;
}

/* On all devices: right, and the same. */
static bool gemm_check_kernels(gemm_case *g, rng *r, accuracy how) {
  gemm_note(g);
  gemm_open(g, ctx, r);
  expected *want = gemm_reference(g);
  uint8_t *first = NULL;
  bool right = true;
  for (size_t i = 0; right && i < COUNT(devices); i++) {
    right = gemm_run(g, &devices[i]) && check_output(&g->C, want, g->before, how, NULL);
    if (!first) first = operand_snapshot(&g->C);
    right = right && (!first || CHECK_BYTES(g->C.memory.data, first, g->C.memory.bytes)); /* none of an operand with wide gaps */
  }
  free(first);
  free(want);
  gemm_close(g, ctx);
  return right;
}

/* M, N, K that reach each tile, its edges, and K beyond one sum. */
static const int64_t gemm_sizes[][3] = {
    {1, 1, 1},     {1, 70, 33},    {8, 65, 129},  {70, 1, 40},    {65, 8, 31},    {9, 9, 9},      {32, 64, 16},
    {31, 130, 40}, {64, 64, 64},   {65, 65, 65},  {33, 47, 100},  {200, 130, 20}, {192, 128, 32}, {130, 194, 7},
    {17, 16, 513}, {40, 24, 1030}, {3, 20, 1500}, {600, 130, 20}, {130, 600, 9},  {129, 70, 600},
};

static void gemm_shapes(void) {
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(gemm_sizes); i++) {
    const int64_t *size = gemm_sizes[i];
    for (int transposes = 0; transposes < 4; transposes++) {
      gemm_case g = gemm_make(size[0], size[1], size[2]);
      if (!sampled(&r)) continue;
      g.desc.transpose_a = transposes & 1;
      g.desc.transpose_b = transposes >> 1;
      g.place = i % 2 ? AT_END : AT_START;
      gemm_check_kernels(&g, &r, RULE_RANDOM);
    }
  }
}

static void gemm_random(void) {
  static const contents data[] = {{DATA_NORMAL, 1}, {DATA_SPECIAL, 100}, {DATA_FINITE, 0}, {DATA_SUBNORMAL, 0}};
  rng r = {test_seed() + 1};
  for (int64_t i = scaled(60); i > 0; i--) {
    const int64_t *size = gemm_sizes[rng_between(&r, 0, COUNT(gemm_sizes) - 1)];
    gemm_case g = gemm_make(size[0], size[1], size[2]);
    gemm_randomize(&g, &r);
    if (rng_one_in(&r, 3)) gemm_batch(&g, rng_between(&r, 2, 4), &r);
    g.a_data = g.b_data = g.c_data = data[rng_between(&r, 0, COUNT(data) - 1)];
    gemm_check_kernels(&g, &r, RULE_BOUND);
    gemm_integers(&g, rng_one_in(&r, 2) && g.desc.K <= 2048);
    if (g.desc.K <= 2048) gemm_check_kernels(&g, &r, RULE_EXACT);
  }
}

/* K = 0 and alpha = 0. */
static void gemm_scales(void) {
  rng r = {test_seed() + 2};
  for (int beta = 0; beta < 2; beta++) {
    for (int f32 = 0; f32 < 2; f32++) {
      gemm_case g = gemm_make(37, 21, beta ? 0 : 5);
      g.desc.alpha = beta ? 1 : 0;
      g.desc.beta = (float)beta * 0.5f;
      g.desc.c_dtype = f32 ? TC_DTYPE_F32 : TC_DTYPE_F16;
      gemm_check_kernels(&g, &r, RULE_EXACT);
    }
  }
}

/* Sums that are cut because they are long. */
static void gemm_long(void) {
  rng r = {test_seed() + 3};
  gemm_case g = gemm_make(2, 3, TC_SUM_PRODUCTS * 300 + 5);
  g.a_data = g.b_data = (contents){DATA_CONSTANT, 0.1};
  g.desc.c_dtype = TC_DTYPE_F32;
  gemm_check_kernels(&g, &r, RULE_BOUND);
}

/* Matrices whose rows, and the batch's matrices, are more than 2^32 elements apart; memory stands behind the elements only. */
static void gemm_far(void) {
  rng r = {test_seed() + 10};
  for (int transposes = 0; transposes < 4; transposes++) {
    gemm_case g = gemm_make(3, 4, 3);
    g.desc.transpose_a = transposes & 1;
    g.desc.transpose_b = transposes >> 1;
    g.desc.lda = g.desc.ldb = g.desc.ldc = (INT64_C(1) << 31) + 4;
    g.desc.a_offset = g.desc.b_offset = g.desc.c_offset = (INT64_C(1) << 32) + 8;
    g.desc.batch = 2;
    g.desc.stride_a = g.desc.stride_b = g.desc.stride_c = (INT64_C(1) << 33) + 12;
    gemm_check_kernels(&g, &r, RULE_RANDOM);
  }
}

/* ---- Convolution ---- */

typedef tc_status_t conv_planner(const tc_plan_device *, const tc_conv2d_desc *, const tc_plan_request *, tc_plan *);
static conv_planner *const planners[CONV_OPS] = {tc_plan_conv2d_backward_input, tc_plan_conv2d_backward_weight,
                                                 tc_plan_conv2d_forward};

static bool conv_run(conv_case *c, const tc_plan_device *device, tc_conv_path_t path) {
  const tc_plan_request request = {path, c->bias, c->scratch_col, c->scratch_dx};
  tc_plan plan = {0};
  operand_restore(conv_output(c), c->before);
  bool good = CHECK_OK(planners[c->op](device, &c->desc, &request, &plan));
  good = good && plan_run(&plan, (face_binding[TC_ROLES]){[TC_ROLE_X] = bound(&c->tensor[X]),
                                                          [TC_ROLE_WEIGHT] = bound(&c->tensor[W]),
                                                          [TC_ROLE_Y] = bound(&c->tensor[Y]),
                                                          [TC_ROLE_BIAS] = bound(&c->tensor[BIAS]),
                                                          [TC_ROLE_SCRATCH_COL] = bound(&c->col),
                                                          [TC_ROLE_SCRATCH_DX] = bound(&c->dx)});
  tc_plan_free(&plan);
  return good;
}

/* On all devices, by both paths: right; and the same, but for what col2im adds in any order. */
static bool conv_check_kernels(conv_case *c, rng *r, accuracy how) {
  conv_note(c);
  conv_open(c, ctx, r);
  expected *want = conv_reference(c);
  operand *output = conv_output(c);
  uint8_t *first = NULL;
  bool right = true;
  for (int path = TC_CONV_PATH_ANY; path <= TC_CONV_PATH_IMPLICIT; path++) {
    for (size_t i = 0; right && i < COUNT(devices); i++) {
      right = conv_run(c, &devices[i], (tc_conv_path_t)path) && check_output(output, want, c->before, how, NULL);
      if (!first) first = operand_snapshot(output);
      const bool any_order = path == TC_CONV_PATH_COL && c->op == CONV_BACKWARD_INPUT && how != RULE_EXACT;
      right = right && (any_order || CHECK_BYTES(output->memory.data, first, output->memory.bytes));
    }
  }
  free(first);
  free(want);
  conv_close(c, ctx);
  return right;
}

/* batch, in and out channels, H, W, kH, kW, pads, strides, groups */
static const conv_shape conv_shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1},   {2, 3, 5, 7, 9, 3, 3, 1, 1, 1, 1, 1},   {2, 16, 33, 6, 6, 3, 3, 1, 1, 2, 2, 1},
    {1, 20, 70, 8, 8, 1, 1, 0, 0, 1, 1, 1}, {3, 12, 40, 5, 5, 1, 1, 0, 0, 1, 1, 1}, {2, 8, 12, 9, 9, 1, 1, 0, 0, 2, 2, 1},
    {2, 4, 4, 13, 13, 3, 3, 1, 1, 2, 2, 4}, {2, 6, 9, 8, 8, 3, 2, 2, 0, 1, 3, 3},   {1, 2, 3, 12, 13, 7, 7, 3, 3, 2, 2, 1},
    {1, 2, 2, 3, 3, 9, 5, 4, 2, 1, 1, 1},   {2, 3, 4, 8, 8, 2, 2, 0, 0, 5, 4, 1},   {1, 4, 6, 16, 16, 8, 8, 0, 0, 8, 8, 1},
    {1, 64, 80, 5, 5, 3, 3, 1, 1, 1, 1, 1}, {5, 70, 8, 3, 3, 3, 3, 1, 1, 1, 1, 1},  {1, 2, 8, 20, 1, 17, 1, 0, 0, 1, 1, 2},
    {2, 5, 7, 10, 10, 3, 3, 5, 5, 1, 1, 1}, {1, 1, 1, 1, 300, 1, 3, 0, 0, 1, 1, 1}, {4, 3, 4, 1, 1, 1, 1, 0, 0, 1, 1, 1},
    {1, 300, 9, 2, 2, 2, 2, 1, 1, 1, 1, 1}, {2, 4, 6, 4, 4, 4, 4, 0, 0, 3, 3, 1},   {1, 1, 2, 23, 26, 23, 24, 0, 1, 1, 1, 1},
};

static void conv_all_shapes(void) {
  rng r = {test_seed() + 4};
  for (size_t i = 0; i < COUNT(conv_shapes); i++) {
    for (conv_op op = 0; op < CONV_OPS; op++) {
      conv_case c = conv_make(op, conv_shapes[i]);
      c.place = i % 2 ? AT_END : AT_START;
      if (sampled(&r)) conv_check_kernels(&c, &r, RULE_RANDOM);
    }
  }
}

static void conv_random(void) {
  rng r = {test_seed() + 5};
  for (int64_t i = scaled(60); i > 0; i--) {
    conv_case c = conv_make((conv_op)(i % CONV_OPS), conv_random_shape(&r, 1 << 16));
    conv_randomize(&c, &r);
    if (rng_one_in(&r, 3)) c.fill[X] = c.fill[W] = c.fill[Y] = (contents){DATA_SPECIAL, 50};
    conv_check_kernels(&c, &r, RULE_BOUND);
    conv_integers(&c, conv_terms(&c.desc, c.op) < 2048);
    conv_check_kernels(&c, &r, RULE_EXACT);
  }
}

/* One weight that is not finite: it reaches the pixels that it has a pair with, by a loop over pairs, and the rest stays right. */
static void conv_weights_not_finite(void) {
  rng r = {test_seed() + 6};
  for (size_t i = 0; i < COUNT(conv_shapes); i++) {
    conv_case c = conv_make(CONV_BACKWARD_INPUT, conv_shapes[i]);
    c.fill[W] = (contents){DATA_SPECIAL, 2 * conv_terms(&c.desc, CONV_BACKWARD_INPUT)};
    conv_check_kernels(&c, &r, RULE_BOUND);
    c.fill[W] = (contents){DATA_CONSTANT, INFINITY};
    conv_check_kernels(&c, &r, RULE_EXACT);
  }
}

/* The bits of an image, alone and in a batch of different sizes. */
static void conv_alone(void) {
  rng r = {test_seed() + 7};
  static const conv_op ops[] = {CONV_FORWARD, CONV_BACKWARD_INPUT};
  for (size_t i = 0; i < COUNT(conv_shapes); i++) {
    for (size_t o = 0; o < COUNT(ops); o++) {
      conv_shape shape = conv_shapes[i];
      shape.batch = 3;
      conv_case c = conv_make(ops[o], shape);
      conv_note(&c);
      conv_open(&c, ctx, &r);
      operand *output = conv_output(&c);
      const size_t image = output->memory.bytes / 3;
      bool good = conv_run(&c, &devices[0], TC_CONV_PATH_IMPLICIT);
      uint8_t *all = operand_snapshot(output);
      for (int n = 0; good && n < 3; n++) {
        c.desc.batch = 1;
        c.desc.x_offset = n * c.desc.in_channels * c.desc.H * c.desc.W;
        c.desc.y_offset = n * c.desc.out_channels * c.desc.out_H * c.desc.out_W;
        good = conv_run(&c, &devices[1], TC_CONV_PATH_IMPLICIT) &&
               CHECK_BYTES(output->memory.data + (size_t)n * image, all + (size_t)n * image, image);
      }
      free(all);
      c.desc.batch = 3;
      c.desc.x_offset = c.desc.y_offset = 0;
      conv_close(&c, ctx);
    }
  }
}

/* dW of no images is 0. */
static void conv_no_images(void) {
  rng r = {test_seed() + 8};
  conv_shape shape = conv_shapes[1];
  shape.batch = 0;
  conv_case c = conv_make(CONV_BACKWARD_WEIGHT, shape);
  c.scratch_col = false;
  conv_check_kernels(&c, &r, RULE_EXACT);
  c.desc.w_dtype = TC_DTYPE_F32;
  c.desc.w_offset = 3;
  conv_check_kernels(&c, &r, RULE_EXACT);
}

/* Planes of 2^31 elements, of which one tap with a wide stride sees four: images and groups are 2^31 and 2^32 elements apart. */
static void conv_far(void) {
  const int64_t side = 46000, plane = side * side, images = 2, groups = 2;
  tc_conv2d_desc d =
      conv_make(CONV_FORWARD, (conv_shape){images, groups, groups, side, side, 1, 1, 0, 0, side - 1, side - 1, groups}).desc;
  d.x_offset = (INT64_C(1) << 32) + 1;
  guarded x = guarded_open((size_t)(d.x_offset + images * groups * plane) * 2, AT_END);
  uint16_t *pixels = (uint16_t *)(void *)x.data + d.x_offset, y[16], dy[16], col[16], w[2] = {half_round(1), half_round(3)};
  float dw[2];
  for (int64_t i = 0; i < 16; i++) { /* image, group, corner */
    pixels[i / 4 * plane + i / 2 % 2 * (side - 1) * side + i % 2 * (side - 1)] = half_round((double)i + 1);
    dy[i] = half_round((double)(1 << i / 4));
  }
  const double want[2] = {1 * (1 + 2 + 3 + 4) + 4 * (9 + 10 + 11 + 12), 2 * (5 + 6 + 7 + 8) + 8 * (13 + 14 + 15 + 16)};
  for (int path = TC_CONV_PATH_COL; path <= TC_CONV_PATH_IMPLICIT; path++) {
    const tc_plan_request request = {(tc_conv_path_t)path, false, true, false};
    face_binding operands[TC_ROLES] = {[TC_ROLE_X] = {x.data, x.bytes},
                                       [TC_ROLE_WEIGHT] = {w, sizeof w},
                                       [TC_ROLE_Y] = {y, sizeof y},
                                       [TC_ROLE_SCRATCH_COL] = {col, sizeof col}};
    tc_plan plan = {0};
    CHECK_OK(tc_plan_conv2d_forward(&devices[0], &d, &request, &plan));
    plan_run(&plan, operands);
    for (int64_t i = 0; i < 16; i++) CHECK_INT(y[i], half_round(((double)i + 1) * (i / 4 % 2 ? 3 : 1)));
    operands[TC_ROLE_WEIGHT] = (face_binding){dw, sizeof dw};
    operands[TC_ROLE_Y] = (face_binding){dy, sizeof dy};
    d.w_dtype = TC_DTYPE_F32;
    CHECK_OK(tc_plan_conv2d_backward_weight(&devices[0], &d, &request, &plan));
    plan_run(&plan, operands);
    for (int i = 0; i < 2; i++) CHECK(dw[i] == want[i]);
    d.w_dtype = TC_DTYPE_F16;
    tc_plan_free(&plan);
  }
  guarded_close(&x);
}

/* ---- Single kernels ---- */

static void probe(void) {
  uint32_t in[TC_PROBE_WORDS], out[TC_PROBE_WORDS] = {0};
  for (size_t i = 0; i < TC_PROBE_WORDS; i++) in[i] = tc_plan_probe[i].input;
  const face_binding output = {out, sizeof out}, buffers[] = {{in, sizeof in}, output, output};
  if (!kernel_run("tc_probe", buffers, COUNT(buffers), 32)) return;
  for (size_t i = 0; i < TC_PROBE_WORDS; i++) {
    note("%s", tc_plan_probe[i].what);
    CHECK_INT(out[i], tc_plan_probe[i].expected);
  }
}

/* Floats around each half, and what no half is near: by conversion and in integer arithmetic. */
static void rounding(void) {
  enum { HALVES = 0x7c00, AROUND = 5, MORE = 64, ALL = 2 * (HALVES * AROUND + MORE) };
  rng r = {test_seed() + 9};
  float *in = allocate(ALL, sizeof *in);
  uint16_t *out = allocate(ALL, sizeof *out);
  int64_t n = 0;
  for (int half = 0; half < HALVES; half++) {
    const float low = (float)half_value((uint16_t)half),
                middle = (low + (half + 1 < HALVES ? (float)half_value((uint16_t)(half + 1)) : 65536.0f)) / 2;
    const float around[AROUND] = {low, nextafterf(low, 1e9f), nextafterf(middle, 0), middle, nextafterf(middle, 1e9f)};
    for (int i = 0; i < AROUND; i++) in[n++] = around[i];
  }
  static const float far[] = {INFINITY, NAN, 1e-30f, 65536, 3e38f, 0x1p-25f, 0x1p-26f, 0x1.8p-25f};
  for (int i = 0; i < MORE; i++) in[n++] = i < (int)COUNT(far) ? far[i] : (float)(rng_normal(&r) * 1e5);
  for (int64_t i = 0; i < n; i++) in[n + i] = -in[i];
  for (int in_bits = 0; in_bits < 2; in_bits++) {
    tc_plan_step step = {.kernel = {"tc_round", 1, {{TC_CONSTANT_ROUND_IN_BITS, in_bits}}},
                         .params_bytes = sizeof(tc_run_params),
                         .binding_count = 2,
                         .bindings = {{TC_BUFFER_X, TC_ROLE_X, false, 0}, {TC_BUFFER_Y, TC_ROLE_Y, true, 0}},
                         .threadgroups = {(ALL + TC_RUN_ELEMENTS - 1) / TC_RUN_ELEMENTS, 1, 1},
                         .threads = {TC_RUN_THREADS, 1, 1}};
    memcpy(step.params, &(tc_run_params){.count = ALL}, sizeof(tc_run_params));
    const tc_plan plan = {.steps = &step, .count = 1};
    const face_binding operands[TC_ROLES] = {[TC_ROLE_X] = {in, ALL * sizeof *in}, [TC_ROLE_Y] = {out, ALL * sizeof *out}};
    if (!plan_run(&plan, operands)) break;
    for (int64_t i = 0; i < ALL; i++) {
      note("%a, in bits: %d", (double)in[i], in_bits);
      if (!CHECK_INT(out[i], half_round((double)in[i]))) break;
    }
  }
  free(in);
  free(out);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"probe", probe},
                               {"rounding", rounding},
                               {"gemm_shapes", gemm_shapes},
                               {"gemm_random", gemm_random},
                               {"gemm_scales", gemm_scales},
                               {"gemm_long", gemm_long},
                               {"gemm_far", gemm_far},
                               {"conv_all_shapes", conv_all_shapes},
                               {"conv_random", conv_random},
                               {"conv_weights_not_finite", conv_weights_not_finite},
                               {"conv_alone", conv_alone},
                               {"conv_no_images", conv_no_images},
                               {"conv_far", conv_far}};
  kernels_open();
  ctx = open_context();
  const int status = run_tests("metal_kernels", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  kernels_close();
  return status;
}
