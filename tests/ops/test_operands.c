/* SPDX-License-Identifier: MIT
 *
 * Every wrong operand of every op, and every wrong size of the positional calls: the status, a sentence with function, argument and
 * values, and all memory as it was. The ops and their operands are one table.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/operand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tc_context *ctx, *other;
static size_t unit; /* wrap_unit */

/* ---- The ops, with valid sizes ---- */

/* Two images, 3 to 4 channels, 5x6 pixels, 3x2 taps, padding 1, strides 2 and 1: 3x7 outputs. In the order of the calls. */
enum { SIZES = 13, OPERANDS_MAX = 5 };
static const char *const size_names[SIZES] = {"batch", "in_channels", "out_channels", "H",        "W",     "kH",   "kW",
                                              "pad_h", "pad_w",       "stride_h",     "stride_w", "out_H", "out_W"};
static const int64_t valid_sizes[SIZES] = {2, 3, 4, 5, 6, 3, 2, 1, 1, 2, 1, 3, 7};
enum { X_BYTES = 2 * 3 * 5 * 6 * 2, W_BYTES = 4 * 3 * 3 * 2 * 2, Y_BYTES = 2 * 4 * 3 * 7 * 2, BIAS_BYTES = 4 * 2 };
enum { COL_BYTES = 2 * 3 * 3 * 2 * 3 * 7 * 2, DX_BYTES = 2 * 3 * 5 * 6 * 4 };

/* M 3, N 4, K 5; two products in the batched call. */
static const tc_gemm_desc gemm_desc = {.struct_size = sizeof(gemm_desc), .M = 3, .N = 4, .K = 5, .alpha = 1, .beta = 1};
static const tc_gemm_batched_desc batched_desc = {.struct_size = sizeof(batched_desc),
                                                  .M = 3,
                                                  .N = 4,
                                                  .K = 5,
                                                  .alpha = 1,
                                                  .c_dtype = TC_DTYPE_F32,
                                                  .batch = 2,
                                                  .stride_a = 15,
                                                  .stride_b = 20,
                                                  .stride_c = 12};

/* A call with these operands, in the order of the op's table row; sizes for the positional ones. */
typedef tc_status_t op_call(tc_context *c, tc_buffer *const *b, const int64_t *s);

static tc_status_t call_gemm(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  (void)s;
  return tc_gemm(c, &gemm_desc, b[0], b[1], b[2]);
}

static tc_status_t call_batched(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  (void)s;
  return tc_gemm_batched(c, &batched_desc, b[0], b[1], b[2]);
}

static tc_conv2d_desc describe(const int64_t *s) {
  tc_conv2d_desc d = TC_CONV2D_DESC_INIT;
  int64_t *const fields[SIZES] = {&d.batch,   &d.in_channels, &d.out_channels, &d.H,        &d.W,     &d.kH,   &d.kW,
                                  &d.pad_top, &d.pad_left,    &d.stride_h,     &d.stride_w, &d.out_H, &d.out_W};
  for (int i = 0; i < SIZES; i++) *fields[i] = s[i];
  d.pad_bottom = d.pad_top;
  d.pad_right = d.pad_left;
  return d;
}

static tc_status_t call_forward(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  return tc_conv2d_forward(c, b[0], b[1], b[2], b[3], b[4], s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10],
                           s[11], s[12]);
}

static tc_status_t call_backward_input(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  return tc_conv2d_backward_input(c, b[0], b[1], b[2], b[3], b[4], s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9],
                                  s[10], s[11], s[12]);
}

static tc_status_t call_backward_weight(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  return tc_conv2d_backward_weight(c, b[0], b[1], b[2], b[3], s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10],
                                   s[11], s[12]);
}

static tc_status_t call_forward_desc(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  const tc_conv2d_desc d = describe(s);
  return tc_conv2d_forward_desc(c, &d, b[0], b[1], b[2], b[3], b[4]);
}

static tc_status_t call_backward_input_desc(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  const tc_conv2d_desc d = describe(s);
  return tc_conv2d_backward_input_desc(c, &d, b[0], b[1], b[2], b[3], b[4]);
}

static tc_status_t call_backward_weight_desc(tc_context *c, tc_buffer *const *b, const int64_t *s) {
  const tc_conv2d_desc d = describe(s);
  return tc_conv2d_backward_weight_desc(c, &d, b[0], b[1], b[2], b[3]);
}

typedef enum role { INPUT, OUTPUT, SCRATCH } role;

typedef struct operand_row {
  const char *name;
  size_t bytes;
  size_t alignment;
  role role;
  bool optional;
} operand_row;

typedef struct op_row {
  const char *function;
  op_call *call;
  bool positional;
  operand_row operands[OPERANDS_MAX];
  size_t count;
} op_row;

static const op_row ops[] = {
    {"tc_gemm", call_gemm, false, {{"A", 30, 2, INPUT, false}, {"B", 40, 2, INPUT, false}, {"C", 24, 2, OUTPUT, false}}, 3},
    {"tc_gemm_batched",
     call_batched,
     false,
     {{"A", 60, 2, INPUT, false}, {"B", 80, 2, INPUT, false}, {"C", 96, 4, OUTPUT, false}},
     3},
#define FORWARD_OPERANDS                                                                                         \
  {                                                                                                              \
    {"X", X_BYTES, 2, INPUT, false}, {"weight", W_BYTES, 2, INPUT, false}, {"bias", BIAS_BYTES, 2, INPUT, true}, \
        {"Y", Y_BYTES, 2, OUTPUT, false}, {                                                                      \
      "scratch_col", COL_BYTES, 4, SCRATCH, true                                                                 \
    }                                                                                                            \
  }
#define BACKWARD_INPUT_OPERANDS                                                                                \
  {                                                                                                            \
    {"dY", Y_BYTES, 2, INPUT, false}, {"weight", W_BYTES, 2, INPUT, false}, {"dX", X_BYTES, 2, OUTPUT, false}, \
        {"scratch_col", COL_BYTES, 4, SCRATCH, true}, {                                                        \
      "scratch_dX_f32", DX_BYTES, 4, SCRATCH, true                                                             \
    }                                                                                                          \
  }
#define BACKWARD_WEIGHT_OPERANDS                                                                            \
  {                                                                                                         \
    {"X", X_BYTES, 2, INPUT, false}, {"dY", Y_BYTES, 2, INPUT, false}, {"dW", W_BYTES, 2, OUTPUT, false}, { \
      "scratch_col", COL_BYTES, 4, SCRATCH, true                                                            \
    }                                                                                                       \
  }
    {"tc_conv2d_forward", call_forward, true, FORWARD_OPERANDS, 5},
    {"tc_conv2d_backward_input", call_backward_input, true, BACKWARD_INPUT_OPERANDS, 5},
    {"tc_conv2d_backward_weight", call_backward_weight, true, BACKWARD_WEIGHT_OPERANDS, 4},
    {"tc_conv2d_forward_desc", call_forward_desc, false, FORWARD_OPERANDS, 5},
    {"tc_conv2d_backward_input_desc", call_backward_input_desc, false, BACKWARD_INPUT_OPERANDS, 5},
    {"tc_conv2d_backward_weight_desc", call_backward_weight_desc, false, BACKWARD_WEIGHT_OPERANDS, 4},
};

/* ---- Memory: one arena, each operand 16 bytes after the one before, or on pages of its own where only pages are wrapped ---- */

enum { GAP = 16, PAGE = 16384, ARENA = 12 * PAGE, FREE = ARENA / 2 }; /* the second half is free */

typedef struct arena {
  guarded memory;
  uint8_t *bytes, *before;
  size_t at[OPERANDS_MAX]; /* where each operand starts */
  tc_buffer *buffers[OPERANDS_MAX];
} arena;

static size_t round_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

static tc_buffer *wrap(void *at, size_t bytes) {
  tc_buffer *buf = NULL;
  if (tc_buffer_wrap(ctx, at, round_up(bytes, unit), &buf) != TC_OK) give_up("%s", tc_last_error());
  return buf;
}

static tc_buffer *alloc(tc_context *owner, size_t bytes) {
  tc_buffer *buf = NULL;
  if (tc_buffer_alloc(owner, bytes, &buf) != TC_OK) give_up("%s", tc_last_error());
  return buf;
}

static arena arena_open(const op_row *op) {
  arena a = {.memory = guarded_open(ARENA, AT_START), .before = allocate(ARENA, 1)};
  a.bytes = a.memory.data;
  rng r = {test_seed()};
  for (size_t i = 0; i < ARENA; i++) a.before[i] = a.bytes[i] = (uint8_t)rng_between(&r, 0, 0x7b); /* finite as fp16 */
  size_t at = 0;
  for (size_t i = 0; i < op->count; i++) {
    a.at[i] = at;
    a.buffers[i] = wrap(a.bytes + at, op->operands[i].bytes);
    at += round_up(op->operands[i].bytes + GAP, unit > 4 ? unit : 4);
  }
  if (at > FREE) give_up("the arena is too small");
  return a;
}

static void arena_close(const op_row *op, arena *a) {
  for (size_t i = 0; i < op->count; i++) CHECK_OK(tc_buffer_free(ctx, a->buffers[i]));
  guarded_close(&a->memory);
  free(a->before);
}

/* The call with one operand replaced must end so, with these words in the sentence (NULL: none), and leave all memory alone. */
static void check_refused(const op_row *op, arena *a, size_t i, tc_buffer *instead, tc_status_t status, const char *const *words) {
  tc_buffer *buffers[OPERANDS_MAX];
  memcpy(buffers, a->buffers, sizeof(buffers));
  buffers[i] = instead;
  CHECK_STATUS(op->call(ctx, buffers, valid_sizes), status);
  CHECK_CONTAINS(tc_last_error(), op->function);
  for (; *words; words++) CHECK_CONTAINS(tc_last_error(), *words);
  CHECK_BYTES(a->bytes, a->before, ARENA);
}

typedef void check_operand(const op_row *op, arena *a, size_t i);

static void for_each_operand(check_operand *check) {
  for (size_t o = 0; o < COUNT(ops); o++) {
    for (size_t i = 0; i < ops[o].count; i++) {
      arena a = arena_open(&ops[o]);
      note("%s, %s", ops[o].function, ops[o].operands[i].name);
      check(&ops[o], &a, i);
      arena_close(&ops[o], &a);
    }
  }
}

/* ---- Operands ---- */

static void valid(void) {
  for (size_t o = 0; o < COUNT(ops); o++) {
    arena a = arena_open(&ops[o]);
    note("%s", ops[o].function);
    CHECK_OK(ops[o].call(ctx, a.buffers, valid_sizes));
    /* the inputs and everything between the operands are as before */
    for (size_t i = 0; i < ops[o].count; i++) {
      if (ops[o].operands[i].role != INPUT) memcpy(a.bytes + a.at[i], a.before + a.at[i], ops[o].operands[i].bytes);
    }
    CHECK_BYTES(a.bytes, a.before, ARENA);
    arena_close(&ops[o], &a);
  }
}

static void check_null(const op_row *op, arena *a, size_t i) {
  const char *const words[] = {op->operands[i].name, "NULL", NULL};
  tc_buffer *buffers[OPERANDS_MAX];
  memcpy(buffers, a->buffers, sizeof(buffers));
  buffers[i] = NULL;
  if (op->operands[i].optional) {
    CHECK_OK(op->call(ctx, buffers, valid_sizes));
  } else {
    check_refused(op, a, i, NULL, TC_ERROR_ARGUMENT, words);
  }
}

static void null_operands(void) { for_each_operand(check_null); }

static void check_null_context(const op_row *op, arena *a, size_t i) {
  (void)i;
  char sentence[96];
  snprintf(sentence, sizeof(sentence), "%s: ctx is NULL", op->function);
  CHECK_STATUS(op->call(NULL, a->buffers, valid_sizes), TC_ERROR_ARGUMENT);
  CHECK_STRING(tc_last_error(), sentence);
  CHECK_BYTES(a->bytes, a->before, ARENA);
}

static void null_context(void) { for_each_operand(check_null_context); }

/* One byte too few, and none at all: the sentence has both numbers. */
static void check_short(const op_row *op, arena *a, size_t i) {
  const size_t sizes[] = {op->operands[i].bytes - 1, 0};
  for (size_t s = 0; s < COUNT(sizes); s++) {
    char has[32], needs[32];
    snprintf(has, sizeof(has), "%zu", sizes[s]);
    snprintf(needs, sizeof(needs), "%zu", op->operands[i].bytes);
    const char *const words[] = {op->operands[i].name, has, needs, NULL};
    tc_buffer *buf = alloc(ctx, sizes[s]);
    check_refused(op, a, i, buf, TC_ERROR_BUFFER, words);
    CHECK_OK(tc_buffer_free(ctx, buf));
  }
}

static void short_buffers(void) { for_each_operand(check_short); }

/* Every address that is no multiple of the element's size; half of it, for 4 bytes. Where only pages are wrapped, there is none. */
static void check_misaligned(const op_row *op, arena *a, size_t i) {
  char alignment[32];
  snprintf(alignment, sizeof(alignment), "%zu", op->operands[i].alignment);
  const char *const words[] = {op->operands[i].name, alignment, NULL};
  for (size_t shift = 1; shift < op->operands[i].alignment; shift++) {
    tc_buffer *buf = NULL;
    tc_status_t status = tc_buffer_wrap(ctx, a->bytes + a->at[i] + shift, op->operands[i].bytes, &buf);
    CHECK_INT(status, unit == 1 ? TC_OK : TC_ERROR_ALIGNMENT);
    if (!buf) continue;
    check_refused(op, a, i, buf, TC_ERROR_ALIGNMENT, words);
    CHECK_OK(tc_buffer_free(ctx, buf));
  }
}

static void misaligned_buffers(void) { for_each_operand(check_misaligned); }

static void check_foreign(const op_row *op, arena *a, size_t i) {
  const char *const words[] = {op->operands[i].name, "another context", NULL};
  tc_buffer *buf = alloc(other, op->operands[i].bytes);
  check_refused(op, a, i, buf, TC_ERROR_ARGUMENT, words);
  CHECK_OK(tc_buffer_free(other, buf));
}

static void buffers_of_another_context(void) { for_each_operand(check_foreign); }

/* Operand i of the op starts where another one does, or in its last element: fine for two inputs, else refused by both names. */
static void check_overlap(const op_row *op, arena *a, size_t i) {
  const operand_row *row = &op->operands[i];
  for (size_t j = 0; j < op->count; j++) {
    if (j == i) continue;
    const operand_row *with = &op->operands[j];
    const char *const words[] = {row->name, with->name, NULL};
    size_t step = row->alignment > with->alignment ? row->alignment : with->alignment, start = FREE;
    if (with->bytes % row->alignment) step = with->bytes % row->alignment;
    const size_t places[] = {start, start + (unit == 1 ? with->bytes - step : 0)};
    for (size_t p = 0; p < COUNT(places); p++) {
      tc_buffer *moved = wrap(a->bytes + places[p], row->bytes), *base = wrap(a->bytes + start, with->bytes);
      tc_buffer *saved = a->buffers[j];
      a->buffers[j] = base;
      note("%s, %s over %s, %zu bytes on", op->function, row->name, with->name, places[p] - start);
      if (row->role == INPUT && with->role == INPUT) {
        tc_buffer *buffers[OPERANDS_MAX];
        memcpy(buffers, a->buffers, sizeof(buffers));
        buffers[i] = moved;
        CHECK_OK(op->call(ctx, buffers, valid_sizes));
      } else {
        memcpy(a->bytes, a->before, ARENA);
        check_refused(op, a, i, moved, TC_ERROR_OVERLAP, words);
      }
      a->buffers[j] = saved;
      CHECK_OK(tc_buffer_free(ctx, moved));
      CHECK_OK(tc_buffer_free(ctx, base));
    }
  }
}

static void overlaps(void) { for_each_operand(check_overlap); }

/* The smallest overlap there is: operands of one element. */
static void one_element(void) {
  tc_buffer *two = alloc(ctx, 2 * sizeof(uint16_t));
  tc_gemm_desc d = TC_GEMM_DESC_INIT;
  d.M = d.N = d.K = 1;
  note("one element");
  d.c_offset = 1;
  CHECK_OK(tc_gemm(ctx, &d, two, two, two));
  d.b_offset = 1;
  CHECK_STATUS(tc_gemm(ctx, &d, two, two, two), TC_ERROR_OVERLAP);
  d.b_offset = d.c_offset = 0;
  d.a_offset = 1;
  CHECK_STATUS(tc_gemm(ctx, &d, two, two, two), TC_ERROR_OVERLAP);
  CHECK_OK(tc_buffer_free(ctx, two));
}

/* All operands one after the other, without a byte between them (or a page, where only pages are wrapped). */
static void neighbours(void) {
  for (size_t o = 0; o < COUNT(ops); o++) {
    const op_row *op = &ops[o];
    guarded memory = guarded_open(ARENA, AT_START);
    tc_buffer *buffers[OPERANDS_MAX];
    size_t at = 0;
    note("%s", op->function);
    for (size_t i = 0; i < op->count; i++) {
      buffers[i] = wrap(memory.data + at, op->operands[i].bytes);
      at += round_up(op->operands[i].bytes, unit);
    }
    CHECK_OK(op->call(ctx, buffers, valid_sizes));
    for (size_t i = 0; i < op->count; i++) CHECK_OK(tc_buffer_free(ctx, buffers[i]));
    guarded_close(&memory);
  }
}

/* ---- Positional sizes ---- */

/* Each size in turn: under its least value, the most negative, and the largest number there is. */
static void positional_sizes(void) {
  static const int64_t least[SIZES] = {0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1};
  for (size_t o = 0; o < COUNT(ops); o++) {
    if (!ops[o].positional) continue;
    arena a = arena_open(&ops[o]);
    for (int i = 0; i < SIZES; i++) {
      const int64_t wrong[] = {least[i] - 1, INT64_MIN, INT64_MAX};
      for (size_t w = 0; w < COUNT(wrong); w++) {
        int64_t sizes[SIZES];
        char value[32];
        memcpy(sizes, valid_sizes, sizeof(sizes));
        sizes[i] = wrong[w];
        snprintf(value, sizeof(value), "%lld", (long long)wrong[w]);
        note("%s, %s = %s", ops[o].function, size_names[i], value);
        CHECK_STATUS(ops[o].call(ctx, a.buffers, sizes), TC_ERROR_SHAPE);
        CHECK_CONTAINS(tc_last_error(), ops[o].function);
        if (wrong[w] < 0) CHECK_CONTAINS(tc_last_error(), value);
        if (wrong[w] < 0) CHECK_CONTAINS(tc_last_error(), size_names[i]);
        CHECK_BYTES(a.bytes, a.before, ARENA);
      }
    }
    arena_close(&ops[o], &a);
  }
}

/* One more, and one less: another output size, or more elements than there are. */
static void positional_neighbours(void) {
  for (size_t o = 0; o < COUNT(ops); o++) {
    if (!ops[o].positional) continue;
    tc_buffer *buffers[OPERANDS_MAX] = {NULL};
    for (size_t i = 0; i < ops[o].count; i++) buffers[i] = alloc(ctx, ops[o].operands[i].bytes);
    for (int i = 0; i < SIZES; i++) {
      int64_t sizes[SIZES];
      memcpy(sizes, valid_sizes, sizeof(sizes));
      sizes[i]++;
      note("%s, %s = %lld", ops[o].function, size_names[i], (long long)sizes[i]);
      tc_status_t status = ops[o].call(ctx, buffers, sizes);
      CHECK(status == TC_ERROR_SHAPE || status == TC_ERROR_BUFFER);
      CHECK_CONTAINS(tc_last_error(), ops[o].function);
    }
    for (size_t i = 0; i < ops[o].count; i++) CHECK_OK(tc_buffer_free(ctx, buffers[i]));
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"valid", valid},
                               {"null_operands", null_operands},
                               {"null_context", null_context},
                               {"short_buffers", short_buffers},
                               {"misaligned_buffers", misaligned_buffers},
                               {"buffers_of_another_context", buffers_of_another_context},
                               {"overlaps", overlaps},
                               {"one_element", one_element},
                               {"neighbours", neighbours},
                               {"positional_sizes", positional_sizes},
                               {"positional_neighbours", positional_neighbours}};
  ctx = open_context();
  unit = wrap_unit(ctx);
  other = open_context();
  int status = run_tests("operands", tests, COUNT(tests), argc, argv);
  close_context(other);
  close_context(ctx);
  return status;
}
