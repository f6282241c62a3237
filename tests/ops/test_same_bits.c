/* SPDX-License-Identifier: MIT
 *
 * A call gives the same bits on any number of threads, on every run, at every alignment of its operands, and in one build with the
 * vector kernels of every ISA, and with the tile kernels of every ISA. This program opens the ISAs by itself.
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
  list[n++] = problem_gemm(1500, 4, 700);
  list[n++] = problem_gemm(300, 500, 20);
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

static bool gpu; /* the environment names a GPU: it takes the place of the ISAs */

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
  if (gpu) {
    tc_context *ctx = open_context();
    for_all(ctx, random, check);
    close_context(ctx);
    return;
  }
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

static bool has_tiles(tc_context *ctx) {
  tc_device_info info = TC_DEVICE_INFO_INIT;
  CHECK_OK(tc_device_info_get(ctx, &info));
  return strstr(info.kernel, "bf16x2") != NULL;
}

/* All ISAs without tiles give the same bits, and so do all with tiles. */
static void check_isas(problem *p, tc_context *unused) {
  (void)unused;
  char names[ISAS_MAX][ISA_NAME_BYTES];
  size_t count = list_isas(names);
  double *first[2] = {NULL, NULL};
  for (size_t i = 0; i < count; i++) {
    tc_context *ctx = open_isa(names[i]);
    double **of_its_kind = &first[has_tiles(ctx)];
    problem_open(p, ctx);
    CHECK_OK(problem_call(p, ctx));
    double *values = operand_values(problem_output(p));
    problem_note(p);
    if (!*of_its_kind) {
      *of_its_kind = values;
    } else {
      bool same = true;
      for (int64_t n = 0; n < operand_elements(problem_output(p)); n++) same &= same_value(values[n], (*of_its_kind)[n]);
      if (!CHECK(same)) printf("     %s differs from the first of its kind\n", names[i]);
      free(values);
    }
    problem_close(p, ctx);
    close_context(ctx);
  }
  free(first[0]);
  free(first[1]);
}

/* A block of C, computed alone. */
static void check_part(gemm_case *g, tc_context *ctx, const float *whole, int64_t i, int64_t m, int64_t j, int64_t n) {
  tc_gemm_batched_desc d = g->desc;
  const int64_t ldc = g->desc.N;
  d.M = m, d.N = n, d.ldc = ldc, d.c_offset = i * ldc + j;
  d.lda = d.transpose_a ? g->desc.M : d.K, d.a_offset = i * (d.transpose_a ? 1 : d.lda);
  d.ldb = d.transpose_b ? d.K : g->desc.N, d.b_offset = j * (d.transpose_b ? d.ldb : 1);
  note("rows %lld+%lld, columns %lld+%lld, transposes %d %d", (long long)i, (long long)m, (long long)j, (long long)n, d.transpose_a,
       d.transpose_b);
  memset(g->C.memory.data, 0, g->C.memory.bytes);
  CHECK_OK(tc_gemm_batched(ctx, &d, g->A.buffer, g->B.buffer, g->C.buffer));
  const float *got = (const float *)(const void *)g->C.memory.data;
  bool same = true;
  for (int64_t e = 0; e < ldc * g->desc.M; e++) {
    const bool inside = e / ldc - i >= 0 && e / ldc - i < m && e % ldc - j >= 0 && e % ldc - j < n;
    same &= inside ? memcmp(&got[e], &whole[e], sizeof *got) == 0 : got[e] == 0;
  }
  CHECK(same);
}

/* Vector kernels give an element the same bits in a product of any size: here in a large one, and in narrow parts of it. */
static void check_parts(tc_context *ctx) {
  static const int64_t parts[][4] = {{0, 1, 0, 500},     {699, 1, 3, 400},  {5, 7, 0, 500},   {0, 700, 499, 1},
                                     {0, 700, 100, 4},   {0, 700, 7, 17},   {10, 40, 20, 50}, {1, 1, 1, 1},
                                     {100, 20, 100, 15}, {0, 700, 300, 31}, {30, 3, 40, 9},   {0, 17, 0, 500}};
  rng r = {test_seed()};
  for (int transposes = 0; transposes < 4; transposes++) {
    gemm_case g = gemm_make(700, 500, 411);
    g.desc.transpose_a = transposes & 1;
    g.desc.transpose_b = transposes >> 1;
    g.desc.c_dtype = TC_DTYPE_F32;
    gemm_open(&g, ctx, &r);
    CHECK_OK(gemm_call(&g, ctx));
    float *whole = (float *)(void *)operand_snapshot(&g.C);
    for (size_t i = 0; i < COUNT(parts); i++) check_part(&g, ctx, whole, parts[i][0], parts[i][1], parts[i][2], parts[i][3]);
    free(whole);
    gemm_close(&g, ctx);
  }
}

static void parts_alone(void) {
  char names[ISAS_MAX][ISA_NAME_BYTES];
  size_t count = list_isas(names);
  for (size_t i = 0; i < count; i++) {
    tc_context *ctx = open_isa(names[i]);
    if (!has_tiles(ctx)) check_parts(ctx);
    close_context(ctx);
  }
}

static void isas(void) {
  if (!gpu) for_all(NULL, 300, check_isas);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"thread_counts", thread_counts},
                               {"repeated_runs", repeated_runs},
                               {"alignments", alignments},
                               {"isas", isas},
                               {"parts_alone", parts_alone}};
  unsetenv("TC_CPU_ISA");
  tc_context *ctx = open_context();
  gpu = on_metal(ctx);
  close_context(ctx);
  return run_tests("same_bits", tests, COUNT(tests), argc, argv);
}
