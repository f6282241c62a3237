/* SPDX-License-Identifier: MIT
 *
 * One convolution to test, in one of its three directions: the problem, its operands, its reference in double.
 */
#ifndef TC_TESTS_CONV_CASE_H
#define TC_TESTS_CONV_CASE_H

#include "operand.h"

/* The direction, and the tensor that it writes. */
typedef enum conv_op { CONV_BACKWARD_INPUT, CONV_BACKWARD_WEIGHT, CONV_FORWARD, CONV_OPS } conv_op;

/* The tensors: inputs or outputs by the direction. */
enum { X, W, Y, BIAS, TENSORS };

/* Sizes as people write them down; output sizes follow. groups 0 is 1. */
typedef struct conv_shape {
  int64_t batch, in_channels, out_channels, H, W, kH, kW, pad_h, pad_w, stride_h, stride_w, groups;
} conv_shape;

typedef struct conv_case {
  tc_conv2d_desc desc;
  conv_op op;
  bool bias, positional; /* positional: the call with 13 sizes instead of the descriptor; as far as it can say the same */
  bool scratch_col, scratch_dx;
  placement place;
  contents fill[TENSORS]; /* that of the output is not used: it is NaN before the call, and so is all scratch */
  operand tensor[TENSORS], col, dx;
  uint8_t *before; /* the output's bytes before the call */
} conv_case;

extern const char *const conv_names[CONV_OPS]; /* "tc_conv2d_forward", ... */

/* True if the kernel fits into the padded input. */
bool conv_has_output(conv_shape s);
int64_t conv_macs(conv_shape s);

/* Normal data, no offsets, fp16. With bias and scratch where the direction takes them. The shape must have an output. */
conv_case conv_make(conv_op op, conv_shape s);

/* Integers whose sums stay exact in fp32; odd: the weights' (dW: the pixels') are odd and over 256. The rule is RULE_EXACT then. */
void conv_integers(conv_case *c, bool odd);

/* Random offsets, dW dtype, bias, scratch, placement and way of calling. */
void conv_randomize(conv_case *c, rng *r);

/* A shape of at most that many products. Groups, unequal kernels, strides and paddings, strides and paddings over the kernel. */
conv_shape conv_random_shape(rng *r, int64_t macs);

void conv_open(conv_case *c, tc_context *ctx, rng *r);
void conv_close(conv_case *c, tc_context *ctx);
tc_status_t conv_call(conv_case *c, tc_context *ctx);
expected *conv_reference(const conv_case *c);
bool conv_check(conv_case *c, tc_context *ctx, rng *r, accuracy how);
void conv_note(const conv_case *c);

/* The tensor that the case writes. */
operand *conv_output(conv_case *c);

/* The largest number of products that one output sums. */
int64_t conv_terms(const tc_conv2d_desc *d, conv_op op);

#endif
