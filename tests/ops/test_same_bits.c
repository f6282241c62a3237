/* SPDX-License-Identifier: MIT
 *
 * A call gives the same bits on any number of threads, on every run, at every alignment of its operands, and in one build with the
 * kernels of every ISA. This program opens the ISAs by itself.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Problems large enough for several threads and blocks, each kind of cut among them. */
static size_t large_problems(problem *list) {
  size_t n = 0;
  list[n++] = problem_gemm(200, 300, 400);
  list[n++] = problem_gemm(56, 444, 700); /* pytorch#88718 */
  list[n++] = problem_gemm(127, 1, 1749); /* mlx#3591 */
  list[n++] = problem_gemm(3, 5, 30000);
  list[n++] = problem_gemm(1, 2680, 166); /* oneDNN#3247 */
  for (conv_op op = 0; op < CONV_OPS; op++) {
    list[n++] = problem_conv(op, (conv_shape){2, 16, 24, 20, 22, 3, 3, 1, 1, 1, 1, 1});
    list[n++] = problem_conv(op, (conv_shape){1, 3, 32, 61, 62, 7, 7, 3, 3, 2, 2, 1});
    list[n++] = problem_conv(op, (conv_shape){3, 32, 32, 17, 15, 3, 3, 1, 1, 2, 1, 32});
    list[n++] = problem_conv(op, (conv_shape){2, 1, 2, 40, 300, 1, 3, 0, 1, 1, 1, 1});
    list[n++] = problem_conv(op, (conv_shape){4, 24, 20, 14, 14, 1, 1, 0, 0, 1, 1, 1});
    list[n++] = problem_conv(op, (conv_shape){1, 3, 3, 30, 30, 3, 1, 1, 0, 1, 1, 1}); /* NNlib.jl#197 */
  }
  return n;
}

enum { LARGE_MAX = 32 };

typedef void for_problem(problem *p, tc_context *ctx);

/* The large problems, and random ones with any data, NaN payloads among them. */
static void for_all(tc_context *ctx, int64_t random, for_problem *check) {
  problem list[LARGE_MAX];
  size_t count = large_problems(list);
  rng r = {test_seed()};
  for (size_t i = 0; i < count; i++) {
    if (sampled(&r)) check(&list[i], ctx);
  }
  for (int64_t i = scaled(random); i > 0; i--) {
    problem p = problem_random(&r, 1 << 19);
    check(&p, ctx);
  }
}

static void check_threads(problem *p, tc_context *ctx) {
  static const int64_t counts[] = {1, 2, 3, 7};
  problem_note(p);
  problem_open(p, ctx);
  uint8_t *first = NULL;
  for (size_t i = 0; i < COUNT(counts); i++) {
    CHECK_OK(tc_context_set_threads(ctx, counts[i]));
    for (int run = 0; run < 2; run++) {
      CHECK_OK(problem_call(p, ctx));
      if (!first) first = operand_snapshot(problem_output(p));
      CHECK_BYTES(problem_output(p)->memory.data, first, problem_output(p)->memory.bytes);
    }
  }
  free(first);
  problem_close(p, ctx);
}

static void on_each_isa(int64_t random, for_problem *check) {
  char names[ISAS_MAX][ISA_NAME_BYTES];
  size_t count = list_isas(names);
  for (size_t i = 0; i < count; i++) {
    tc_context *ctx = open_isa(names[i]);
    for_all(ctx, random, check);
    close_context(ctx);
  }
}

static void thread_counts(void) { on_each_isa(100, check_threads); }

/* 100 runs of a product whose sums are cut into pieces. */
static void repeated_runs(void) {
  tc_context *ctx = open_context();
  problem p = problem_gemm(2, 3, 20000);
  problem_note(&p);
  problem_open(&p, ctx);
  CHECK_OK(problem_call(&p, ctx));
  uint8_t *first = operand_snapshot(problem_output(&p));
  for (int run = 0; run < 100; run++) {
    CHECK_OK(problem_call(&p, ctx));
    CHECK_BYTES(problem_output(&p)->memory.data, first, problem_output(&p)->memory.bytes);
  }
  free(first);
  problem_close(&p, ctx);
  close_context(ctx);
}

static bool same_value(double a, double b) { return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b); }

/* The values of the output with each operand so many elements from the start of a page. */
static double *values_at(problem *p, tc_context *ctx, int64_t a, int64_t b, int64_t out) {
  p->gemm.place = p->conv.place = AT_START;
  p->gemm.desc.a_offset = p->conv.desc.x_offset = a;
  p->gemm.desc.b_offset = p->conv.desc.w_offset = b;
  p->gemm.desc.c_offset = p->conv.desc.y_offset = out;
  p->conv.positional = false;
  problem_note(p);
  problem_open(p, ctx);
  CHECK_OK(problem_call(p, ctx));
  double *values = operand_values(problem_output(p));
  problem_close(p, ctx);
  return values;
}

static void check_alignments(problem *p, tc_context *ctx) {
  static const int64_t offsets[][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 3, 5}, {31, 2, 16}};
  double *aligned = values_at(p, ctx, 0, 0, 0);
  for (size_t i = 0; i < COUNT(offsets); i++) {
    double *values = values_at(p, ctx, offsets[i][0], offsets[i][1], offsets[i][2]);
    bool same = true;
    for (int64_t n = 0; n < operand_elements(problem_output(p)); n++) same &= same_value(values[n], aligned[n]);
    CHECK(same);
    free(values);
  }
  free(aligned);
}

static void alignments(void) { on_each_isa(50, check_alignments); }

/* The kernels of all ISAs give the same bits. */
static void check_isas(problem *p, tc_context *unused) {
  (void)unused;
  char names[ISAS_MAX][ISA_NAME_BYTES];
  size_t count = list_isas(names);
  double *first = NULL;
  for (size_t i = 0; i < count; i++) {
    tc_context *ctx = open_isa(names[i]);
    problem_open(p, ctx);
    CHECK_OK(problem_call(p, ctx));
    double *values = operand_values(problem_output(p));
    problem_note(p);
    if (!first) {
      first = values;
    } else {
      bool same = true;
      for (int64_t n = 0; n < operand_elements(problem_output(p)); n++) same &= same_value(values[n], first[n]);
      if (!CHECK(same)) printf("     %s differs from %s\n", names[i], names[0]);
      free(values);
    }
    problem_close(p, ctx);
    close_context(ctx);
  }
  free(first);
}

static void isas(void) { for_all(NULL, 300, check_isas); }

int main(int argc, char **argv) {
  static const test tests[] = {
      {"thread_counts", thread_counts}, {"repeated_runs", repeated_runs}, {"alignments", alignments}, {"isas", isas}};
  unsetenv("TC_CPU_ISA");
  return run_tests("same_bits", tests, COUNT(tests), argc, argv);
}
