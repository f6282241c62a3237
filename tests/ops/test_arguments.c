/* SPDX-License-Identifier: MIT
 *
 * Every wrong field of every descriptor: its status, a sentence with function, field and value, and outputs as they were. A field
 * that a descriptor gets has its rows here. Wrong operands and positional sizes: test_operands.c.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/conv_case.h"
#include "common/gemm_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tc_context *ctx;
static placement place; /* such that buffers have the operands' exact size, and offsets are the descriptor's own */

/* ---- Descriptor fields ---- */

enum { FORWARD = 1 << CONV_FORWARD, DX = 1 << CONV_BACKWARD_INPUT, DW = 1 << CONV_BACKWARD_WEIGHT, ALL = FORWARD | DX | DW };

typedef struct wrong_field {
  const char *name;
  size_t offset, size;
  bool real;
  double value; /* exact for the integers here */
  tc_status_t status;
  const char *says; /* stands in the sentence; NULL: the field's name and value */
  int ops;          /* of a convolution: the directions for which it is wrong */
} wrong_field;

#define GEMM_FIELD(field, value, status, says) \
  { #field, offsetof(tc_gemm_batched_desc, field), sizeof(((tc_gemm_batched_desc *)0)->field), false, value, status, says, ALL }

static const double HUGE_SIZE = 4611686018427387904.0; /* 2^62 */
static const double LARGE_SIZE = 1099511627776.0;      /* 2^40 */

/* M 3, N 4, K 5, packed; for the fields that only batches have, two products. */
static const wrong_field gemm_fields[] = {
    GEMM_FIELD(M, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(M, HUGE_SIZE, TC_ERROR_SHAPE, "A"),
    GEMM_FIELD(M, LARGE_SIZE, TC_ERROR_BUFFER, "A"),
    GEMM_FIELD(M, 4, TC_ERROR_BUFFER, "A"),
    GEMM_FIELD(N, -3, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(N, HUGE_SIZE, TC_ERROR_SHAPE, "B"),
    GEMM_FIELD(N, 5, TC_ERROR_BUFFER, "B"),
    GEMM_FIELD(K, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(K, -HUGE_SIZE, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(K, HUGE_SIZE, TC_ERROR_SHAPE, "A"),
    GEMM_FIELD(K, LARGE_SIZE, TC_ERROR_BUFFER, "A"),
    GEMM_FIELD(transpose_a, 2, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(transpose_a, -1, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(transpose_b, 256, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(lda, 4, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(lda, -5, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(lda, 6, TC_ERROR_BUFFER, "A"),
    GEMM_FIELD(lda, HUGE_SIZE, TC_ERROR_SHAPE, "A"),
    GEMM_FIELD(ldb, 3, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(ldb, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(ldb, 5, TC_ERROR_BUFFER, "B"),
    GEMM_FIELD(ldb, HUGE_SIZE, TC_ERROR_SHAPE, "B"),
    GEMM_FIELD(ldc, 3, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(ldc, -HUGE_SIZE, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(a_dtype, TC_DTYPE_F32, TC_ERROR_UNSUPPORTED, NULL),
    GEMM_FIELD(a_dtype, TC_DTYPE_BF16, TC_ERROR_UNSUPPORTED, NULL),
    GEMM_FIELD(a_dtype, 3, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(b_dtype, TC_DTYPE_F32, TC_ERROR_UNSUPPORTED, NULL),
    GEMM_FIELD(b_dtype, TC_DTYPE_BF16, TC_ERROR_UNSUPPORTED, NULL),
    GEMM_FIELD(b_dtype, -1, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(c_dtype, TC_DTYPE_BF16, TC_ERROR_UNSUPPORTED, NULL),
    GEMM_FIELD(c_dtype, 99, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(c_dtype, TC_DTYPE_F32, TC_ERROR_BUFFER, "C"),
    GEMM_FIELD(math_mode, 4, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(math_mode, -1, TC_ERROR_ARGUMENT, NULL),
    GEMM_FIELD(a_offset, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(a_offset, 1, TC_ERROR_BUFFER, "A"),
    GEMM_FIELD(a_offset, HUGE_SIZE, TC_ERROR_SHAPE, "A"),
    GEMM_FIELD(b_offset, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(b_offset, LARGE_SIZE, TC_ERROR_BUFFER, "B"),
    GEMM_FIELD(c_offset, -HUGE_SIZE, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(c_offset, 1, TC_ERROR_BUFFER, "C"),
    GEMM_FIELD(c_offset, HUGE_SIZE, TC_ERROR_SHAPE, "C"),
    /* only of tc_gemm_batched */
    GEMM_FIELD(batch, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(batch, 3, TC_ERROR_BUFFER, "A"),
    GEMM_FIELD(batch, HUGE_SIZE, TC_ERROR_SHAPE, "A"),
    GEMM_FIELD(stride_a, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(stride_a, 16, TC_ERROR_BUFFER, "A"),
    GEMM_FIELD(stride_a, HUGE_SIZE, TC_ERROR_SHAPE, "A"),
    GEMM_FIELD(stride_b, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(stride_b, 21, TC_ERROR_BUFFER, "B"),
    GEMM_FIELD(stride_c, -1, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(stride_c, 0, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(stride_c, 11, TC_ERROR_SHAPE, NULL),
    GEMM_FIELD(stride_c, 13, TC_ERROR_BUFFER, "C"),
    GEMM_FIELD(stride_c, HUGE_SIZE, TC_ERROR_SHAPE, "C"),
};

#define CONV_INTEGER(field, value, status, says, ops) \
  { #field, offsetof(tc_conv2d_desc, field), sizeof(((tc_conv2d_desc *)0)->field), false, value, status, says, ops }
#define CONV_REAL(field, value) \
  { #field, offsetof(tc_conv2d_desc, field), sizeof(float), true, value, TC_ERROR_UNSUPPORTED, #field, ALL }

/* Two images, 4 to 6 channels in 2 groups, 5x6 pixels, 3x2 taps, padding 1, strides 2 and 1: 3x7 outputs. */
static const conv_shape valid_shape = {2, 4, 6, 5, 6, 3, 2, 1, 1, 2, 1, 2};

static const wrong_field conv_fields[] = {
    CONV_INTEGER(batch, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(batch, HUGE_SIZE, TC_ERROR_SHAPE, "2^63", ALL),
    CONV_INTEGER(batch, 3, TC_ERROR_BUFFER, "bytes", ALL),
    CONV_INTEGER(in_channels, 0, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(in_channels, 5, TC_ERROR_SHAPE, NULL, ALL), /* no multiple of groups */
    CONV_INTEGER(in_channels, HUGE_SIZE, TC_ERROR_SHAPE, "2^63", ALL),
    CONV_INTEGER(in_channels, 6, TC_ERROR_BUFFER, "bytes", ALL),
    CONV_INTEGER(out_channels, -6, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(out_channels, 7, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(out_channels, HUGE_SIZE, TC_ERROR_SHAPE, "2^63", ALL),
    CONV_INTEGER(out_channels, 8, TC_ERROR_BUFFER, "bytes", ALL),
    CONV_INTEGER(H, 0, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(H, 9, TC_ERROR_SHAPE, "out_H", ALL),
    CONV_INTEGER(H, 6, TC_ERROR_BUFFER, "bytes", ALL), /* the same out_H */
    CONV_INTEGER(W, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(W, HUGE_SIZE, TC_ERROR_SHAPE, "out_W", ALL),
    CONV_INTEGER(kH, 0, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(kH, 8, TC_ERROR_SHAPE, NULL, ALL), /* larger than the padded input */
    CONV_INTEGER(kH, HUGE_SIZE, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(kW, -2, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(kW, 9, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(out_H, 0, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(out_H, 2, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(out_H, 4, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(out_W, -7, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(out_W, 8, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(pad_top, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(pad_bottom, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(pad_bottom, 2, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(pad_left, -9, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(pad_right, -9, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(pad_right, 0, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(stride_h, 0, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(stride_h, 1, TC_ERROR_SHAPE, "out_H", ALL),
    CONV_INTEGER(stride_w, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(stride_w, HUGE_SIZE, TC_ERROR_SHAPE, "out_W", ALL),
    CONV_INTEGER(dilation_h, 0, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(dilation_h, 2, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(dilation_w, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(dilation_w, 3, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(groups, 0, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(groups, -2, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(groups, 3, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(groups, 4, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(groups, 1, TC_ERROR_BUFFER, "bytes", ALL), /* twice as many weights */
    CONV_INTEGER(layout, TC_LAYOUT_NHWC, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(layout, 2, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(layout, -1, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(x_dtype, TC_DTYPE_F32, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(x_dtype, 3, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(w_dtype, TC_DTYPE_F32, TC_ERROR_UNSUPPORTED, NULL, FORWARD | DX),
    CONV_INTEGER(w_dtype, TC_DTYPE_F32, TC_ERROR_BUFFER, "dW", DW),
    CONV_INTEGER(w_dtype, TC_DTYPE_BF16, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(w_dtype, -1, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(bias_dtype, TC_DTYPE_F32, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(bias_dtype, 77, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(y_dtype, TC_DTYPE_BF16, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(y_dtype, TC_DTYPE_F32, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(y_dtype, 3, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(activation, TC_ACTIVATION_RELU, TC_ERROR_UNSUPPORTED, NULL, ALL),
    CONV_INTEGER(activation, 2, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(math_mode, 4, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(reserved, 1, TC_ERROR_ARGUMENT, NULL, ALL),
    CONV_INTEGER(x_offset, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(x_offset, 1, TC_ERROR_BUFFER, "bytes", ALL),
    CONV_INTEGER(x_offset, HUGE_SIZE, TC_ERROR_SHAPE, "2^63", ALL),
    CONV_INTEGER(w_offset, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(w_offset, 1, TC_ERROR_BUFFER, "bytes", ALL),
    CONV_INTEGER(w_offset, HUGE_SIZE, TC_ERROR_SHAPE, "2^63", ALL),
    CONV_INTEGER(bias_offset, -1, TC_ERROR_SHAPE, NULL, FORWARD),
    CONV_INTEGER(bias_offset, 1, TC_ERROR_BUFFER, "bias", FORWARD),
    CONV_INTEGER(y_offset, -1, TC_ERROR_SHAPE, NULL, ALL),
    CONV_INTEGER(y_offset, LARGE_SIZE, TC_ERROR_BUFFER, "bytes", ALL),
    CONV_REAL(alpha, 0),
    CONV_REAL(alpha, 2),
    CONV_REAL(alpha, NAN),
    CONV_REAL(beta, 1),
    CONV_REAL(beta, NAN),
    CONV_REAL(beta, 1e-45),
};

static void set_field(void *desc, const wrong_field *f) {
  char *at = (char *)desc + f->offset;
  const float real = (float)f->value;
  const int32_t narrow = f->real || f->size > sizeof(int32_t) ? 0 : (int32_t)f->value;
  const int64_t wide = f->real ? 0 : (int64_t)f->value;
  if (f->real) {
    memcpy(at, &real, sizeof(real));
  } else if (f->size == sizeof(narrow)) {
    memcpy(at, &narrow, sizeof(narrow));
  } else {
    memcpy(at, &wide, sizeof(wide));
  }
}

/* A call with a wrong field has ended with status: right sentence, and the output as before. */
static void check_refusal(const char *function, const wrong_field *f, tc_status_t status, const operand *out,
                          const uint8_t *before) {
  char value[32];
  snprintf(value, sizeof(value), "%" PRId64, f->real ? 0 : (int64_t)f->value);
  note("%s, %s = %g", function, f->name, f->value);
  CHECK_STATUS(status, f->status);
  CHECK_CONTAINS(tc_last_error(), function);
  CHECK_CONTAINS(tc_last_error(), f->says ? f->says : f->name);
  if (!f->says) CHECK_CONTAINS(tc_last_error(), value);
  CHECK_BYTES(out->memory.data, before, out->memory.bytes);
}

static void gemm_descriptor(void) {
  for (int batched = 0; batched < 2; batched++) {
    for (size_t i = 0; i < COUNT(gemm_fields); i++) {
      const wrong_field *f = &gemm_fields[i];
      bool of_batches = f->offset >= sizeof(tc_gemm_desc);
      if (!batched && of_batches) continue;
      rng r = {test_seed()};
      gemm_case g = gemm_make(3, 4, 5);
      g.batched = batched;
      g.place = place;
      if (of_batches) {
        g.desc.batch = 2;
        g.desc.stride_a = 15;
        g.desc.stride_b = 20;
        g.desc.stride_c = 12;
      }
      gemm_open(&g, ctx, &r);
      CHECK_OK(gemm_call(&g, ctx));
      set_field(&g.desc, f);
      check_refusal(batched ? "tc_gemm_batched" : "tc_gemm", f, gemm_call(&g, ctx), &g.C, g.before);
      gemm_close(&g, ctx);
    }
  }
}

static void conv2d_descriptor(void) {
  for (conv_op op = 0; op < CONV_OPS; op++) {
    char function[64];
    snprintf(function, sizeof(function), "%s_desc", conv_names[op]);
    for (size_t i = 0; i < COUNT(conv_fields); i++) {
      if (!(conv_fields[i].ops & 1 << op)) continue;
      rng r = {test_seed()};
      conv_case c = conv_make(op, valid_shape);
      c.place = place;
      conv_open(&c, ctx, &r);
      CHECK_OK(conv_call(&c, ctx));
      set_field(&c.desc, &conv_fields[i]);
      check_refusal(function, &conv_fields[i], conv_call(&c, ctx), conv_output(&c), c.before);
      conv_close(&c, ctx);
    }
  }
}

/* ---- struct_size ---- */

typedef tc_status_t desc_call(const void *desc, tc_buffer *const *buffers);

static tc_status_t gemm_with(const void *desc, tc_buffer *const *b) { return tc_gemm(ctx, desc, b[0], b[1], b[2]); }
static tc_status_t batched_with(const void *desc, tc_buffer *const *b) { return tc_gemm_batched(ctx, desc, b[0], b[1], b[2]); }
static tc_status_t forward_with(const void *desc, tc_buffer *const *b) {
  return tc_conv2d_forward_desc(ctx, desc, b[0], b[1], NULL, b[2], NULL);
}
static tc_status_t dx_with(const void *desc, tc_buffer *const *b) {
  return tc_conv2d_backward_input_desc(ctx, desc, b[0], b[1], b[2], NULL, NULL);
}
static tc_status_t dw_with(const void *desc, tc_buffer *const *b) {
  return tc_conv2d_backward_weight_desc(ctx, desc, b[0], b[1], b[2], NULL);
}

static const tc_gemm_desc plain_gemm = {.struct_size = sizeof(plain_gemm), .M = 1, .N = 1, .K = 1, .alpha = 1};
static const tc_gemm_batched_desc plain_batched = {
    .struct_size = sizeof(plain_batched), .M = 1, .N = 1, .K = 1, .alpha = 1, .batch = 1};
static const tc_conv2d_desc plain_conv = {.struct_size = sizeof(plain_conv),
                                          .batch = 1,
                                          .in_channels = 1,
                                          .out_channels = 1,
                                          .H = 1,
                                          .W = 1,
                                          .kH = 1,
                                          .kW = 1,
                                          .out_H = 1,
                                          .out_W = 1,
                                          .stride_h = 1,
                                          .stride_w = 1,
                                          .dilation_h = 1,
                                          .dilation_w = 1,
                                          .groups = 1,
                                          .alpha = 1};

typedef struct described_op {
  const char *function;
  desc_call *call;
  const void *desc;        /* valid: 1x1x1 */
  size_t size, zeros_from; /* from here on all fields are 0, so that a shorter struct means the same */
} described_op;

static const described_op described_ops[] = {
    {"tc_gemm", gemm_with, &plain_gemm, sizeof(plain_gemm), offsetof(tc_gemm_desc, beta)},
    {"tc_gemm_batched", batched_with, &plain_batched, sizeof(plain_batched), offsetof(tc_gemm_batched_desc, stride_a)},
    {"tc_conv2d_forward_desc", forward_with, &plain_conv, sizeof(plain_conv), offsetof(tc_conv2d_desc, beta)},
    {"tc_conv2d_backward_input_desc", dx_with, &plain_conv, sizeof(plain_conv), offsetof(tc_conv2d_desc, beta)},
    {"tc_conv2d_backward_weight_desc", dw_with, &plain_conv, sizeof(plain_conv), offsetof(tc_conv2d_desc, beta)},
};

typedef struct one_element {
  uint16_t *value[3];
  tc_buffer *buffers[3]; /* two inputs and the output */
} one_element;

static void open_elements(one_element *e) {
  const uint16_t values[] = {half_round(3), half_round(5), 0xffff};
  for (int i = 0; i < 3; i++) {
    void *data = NULL;
    CHECK_OK(tc_buffer_alloc(ctx, sizeof(*values), &e->buffers[i]));
    CHECK_OK(tc_buffer_map(e->buffers[i], &data));
    e->value[i] = data;
    *e->value[i] = values[i];
  }
}

static void close_elements(one_element *e) {
  for (int i = 0; i < 3; i++) CHECK_OK(tc_buffer_free(ctx, e->buffers[i]));
}

/* Calls with a struct of that size, which ends flush against a guard page; one byte from its end on may be set. */
static tc_status_t call_sized(const described_op *op, size_t struct_size, size_t bytes, size_t set_byte, one_element *e) {
  guarded g = guarded_open(bytes, AT_END);
  memset(g.data, 0, bytes);
  memcpy(g.data, op->desc, op->size < bytes ? op->size : bytes);
  memcpy(g.data, &struct_size, sizeof(struct_size));
  if (set_byte) g.data[set_byte] = 1;
  guarded_protect(&g, false);
  note("%s, struct_size %zu, byte %zu set", op->function, struct_size, set_byte);
  tc_status_t status = op->call(g.data, e->buffers);
  guarded_close(&g);
  return status;
}

static void struct_sizes(void) {
  for (size_t i = 0; i < COUNT(described_ops); i++) {
    const described_op *op = &described_ops[i];
    const size_t good[] = {op->size, op->zeros_from, op->size + 1, op->size + 8, op->size + 1000, 4096};
    const size_t bad[] = {0, 1, 7, 4097, SIZE_MAX};
    one_element e;
    open_elements(&e);
    for (size_t s = 0; s < COUNT(good); s++) {
      *e.value[2] = 0xffff;
      CHECK_OK(call_sized(op, good[s], good[s], 0, &e));
      CHECK_INT(*e.value[2], half_round(15));
    }
    for (size_t s = 0; s < COUNT(bad); s++) {
      char text[32];
      snprintf(text, sizeof(text), "%zu", bad[s]);
      *e.value[2] = 0xffff;
      CHECK_STATUS(call_sized(op, bad[s], op->size, 0, &e), TC_ERROR_ARGUMENT);
      CHECK_CONTAINS(tc_last_error(), op->function);
      CHECK_CONTAINS(tc_last_error(), "struct_size");
      CHECK_CONTAINS(tc_last_error(), text);
      CHECK_INT(*e.value[2], 0xffff);
    }
    const size_t tails[] = {op->size, op->size + 7, 4095};
    for (size_t s = 0; s < COUNT(tails); s++) {
      CHECK_STATUS(call_sized(op, tails[s] + 1, tails[s] + 1, tails[s], &e), TC_ERROR_UNSUPPORTED);
      CHECK_CONTAINS(tc_last_error(), "struct_size");
      CHECK_INT(*e.value[2], 0xffff);
    }
    /* 8 bytes: all fields 0, and what that means is up to the op; nothing is read beyond */
    tc_status_t status = call_sized(op, 8, 8, 0, &e);
    CHECK(status == (i < 2 ? TC_OK : TC_ERROR_SHAPE));
    CHECK_STATUS(op->call(NULL, e.buffers), TC_ERROR_ARGUMENT);
    CHECK_CONTAINS(tc_last_error(), op->function);
    CHECK_CONTAINS(tc_last_error(), "desc is NULL");
    CHECK_INT(*e.value[2], 0xffff);
    close_elements(&e);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {
      {"gemm_descriptor", gemm_descriptor}, {"conv2d_descriptor", conv2d_descriptor}, {"struct_sizes", struct_sizes}};
  ctx = open_context();
  place = on_metal(ctx) ? IN_LIBRARY : AT_END;
  int status = run_tests("arguments", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  return status;
}
