/* SPDX-License-Identifier: MIT
 *
 * The three directions of convolution against fp64 on one ISA: sizes, groups, offsets, NaN and infinity, padding, subnormals, long
 * sums, integers, adjoint identities, and tensors of more than 2^31 elements.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/conv_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tc_context *ctx;

static bool check_case(conv_case c, accuracy how) {
  rng r = {test_seed()};
  return conv_check(&c, ctx, &r, how);
}

/* All directions of a shape; numbers in every input. */
static void check_shape(conv_shape s, contents numbers, accuracy how) {
  for (conv_op op = 0; op < CONV_OPS; op++) {
    conv_case c = conv_make(op, s);
    for (int t = 0; t < TENSORS; t++) c.fill[t] = numbers;
    check_case(c, how);
  }
}

/* Kernels, strides and paddings in every combination, among them kernels larger than the input, and strides and paddings larger
 * than the kernel. Channels and batch change from one to the next. */
static void sweep(void) {
  static const int64_t kernels[][2] = {{1, 1}, {2, 2}, {3, 3}, {5, 5}, {7, 7}, {1, 3}, {3, 1}, {9, 2}, {12, 13}};
  static const int64_t strides[][2] = {{1, 1}, {2, 2}, {3, 3}, {1, 2}, {2, 1}, {8, 14}};
  static const int64_t channels[] = {1, 2, 3, 4, 5, 8, 15, 16, 17}, batches[] = {1, 1, 2, 3}, sizes[] = {1, 2, 5, 8, 9, 16, 17};
  rng r = {test_seed()};
  int64_t all = COUNT(kernels) * COUNT(strides) * 5 * 4;
  for (int64_t i = 0; i < all; i++) {
    const int64_t *k = kernels[i % COUNT(kernels)], *s = strides[i / COUNT(kernels) % COUNT(strides)];
    int64_t padding = i / COUNT(kernels) / COUNT(strides) % 5;
    const int64_t pads[][2] = {{0, 0}, {1, 1}, {k[0] - 1, k[1] - 1}, {k[0], k[1]}, {k[0] + 2, k[1] / 2}};
    conv_shape shape = {.batch = rng_pick(&r, batches),
                        .in_channels = rng_pick(&r, channels),
                        .out_channels = rng_pick(&r, channels),
                        .H = rng_pick(&r, sizes),
                        .W = rng_pick(&r, sizes),
                        .kH = k[0],
                        .kW = k[1],
                        .pad_h = pads[padding][0],
                        .pad_w = pads[padding][1],
                        .stride_h = s[0],
                        .stride_w = s[1]};
    conv_case c = conv_make((conv_op)rng_between(&r, 0, CONV_OPS - 1), shape);
    if (!conv_has_output(shape) || !sampled(&r)) continue;
    conv_randomize(&c, &r);
    conv_check(&c, ctx, &r, RULE_RANDOM);
  }
}

/* Every pair of channel counts. */
static void channels(void) {
  static const int64_t counts[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 32, 33, 67};
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(counts) * COUNT(counts); i++) {
    int64_t in = counts[i % COUNT(counts)], out = counts[i / COUNT(counts)];
    if (!sampled(&r)) continue;
    check_shape((conv_shape){1, in, out, 9, 7, 3, 3, 1, 1, 1, 1, 1}, (contents){DATA_NORMAL, 1}, RULE_RANDOM);
    check_shape((conv_shape){2, in, out, 7, 9, 1, 1, 0, 0, 1, 1, 1}, (contents){DATA_NORMAL, 1}, RULE_RANDOM);
  }
}

static void random_shapes(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(400); i > 0; i--) {
    conv_shape s = conv_random_shape(&r, 1 << 19);
    conv_case c = conv_make((conv_op)(i % CONV_OPS), s);
    conv_randomize(&c, &r);
    conv_check(&c, ctx, &r, RULE_RANDOM);
  }
}

static void integers(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(300); i > 0; i--) {
    conv_case c = conv_make((conv_op)(i % CONV_OPS), conv_random_shape(&r, 1 << 17));
    conv_randomize(&c, &r);
    conv_integers(&c, i % 2 == 0 && conv_terms(&c.desc, c.op) < 2048);
    conv_check(&c, ctx, &r, RULE_EXACT);
  }
}

static void groups(void) {
  static const conv_shape shapes[] = {
      {2, 8, 8, 9, 9, 3, 3, 1, 1, 1, 1, 8},    /* depthwise */
      {1, 67, 67, 7, 7, 3, 3, 1, 1, 2, 2, 67}, /* depthwise, odd, strided */
      {2, 5, 15, 8, 6, 3, 5, 1, 2, 1, 2, 5},   /* three outputs for each input */
      {3, 12, 8, 9, 7, 3, 3, 1, 1, 2, 2, 4},   /* mlx#3800: groups and strides in dX */
      {2, 4, 4, 11, 11, 7, 7, 3, 3, 2, 2, 4},  {2, 4, 4, 8, 8, 1, 1, 0, 0, 2, 2, 4},     {2, 6, 9, 5, 5, 1, 1, 0, 0, 1, 1, 3},
      {1, 32, 16, 6, 6, 3, 3, 1, 1, 1, 1, 16}, {2, 8, 16, 256, 1, 256, 1, 0, 0, 1, 1, 8} /* pytorch#188335 */
  };
  for (size_t i = 0; i < COUNT(shapes); i++) {
    check_shape(shapes[i], (contents){DATA_NORMAL, 1}, RULE_RANDOM);
    check_shape(shapes[i], (contents){DATA_SPECIAL, 40}, RULE_BOUND);
  }
}

/* Any numbers: all exponents, subnormals, infinities and NaN. The reference says where they get to. */
static void any_numbers(void) {
  static const contents kinds[] = {
      {DATA_FINITE, 0}, {DATA_SUBNORMAL, 0}, {DATA_SPECIAL, 10}, {DATA_SPECIAL, 300}, {DATA_NORMAL, 200}};
  rng r = {test_seed()};
  for (int64_t i = scaled(300); i > 0; i--) {
    conv_case c = conv_make((conv_op)(i % CONV_OPS), conv_random_shape(&r, 1 << 15));
    conv_randomize(&c, &r);
    for (int t = 0; t < TENSORS; t++) c.fill[t] = kinds[rng_between(&r, 0, COUNT(kinds) - 1)];
    conv_check(&c, ctx, &r, RULE_BOUND);
  }
}

/* A padded position is a zero that takes part in forward and dW: an infinite weight (or dY) over padding gives NaN. dX sums real
 * pairs only. Infinite pixels beside padding do nothing of the kind: in forward every output is infinite. */
static void padding(void) {
  const conv_shape s = {1, 2, 3, 4, 5, 3, 3, 2, 2, 1, 1, 1};
  const int first_input[CONV_OPS] = {[CONV_FORWARD] = W, [CONV_BACKWARD_INPUT] = W, [CONV_BACKWARD_WEIGHT] = Y};
  for (conv_op op = 0; op < CONV_OPS; op++) {
    conv_case c = conv_make(op, s);
    for (int t = 0; t < TENSORS; t++) c.fill[t] = (contents){DATA_CONSTANT, 1};
    c.fill[first_input[op]] = (contents){DATA_CONSTANT, INFINITY};
    check_case(c, RULE_EXACT);
    rng r = {test_seed()};
    conv_open(&c, ctx, &r);
    CHECK_OK(conv_call(&c, ctx));
    double corner = operand_get(conv_output(&c), 0);
    CHECK(op == CONV_BACKWARD_INPUT ? isinf(corner) : isnan(corner));
    conv_close(&c, ctx);
  }
  conv_case pixels = conv_make(CONV_FORWARD, s);
  pixels.fill[X] = (contents){DATA_CONSTANT, INFINITY};
  pixels.fill[W] = pixels.fill[BIAS] = (contents){DATA_CONSTANT, 1};
  check_case(pixels, RULE_EXACT);
}

/* A NaN in one element of an input reaches the outputs that depend on it, as the reference knows them, and at least one. */
static void one_special_element(void) {
  static const double values[] = {NAN, INFINITY, -INFINITY};
  rng r = {test_seed()};
  for (int64_t i = scaled(90); i > 0; i--) {
    conv_case c = conv_make((conv_op)(i % CONV_OPS), conv_random_shape(&r, 1 << 14));
    conv_randomize(&c, &r);
    conv_open(&c, ctx, &r);
    conv_note(&c);
    operand *input = &c.tensor[(c.op + 1 + i / 3 % 2) % 3]; /* one of the other two of X, W and Y */
    guarded_protect(&input->memory, true);
    operand_set(input, operand_place(input, rng_between(&r, 0, operand_elements(input) - 1)), values[i % 7 % 3]);
    CHECK_OK(conv_call(&c, ctx));
    expected *want = conv_reference(&c);
    check_output(conv_output(&c), want, c.before, RULE_BOUND, NULL);
    free(want);
    conv_close(&c, ctx);
  }
}

static void subnormals(void) {
  const conv_shape s = {2, 1, 5, 6, 7, 1, 1, 0, 0, 1, 1, 1};
  conv_case c = conv_make(CONV_FORWARD, s); /* one product for each output */
  c.bias = false;
  c.fill[X] = (contents){DATA_SUBNORMAL, 0};
  c.fill[W] = (contents){DATA_CONSTANT, 1};
  check_case(c, RULE_EXACT);
  check_shape((conv_shape){1, 4, 4, 6, 6, 3, 3, 1, 1, 1, 1, 1}, (contents){DATA_CONSTANT, 0x1p-12}, RULE_EXACT);
  check_shape((conv_shape){1, 4, 4, 6, 6, 3, 3, 1, 1, 1, 1, 1}, (contents){DATA_SUBNORMAL, 0}, RULE_BOUND);
}

/* No images: Y and dX stay as they are, dW is +0 to the bit (pytorch#12013, NNlib.jl#760). */
static void empty_batch(void) {
  const conv_shape s = {0, 3, 5, 6, 7, 3, 3, 1, 1, 2, 2, 1};
  check_shape(s, (contents){DATA_NORMAL, 1}, RULE_EXACT);
  for (tc_dtype_t dtype = TC_DTYPE_F16; dtype <= TC_DTYPE_F32; dtype++) {
    conv_case c = conv_make(CONV_BACKWARD_WEIGHT, s);
    rng r = {test_seed()};
    c.desc.w_dtype = dtype;
    c.desc.w_offset = 5;
    check_case(c, RULE_EXACT);
    conv_note(&c);
    conv_open(&c, ctx, &r);
    CHECK_OK(conv_call(&c, ctx));
    size_t zeros = 0, size = dtype == TC_DTYPE_F32 ? 4 : 2, bytes = c.tensor[W].memory.bytes;
    for (size_t b = 5 * size; b < bytes; b++) zeros += c.tensor[W].memory.data[b] == 0;
    CHECK(zeros == bytes - 5 * size);
    conv_close(&c, ctx);
  }
}

/* An image that is too large for 64 bits is refused, even where there is none. */
static void empty_batch_of_huge_images(void) {
  tc_buffer *nothing = NULL, *dW = NULL;
  CHECK_OK(tc_buffer_wrap(ctx, NULL, 0, &nothing));
  CHECK_OK(tc_buffer_alloc(ctx, 2, &dW));
  const int64_t side[] = {(int64_t)1 << 20, (int64_t)1 << 40};
  for (size_t i = 0; i < COUNT(side); i++) {
    const int64_t s = side[i];
    const tc_status_t status = tc_conv2d_backward_weight(ctx, nothing, nothing, dW, NULL, 0, 1, 1, s, s, 1, 1, 0, 0, 1, 1, s, s);
    CHECK_INT(status, i == 0 ? TC_OK : TC_ERROR_SHAPE);
  }
  CHECK_CONTAINS(tc_last_error(), "in_channels*H*W is 2^63 or more");
  CHECK_OK(tc_buffer_free(ctx, nothing));
  CHECK_OK(tc_buffer_free(ctx, dW));
}

/* Pixels that no output sees have the gradient +0, to the bit. */
static void unseen_pixels(void) {
  conv_case c = conv_make(CONV_BACKWARD_INPUT, (conv_shape){1, 3, 4, 8, 9, 1, 1, 0, 0, 3, 2, 1});
  rng r = {test_seed()};
  c.fill[W] = c.fill[Y] = (contents){DATA_CONSTANT, -1};
  conv_note(&c);
  conv_open(&c, ctx, &r);
  CHECK_OK(conv_call(&c, ctx));
  const uint16_t *dx = (const uint16_t *)(const void *)c.tensor[X].memory.data;
  for (int64_t n = 0; n < operand_elements(&c.tensor[X]); n++) {
    bool seen = n / 9 % 8 % 3 == 0 && n % 9 % 2 == 0;
    CHECK_INT(dx[n], seen ? half_round(4) : 0);
  }
  conv_close(&c, ctx);
}

/* Constants over long sums: channels in forward and dX, pixels and images in dW. */
static void long_sums(void) {
  const conv_shape deep = {1, 100000, 1, 1, 2, 1, 1, 0, 0, 1, 1, 1}, wide = {1, 1, 100000, 1, 2, 1, 1, 0, 0, 1, 1, 1};
  const conv_shape pixels = {1, 1, 1, 250, 400, 1, 1, 0, 0, 1, 1, 1}, images = {65536, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1};
  const conv_shape taps = {1, 11, 1, 95, 96, 95, 96, 0, 0, 1, 1, 1};
  static const double constants[][2] = {{1, 1}, {0.5, 1}, {0.1, 0.1}, {8, 8}, {0x1p-24, 1}, {0.7, -0.9}};
  for (size_t i = 0; i < COUNT(constants); i++) {
    const struct {
      conv_op op;
      conv_shape shape;
    } sums[] = {{CONV_FORWARD, deep},           {CONV_BACKWARD_INPUT, wide},    {CONV_BACKWARD_WEIGHT, pixels},
                {CONV_BACKWARD_WEIGHT, images}, {CONV_BACKWARD_WEIGHT, images}, {CONV_FORWARD, taps}};
    for (size_t j = 0; j < COUNT(sums); j++) {
      conv_case c = conv_make(sums[j].op, sums[j].shape);
      c.bias = c.scratch_col = false;
      if (j == 4) c.desc.w_dtype = TC_DTYPE_F32; /* pytorch#96225: 65536 ones are 65536, and infinite in fp16 */
      c.fill[X] = c.fill[Y] = (contents){DATA_CONSTANT, constants[i][0]};
      c.fill[W] = (contents){DATA_CONSTANT, constants[i][1]};
      if (c.op == CONV_BACKWARD_WEIGHT) c.fill[Y] = c.fill[W];
      check_case(c, half_value(half_round(constants[i][0])) == constants[i][0] ? RULE_EXACT : RULE_BOUND);
    }
  }
}

/* One product of 1, then many too small to change an fp32 sum of 1 one by one: together they must be there. */
static void swallowed(void) {
  static const conv_shape shapes[CONV_OPS] = {[CONV_FORWARD] = {1, 100000, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1},
                                              [CONV_BACKWARD_INPUT] = {1, 1, 100000, 1, 1, 1, 1, 0, 0, 1, 1, 1},
                                              [CONV_BACKWARD_WEIGHT] = {2, 1, 1, 100, 500, 1, 1, 0, 0, 1, 1, 1}};
  for (conv_op op = 0; op < CONV_OPS; op++) {
    conv_case c = conv_make(op, shapes[op]);
    rng r = {test_seed()};
    c.bias = false;
    for (int t = 0; t < TENSORS; t++) c.fill[t] = (contents){DATA_CONSTANT, t == W ? 0x1p-13 : 0x1p-12};
    if (op == CONV_BACKWARD_WEIGHT) c.desc.w_dtype = TC_DTYPE_F32;
    conv_open(&c, ctx, &r);
    conv_note(&c);
    for (int t = 0; t < 3; t++) {
      guarded_protect(&c.tensor[t].memory, true);
      if (t != (int)op) operand_set(&c.tensor[t], 0, 1);
    }
    CHECK_OK(conv_call(&c, ctx));
    expected *want = conv_reference(&c);
    check_output(conv_output(&c), want, c.before, RULE_BOUND, NULL);
    free(want);
    conv_close(&c, ctx);
  }
}

/* Image i of a batch gives the bits that it gives alone; where a path is forced that may add atomically, if it is asked not to. */
static void batch_item_alone(void) {
  const tc_math_mode_t mode = getenv("TC_CONV_PATH") ? TC_MATH_DETERMINISTIC : TC_MATH_DEFAULT;
  rng r = {test_seed()};
  for (int64_t i = scaled(40); i > 0; i--) {
    conv_shape s = conv_random_shape(&r, 1 << 16);
    s.batch = 4;
    conv_case all = conv_make(i % 2 ? CONV_FORWARD : CONV_BACKWARD_INPUT, s);
    all.desc.math_mode = mode;
    conv_open(&all, ctx, &r);
    conv_note(&all);
    CHECK_OK(conv_call(&all, ctx));
    int in = i % 2 ? X : Y;
    size_t in_bytes = all.tensor[in].memory.bytes / 4, out_bytes = conv_output(&all)->memory.bytes / 4;
    for (size_t image = 0; image < 4; image++) {
      s.batch = 1;
      conv_case one = conv_make(all.op, s);
      one.desc.math_mode = mode;
      conv_open(&one, ctx, &r);
      for (int t = 0; t < TENSORS; t++) {
        guarded_protect(&one.tensor[t].memory, true);
        const guarded *from = &all.tensor[t].memory, *to = &one.tensor[t].memory;
        if (t != (int)all.op) memcpy(to->data, from->data + (t == in ? image * in_bytes : 0), to->bytes);
      }
      CHECK_OK(conv_call(&one, ctx));
      CHECK_BYTES(conv_output(&one)->memory.data, conv_output(&all)->memory.data + image * out_bytes, out_bytes);
      conv_close(&one, ctx);
    }
    conv_close(&all, ctx);
  }
}

/* ---- Adjoint identities: <conv(x,w), y> = <x, dX(y,w)> = <w, dW(x,y)> ---- */

typedef struct inner_product {
  double value, bound;
} inner_product;

/* <output of c, the same tensor of the other cases>, with the bound that follows from that of each output element. */
static inner_product pair_with(conv_case *c, const double *weights) {
  inner_product p = {0, 0};
  expected *want = conv_reference(c);
  const operand *out = conv_output(c);
  for (int64_t n = 0; n < operand_elements(out); n++) {
    double got = operand_get(out, n);
    p.value += got * weights[n];
    p.bound += fabs(weights[n]) * error_bound(out->dtype, want[n], got);
  }
  free(want);
  return p;
}

/* The three directions of one shape, on the same x, w and y. */
static void check_adjoint(conv_shape s, contents numbers, bool exact) {
  conv_case cases[CONV_OPS];
  inner_product products[CONV_OPS];
  double *values[CONV_OPS]; /* of X, W and Y: the tensor that case writes, as the other two read it */
  for (conv_op op = 0; op < CONV_OPS; op++) {
    rng r = {test_seed()};
    cases[op] = conv_make(op, s);
    cases[op].bias = false;
    for (int t = 0; t < TENSORS; t++) cases[op].fill[t] = numbers;
    conv_open(&cases[op], ctx, &r);
    guarded_protect(&cases[op].tensor[X].memory, true);
    guarded_protect(&cases[op].tensor[W].memory, true);
    guarded_protect(&cases[op].tensor[Y].memory, true);
  }
  const conv_case *givers[] = {&cases[CONV_FORWARD], &cases[CONV_FORWARD], &cases[CONV_BACKWARD_WEIGHT]}; /* of x, w, y */
  for (int t = 0; t < 3; t++) values[t] = operand_values(&givers[t]->tensor[t]);
  for (conv_op op = 0; op < CONV_OPS; op++) {
    for (int t = 0; t < 3; t++) {
      if (t != (int)op)
        memcpy(cases[op].tensor[t].memory.data, givers[t]->tensor[t].memory.data, givers[t]->tensor[t].memory.bytes);
    }
    conv_note(&cases[op]);
    CHECK_OK(conv_call(&cases[op], ctx));
    products[op] = pair_with(&cases[op], values[op]);
  }
  for (conv_op op = 0; op < CONV_FORWARD; op++) {
    conv_note(&cases[op]);
    double difference = fabs(products[op].value - products[CONV_FORWARD].value);
    CHECK_AT_MOST(difference, exact ? 0 : products[op].bound + products[CONV_FORWARD].bound);
  }
  for (int t = 0; t < 3; t++) free(values[t]);
  for (conv_op op = 0; op < CONV_OPS; op++) conv_close(&cases[op], ctx);
}

static void adjoints(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(60); i > 0; i--) {
    check_adjoint(conv_random_shape(&r, 1 << 16), (contents){DATA_NORMAL, 1}, false);
    check_adjoint(conv_random_shape(&r, 1 << 10), (contents){DATA_INTEGER, 1}, true); /* no output is over 1024 */
  }
}

/* X and weight out of one buffer: inputs may share memory. */
static void shared_inputs(void) {
  conv_case c = conv_make(CONV_FORWARD, (conv_shape){3, 2, 3, 4, 5, 4, 5, 2, 2, 1, 1, 1});
  rng r = {test_seed()};
  conv_note(&c);
  conv_open(&c, ctx, &r);
  guarded_protect(&c.tensor[W].memory, true);
  memcpy(c.tensor[W].memory.data, c.tensor[X].memory.data, c.tensor[W].memory.bytes);
  CHECK_OK(tc_buffer_free(ctx, c.tensor[W].buffer));
  c.tensor[W].buffer = c.tensor[X].buffer;
  c.tensor[W].shift = c.tensor[X].shift;
  CHECK_OK(conv_call(&c, ctx));
  expected *want = conv_reference(&c);
  check_output(&c.tensor[Y], want, c.before, RULE_BOUND, NULL);
  free(want);
  c.tensor[W].buffer = NULL;
  conv_close(&c, ctx);
}

/* A GPU may refuse a plane or a padded size of 2^31 and more. */
static bool gpu_refuses(tc_status_t status) {
  return status == TC_ERROR_UNSUPPORTED && CHECK(on_metal(ctx)) && CHECK_CONTAINS(tc_last_error(), "2147483647");
}

static void check_huge(conv_shape s) {
  for (conv_op op = 0; op < CONV_OPS; op++) {
    conv_case c = conv_make(op, s);
    rng r = {test_seed()};
    conv_note(&c);
    conv_open(&c, ctx, &r);
    const bool refused = gpu_refuses(conv_call(&c, ctx));
    if (refused) CHECK_BYTES(conv_output(&c)->memory.data, c.before, conv_output(&c)->memory.bytes);
    conv_close(&c, ctx);
    if (!refused) check_case(c, RULE_BOUND);
  }
}

/* Strides and paddings up to the largest number, where the positions that an output sees are far outside. */
static void huge_steps(void) {
  static const int64_t big = (int64_t)1 << 60;
  const conv_shape shapes[] = {
      {1, 2, 3, 1, 1, 1, 1, 2, 2, INT64_MAX, INT64_MAX, 1},
      {1, 2, 3, 4, 5, 3, 3, 2, 2, INT64_MAX, INT64_MAX - 1, 1},
      {1, 2, 3, 4, 5, 1, 1, 0, 0, INT64_MAX, 1, 1},
      {2, 2, 3, 1, 1, 1, 1, big, big, 2 * big, 2 * big, 1}, /* two outputs a side, all padding */
      {2, 2, 3, 1, 1, 1, 1, big, big, big, big, 1},         /* three outputs a side, the middle one sees the pixel */
      {1, 2, 3, 3, 3, 2, 2, big, big, big, big, 1},
  };
  for (size_t i = 0; i < COUNT(shapes); i++) check_huge(shapes[i]);
}

/* Offsets of more than 2^31 elements. */
static void far_offsets(void) {
  for (conv_op op = 0; op < CONV_OPS; op++) {
    for (int which = 0; which < TENSORS; which++) {
      conv_case c = conv_make(op, (conv_shape){1, 2, 3, 4, 5, 3, 3, 1, 1, 1, 1, 1});
      int64_t *const offsets[] = {&c.desc.x_offset, &c.desc.w_offset, &c.desc.y_offset, &c.desc.bias_offset};
      *offsets[which] = ((int64_t)1 << 31) + 7;
      check_case(c, RULE_BOUND);
    }
  }
}

/* New halves of the library's own memory, all 0. */
static uint16_t *new_halves(int64_t count, tc_buffer **out) {
  void *data = NULL;
  CHECK_OK(tc_buffer_alloc(ctx, (size_t)count * sizeof(uint16_t), out));
  CHECK_OK(tc_buffer_map(*out, &data));
  return data;
}

/* An image of 2^32 pixels, of which a stride of 65535 leaves the four corners. The rest is never touched, so it takes no memory. */
static void far_pixels(void) {
  enum { SIZE = 65536 };
  static const int64_t corners[] = {0, SIZE - 1, (int64_t)(SIZE - 1) * SIZE, (int64_t)SIZE * SIZE - 1};
  guarded image = guarded_open((size_t)SIZE * SIZE * sizeof(uint16_t), AT_END);
  tc_buffer *X_ = NULL, *W_ = NULL, *Y_ = NULL, *dW = NULL;
  uint16_t *x = (uint16_t *)(void *)image.data, *weight = new_halves(1, &W_), *y = new_halves(4, &Y_), *dw = new_halves(1, &dW);
  for (int i = 0; i < 4; i++) x[corners[i]] = half_round(i + 1);
  *weight = half_round(3);
  note("far pixels");
  CHECK_OK(tc_buffer_wrap(ctx, x, image.bytes, &X_));
  tc_status_t status = tc_conv2d_forward(ctx, X_, W_, NULL, Y_, NULL, 1, 1, 1, SIZE, SIZE, 1, 1, 0, 0, SIZE - 1, SIZE - 1, 2, 2);
  bool refused = gpu_refuses(status);
  CHECK(refused || status == TC_OK);
  for (int i = 0; i < 4; i++) CHECK_INT(y[i], refused ? 0 : half_round(3 * (i + 1)));
  status = tc_conv2d_backward_weight(ctx, X_, Y_, dW, NULL, 1, 1, 1, SIZE, SIZE, 1, 1, 0, 0, SIZE - 1, SIZE - 1, 2, 2);
  refused = gpu_refuses(status);
  CHECK(refused || status == TC_OK);
  CHECK_INT(*dw, refused ? 0 : half_round(3 * (1 + 4 + 9 + 16)));
  tc_buffer *const buffers[] = {X_, W_, Y_, dW};
  for (size_t i = 0; i < COUNT(buffers); i++) CHECK_OK(tc_buffer_free(ctx, buffers[i]));
  guarded_close(&image);
}

/* tensorflow#112776: 46341 images of 46341 rows, over 2^31 pixels in all; an output sees the first row, another one the last. */
static void far_images(void) {
  enum { SIZE = 46341 };
  guarded images = guarded_open((size_t)SIZE * SIZE * sizeof(uint16_t), AT_START);
  tc_buffer *X_ = NULL, *W_ = NULL, *Y_ = NULL;
  uint16_t *x = (uint16_t *)(void *)images.data, *weight = new_halves(1, &W_), *y = new_halves(2 * SIZE, &Y_);
  x[(int64_t)SIZE * SIZE - 1] = half_round(7);
  *weight = half_round(3);
  note("far images");
  CHECK_OK(tc_buffer_wrap(ctx, x, images.page_bytes, &X_));
  CHECK_OK(tc_conv2d_forward(ctx, X_, W_, NULL, Y_, NULL, SIZE, 1, 1, SIZE, 1, 1, 1, 0, 0, SIZE - 1, 1, 2, 1));
  for (int64_t n = 0; n < 2 * SIZE; n++) CHECK_INT(y[n], n == 2 * SIZE - 1 ? half_round(21) : 0);
  tc_buffer *const buffers[] = {X_, W_, Y_};
  for (size_t i = 0; i < COUNT(buffers); i++) CHECK_OK(tc_buffer_free(ctx, buffers[i]));
  guarded_close(&images);
}

/* A gradient of 65537 x 65537 outputs, of which all but the middle one saw padding only. */
static void far_gradient(void) {
  enum { PAD = 32768, SIZE = 2 * PAD + 1 };
  guarded gradient = guarded_open((size_t)SIZE * SIZE * sizeof(uint16_t), AT_START);
  tc_buffer *dY = NULL, *W_ = NULL, *dX = NULL;
  uint16_t *dy = (uint16_t *)(void *)gradient.data, *weight = new_halves(1, &W_), *dx = new_halves(1, &dX);
  dy[(int64_t)PAD * SIZE + PAD] = half_round(5);
  *weight = half_round(3);
  note("far gradient");
  CHECK_OK(tc_buffer_wrap(ctx, dy, gradient.page_bytes, &dY));
  tc_status_t status = tc_conv2d_backward_input(ctx, dY, W_, dX, NULL, NULL, 1, 1, 1, 1, 1, 1, 1, PAD, PAD, 1, 1, SIZE, SIZE);
  const bool refused = gpu_refuses(status);
  CHECK(refused || status == TC_OK);
  CHECK_INT(*dx, refused ? 0 : half_round(15));
  tc_buffer *const buffers[] = {dY, W_, dX};
  for (size_t i = 0; i < COUNT(buffers); i++) CHECK_OK(tc_buffer_free(ctx, buffers[i]));
  guarded_close(&gradient);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"sweep", sweep},
                               {"channels", channels},
                               {"random_shapes", random_shapes},
                               {"integers", integers},
                               {"groups", groups},
                               {"any_numbers", any_numbers},
                               {"padding", padding},
                               {"one_special_element", one_special_element},
                               {"subnormals", subnormals},
                               {"empty_batch", empty_batch},
                               {"empty_batch_of_huge_images", empty_batch_of_huge_images},
                               {"unseen_pixels", unseen_pixels},
                               {"long_sums", long_sums},
                               {"swallowed", swallowed},
                               {"batch_item_alone", batch_item_alone},
                               {"adjoints", adjoints},
                               {"shared_inputs", shared_inputs},
                               {"huge_steps", huge_steps},
                               {"far_offsets", far_offsets},
                               {"far_pixels", far_pixels},
                               {"far_images", far_images},
                               {"far_gradient", far_gradient}};
  ctx = open_context();
  int status = run_tests("conv2d_directions", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  return status;
}
