/* SPDX-License-Identifier: MIT
 *
 * Validates tc_conv2d_forward, _backward_input and _backward_weight against an fp64 reference, and prints the errors of each:
 *   error/bound  the largest |error| as a part of what is allowed (half an ulp + 2^-15 * sum|a||b|); at most 1
 *   rms          rms(error) / rms(exact); at most 1e-3
 *   ratio        rms(error) / rms(error of rounding the exact result to fp16); at most 1.02, over 1000 outputs or more
 */
#include "common/check.h"
#include "common/context.h"
#include "common/conv_case.h"

#include <stdio.h>
#include <stdlib.h>

/* batch, in and out channels, H, W, kH, kW, pads, strides */
static const struct {
  const char *name;
  conv_shape shape;
} layers[] = {
    {"first layer, 7x7 stride 2", {1, 3, 16, 112, 112, 7, 7, 3, 3, 2, 2, 1}},
    {"3x3", {2, 16, 24, 28, 28, 3, 3, 1, 1, 1, 1, 1}},
    {"3x3 stride 2, odd sizes", {2, 17, 13, 27, 29, 3, 3, 1, 1, 2, 2, 1}},
    {"1x1", {2, 64, 48, 14, 14, 1, 1, 0, 0, 1, 1, 1}},
    {"1x1 stride 2", {2, 32, 64, 28, 28, 1, 1, 0, 0, 2, 2, 1}},
    {"5x5, digits", {8, 8, 16, 8, 8, 5, 5, 2, 2, 1, 1, 1}},
    {"patches of 16", {1, 3, 32, 96, 96, 16, 16, 0, 0, 16, 16, 1}},
    {"1x7 and unequal strides", {2, 9, 11, 30, 31, 1, 7, 0, 3, 2, 1, 1}},
    {"kernel over the input", {4, 6, 10, 5, 5, 9, 9, 4, 4, 1, 1, 1}},
    {"depthwise 3x3", {2, 32, 32, 15, 15, 3, 3, 1, 1, 1, 1, 32}},
    {"one pixel", {1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
};

static void check_layer(tc_context *ctx, size_t layer, conv_op op) {
  rng r = {test_seed() + layer};
  conv_case c = conv_make(op, layers[layer].shape);
  c.positional = c.desc.groups == 1;
  conv_note(&c);
  conv_open(&c, ctx, &r);
  if (CHECK_OK(conv_call(&c, ctx))) {
    error_statistics stats = {0};
    expected *want = conv_reference(&c);
    check_output(conv_output(&c), want, c.before, RULE_RANDOM, &stats);
    printf("%-28s %-26s %9lld %12.3f %10.2e %8.4f\n", layers[layer].name, conv_names[op], (long long)stats.count, stats.worst,
           error_rms(&stats), error_ratio(&stats));
    free(want);
  }
  conv_close(&c, ctx);
}

int main(void) {
  tc_context *ctx = open_context();
  printf("%-28s %-26s %9s %12s %10s %8s\n", "layer", "direction", "outputs", "error/bound", "rms", "ratio");
  for (size_t layer = 0; layer < COUNT(layers); layer++) {
    for (conv_op op = CONV_OPS; op > 0; op--) check_layer(ctx, layer, op - 1);
  }
  close_context(ctx);
  return finish("conv2d", COUNT(layers));
}
