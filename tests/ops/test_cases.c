/* SPDX-License-Identifier: MIT
 *
 * Families of faults that users of other libraries reported: a shape of each, against the reference on one ISA. Where the report's
 * own shape is large, a smaller one with the same property stands here.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/conv_case.h"
#include "common/gemm_case.h"

static tc_context *ctx;

typedef struct conv_report {
  const char *report, *fault;
  conv_shape shape; /* batch, in and out channels, H, W, kH, kW, pads, strides, groups */
} conv_report;

static const conv_report conv_reports[] = {
    {"oneDNN#5494", "stride larger than the kernel", {1, 32, 48, 67, 4, 1, 1, 0, 1, 3, 1, 1}},
    {"pytorch#169688", "one output column, stride 3", {2, 8, 9, 12, 5, 3, 5, 1, 0, 1, 3, 1}},
    {"oneDNN#4684", "patches of 16 without padding", {2, 3, 24, 224, 32, 16, 16, 0, 0, 16, 16, 1}},
    {"oneDNN#6035", "1x1 with stride 2, few channels", {32, 4, 8, 32, 32, 1, 1, 0, 0, 2, 2, 1}},
    {"oneDNN#5942", "kernel and padding far larger than the input", {10, 64, 1, 1, 1, 125, 1, 63, 63, 2, 2, 1}},
    {"oneDNN#43", "dX with stride 2, more than 16 channels, under 17 columns", {1, 64, 17, 8, 8, 3, 3, 1, 1, 2, 2, 1}},
    {"oneDNN#323", "3 output channels, kernel 11, stride 4", {1, 16, 3, 67, 67, 11, 11, 0, 0, 4, 4, 1}},
    {"pytorch#136348", "67 groups, stride 13", {3, 67, 134, 23, 12, 2, 1, 1, 14, 2, 13, 67}},
    {"pytorch#45746", "wide kernel", {30, 1, 16, 25, 16, 1, 16, 0, 0, 1, 1, 1}},
    {"pytorch#45746", "tall and wide kernel", {30, 1, 16, 25, 16, 2, 16, 0, 0, 1, 1, 1}},
    {"NNlib.jl#197", "3x3x3x1 weights, many pixels", {4, 3, 1, 64, 64, 3, 3, 1, 1, 1, 1, 1}},
    {"onnxruntime#18992", "one pixel, one weight, one bias", {1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
    {"ncnn#1891", "tiles that don't come out even", {1, 16, 16, 23, 21, 3, 3, 1, 1, 1, 1, 1}},
    {"oneDNN#122", "kernel 21x11, padding 10 and 5", {1, 2, 3, 41, 90, 21, 11, 10, 5, 2, 1, 1}},
    {"pytorch#83382", "1x1, 16 channels", {1, 16, 16, 44, 80, 1, 1, 0, 0, 1, 1, 1}},
    {"oneDNN#33", "dX of 1x1 with stride 2", {2, 64, 128, 14, 14, 1, 1, 0, 0, 2, 2, 1}},
    {"oneDNN#3450", "bias over odd channels", {2, 19, 65, 13, 13, 3, 3, 1, 1, 1, 1, 1}},
    {"pytorch#148973", "1-D, stride 2", {2, 2, 2, 1, 224, 1, 3, 0, 1, 1, 2, 1}},
    {"executorch#22951", "depthwise 3x3", {1, 8, 8, 16, 16, 3, 3, 1, 1, 1, 1, 8}},
    {"pytorch#80856", "kernel 9 on a padded image", {1, 3, 3, 36, 36, 9, 9, 0, 0, 1, 1, 1}},
    {"pytorch#174269", "dX with many channels", {1, 96, 192, 8, 8, 3, 3, 1, 1, 1, 1, 1}},
    {"pytorch#140902", "1-D backward", {2, 3, 4, 1, 8, 1, 3, 0, 0, 1, 1, 1}},
    {"pytorch#188335", "tall grouped kernel, batch over 1", {2, 8, 16, 300, 1, 256, 1, 0, 0, 1, 1, 8}},
    {"mlx#2504", "kernel larger than the input", {1, 1, 1, 181, 181, 182, 182, 1, 1, 1, 1, 1}},
    {"mlx#3800", "dX with groups and stride", {2, 4, 4, 13, 13, 3, 3, 1, 1, 2, 2, 4}},
    {"pytorch#83180", "unequal strides", {1, 1, 1, 3, 6, 3, 3, 0, 0, 1, 2, 1}},
    {"pytorch#82921", "1-D, 57 to 20 channels, stride 2", {1, 57, 20, 1, 40, 1, 3, 0, 0, 1, 2, 1}},
    {"pytorch#142515", "row of 66000 pixels", {1, 1, 1, 1, 66000, 1, 3, 0, 0, 1, 1, 1}},
    {"pytorch#152278", "more than 65536 output channels", {1, 2, 65540, 1, 3, 1, 2, 0, 0, 1, 1, 1}},
    {"pytorch#152278", "more than 65536 input channels", {1, 65540, 2, 1, 3, 1, 2, 0, 0, 1, 1, 1}},
    {"mlx-swift#424", "1-D output of 40000", {1, 1, 1, 1, 40000, 1, 3, 0, 1, 1, 1, 1}},
    {"pytorch#112998", "kernel 4, stride 2, odd channels", {2, 24, 20, 50, 34, 4, 4, 1, 1, 2, 2, 1}},
    {"pytorch#119677", "dW over many positions", {1, 3, 2, 200, 200, 3, 3, 1, 1, 1, 1, 1}},
    {"mlx#3324", "depthwise, odd width", {2, 16, 16, 7, 9, 3, 3, 1, 1, 1, 1, 16}},
    {"mlx#2369", "1-D depthwise", {2, 33, 33, 1, 31, 1, 4, 0, 3, 1, 1, 33}},
    {"mlx#2180", "grouped 1-D, kernel 12", {2, 32, 32, 1, 100, 1, 12, 0, 0, 1, 1, 8}},
    {"oneDNN shapes_regression_padding", "padding over the kernel", {2, 5, 7, 10, 10, 3, 3, 5, 5, 1, 1, 1}},
    {"oneDNN shapes_regression_small_spatial", "5x5 image, 7x7 kernel, padding 6", {1, 9, 8, 5, 5, 7, 7, 6, 6, 1, 1, 1}},
    {"oneDNN shapes_regression_1x1", "1x1, strides 12 and 14", {1, 8, 8, 29, 30, 1, 1, 0, 0, 12, 14, 1}},
    {"oneDNN shapes_tails", "29 to 65 channels", {1, 29, 65, 13, 13, 3, 3, 1, 1, 1, 1, 1}},
};

static void check_conv_report(const conv_report *row, conv_op op) {
  rng r = {test_seed()};
  conv_case c = conv_make(op, row->shape);
  if (!conv_check(&c, ctx, &r, RULE_RANDOM)) check_failed(__FILE__, __LINE__, "this is %s: %s", row->report, row->fault);
  c.scratch_col = c.scratch_dx = c.bias = false;
  c.positional = row->shape.groups == 1;
  conv_integers(&c, conv_terms(&c.desc, op) < 2048);
  if (!conv_check(&c, ctx, &r, RULE_EXACT)) check_failed(__FILE__, __LINE__, "this is %s: %s", row->report, row->fault);
}

static void convolutions(void) {
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(conv_reports); i++) {
    for (conv_op op = 0; op < CONV_OPS; op++) {
      if (sampled(&r)) check_conv_report(&conv_reports[i], op);
    }
  }
}

typedef struct gemm_report {
  const char *report, *fault;
  int64_t M, N, K;
  int32_t transpose_a, transpose_b;
  int64_t more_ld; /* added to each packed leading dimension */
  float alpha, beta;
} gemm_report;

static const gemm_report gemm_reports[] = {
    {"OpenBLAS#5712", "beta 1 with a product", 16, 17, 18, 0, 0, 0, 1, 1},
    {"OpenBLAS#3273", "odd sizes at the ends of memory", 33, 31, 29, 0, 1, 0, 1, 0},
    {"blaspp#39", "beta 0 over NaN, off the tile", 13, 27, 21, 0, 0, 3, 1, 0},
    {"rocBLAS#753", "K = 0 is beta * C", 9, 10, 0, 0, 0, 0, 1, 10},
    {"triton#10427", "K = 0 and beta 0 is 0", 2, 3, 0, 0, 0, 0, 1, 0},
    {"OpenBLAS#5794", "all sizes different, packed", 40, 50, 60, 0, 0, 0, 1, 0},
    {"pytorch#162730", "transposed weight view", 4, 6, 5, 0, 1, 2, 1, 0},
    {"mlx#3631", "more than 32767 columns", 16, 32776, 8, 0, 0, 0, 1, 0},
    {"mlx#3591", "matrix times vector", 127, 1, 1749, 0, 0, 0, 1, 0},
    {"mlx#3591", "vector times matrix", 1, 127, 1749, 0, 1, 0, 1, 0},
    {"llama.cpp#27064", "K no multiple of 32, odd rows apart", 128, 32, 500, 0, 0, 1, 1, 0},
    {"mlx#632", "reads beyond the buffers", 78, 32, 256, 0, 0, 0, 1, 0},
    {"mlx#3585", "9 to 16 rows", 9, 64, 64, 0, 0, 0, 1, 0},
    {"mlx#3585", "9 to 16 rows", 16, 64, 64, 1, 0, 0, 1, 0},
    {"oneDNN#3247", "one row, long", 1, 2680, 166, 0, 0, 0, 1, 0},
    {"pytorch#84039", "tall, thin, transposed", 409, 40, 40, 1, 1, 0, 0.5f, 0},
    {"oneDNN#5717", "K just over a block", 16, 64, 33, 0, 0, 5, 1, 0},
};

static void products(void) {
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(gemm_reports); i++) {
    const gemm_report *row = &gemm_reports[i];
    gemm_case g = gemm_make(row->M, row->N, row->K);
    g.desc.transpose_a = row->transpose_a;
    g.desc.transpose_b = row->transpose_b;
    g.desc.alpha = row->alpha;
    g.desc.beta = row->beta;
    g.desc.lda = (row->transpose_a ? row->M : row->K) + row->more_ld;
    g.desc.ldb = (row->transpose_b ? row->K : row->N) + row->more_ld;
    g.desc.ldc = row->N + row->more_ld;
    for (g.place = AT_END; g.place <= AT_START; g.place++) {
      if (!gemm_check(&g, ctx, &r, RULE_RANDOM)) check_failed(__FILE__, __LINE__, "this is %s: %s", row->report, row->fault);
    }
  }
}

/* pytorch#112998, #181213: one context, many shapes, one after the other; what a call keeps has no part in the next. */
static void many_shapes(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(300); i > 0; i--) {
    conv_case c = conv_make((conv_op)(i % CONV_OPS), conv_random_shape(&r, 1 << (8 + i % 5 * 2)));
    conv_check(&c, ctx, &r, RULE_BOUND);
    if (i % 50 == 0) CHECK_OK(tc_context_trim(ctx));
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"convolutions", convolutions}, {"products", products}, {"many_shapes", many_shapes}};
  ctx = open_context();
  int status = run_tests("cases", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  return status;
}
