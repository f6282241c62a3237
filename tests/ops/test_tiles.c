/* SPDX-License-Identifier: MIT
 *
 * What could go wrong on an ISA that splits fp16 into two bf16 and multiplies tiles, at shapes large enough for that: values with low
 * halves, terms, rows and columns that don't fill a tile, several chunks and panels, and infinities and NaNs, which don't survive a
 * split. It all holds on every ISA.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/problem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tc_context *ctx;

/* ---- Shapes ---- */

static const int64_t products[][3] = {{16, 16, 512},  {17, 33, 513}, {48, 47, 1025}, {8, 300, 70},
                                      {300, 8, 1100}, {33, 17, 160}, {400, 520, 24}, {40, 520, 530}};

static const conv_shape convolutions[] = {
    {2, 32, 32, 8, 8, 3, 3, 1, 1, 1, 1, 1},    /* one step for each tap */
    {2, 64, 40, 5, 28, 3, 3, 1, 1, 1, 1, 1},   /* two tiles for a row of pixels */
    {5, 40, 24, 7, 7, 3, 3, 1, 1, 1, 1, 1},    /* images side by side, one of them alone */
    {3, 33, 70, 15, 13, 3, 3, 1, 1, 2, 2, 1},  /* phases of odd sizes */
    {2, 3, 24, 31, 33, 7, 7, 3, 3, 2, 2, 1},   /* a first layer */
    {2, 3, 16, 20, 20, 3, 11, 1, 5, 1, 1, 1},  /* more taps in a row than a step has */
    {2, 13, 20, 12, 12, 3, 3, 0, 0, 1, 1, 1},  /* two taps to a step */
    {1, 70, 36, 9, 20, 5, 5, 2, 2, 1, 1, 2},   /* groups */
    {2, 130, 20, 9, 9, 3, 3, 1, 1, 1, 1, 1},   /* three chunks */
    {1, 32, 32, 20, 150, 3, 3, 4, 4, 3, 1, 1}, /* rows that take the place of several, padding over the kernel */
    {2, 64, 40, 9, 9, 1, 1, 0, 0, 1, 1, 1},    /* one tap */
    {2, 64, 40, 9, 9, 1, 1, 0, 0, 2, 2, 1},    /* of which some pixels see none */
    {2, 48, 32, 16, 16, 2, 2, 0, 0, 2, 2, 1},  /* a phase for each tap */
    {1, 32, 16, 30, 12, 3, 1, 1, 0, 4, 1, 1},  /* phases without taps */
    {1, 16, 16, 3, 611, 3, 3, 1, 1, 1, 2, 1},  /* parts of a row */
    {3, 40, 32, 7, 7, 1, 1, 0, 0, 1, 1, 1},    /* short rows as one */
};

/* All of them, forward and both gradients. */
enum { PRODUCTS = COUNT(products), CONVOLUTIONS = COUNT(convolutions), PROBLEMS = PRODUCTS + CONV_OPS * CONVOLUTIONS };

static problem problem_at(size_t i) {
  if (i < PRODUCTS) return problem_gemm(products[i][0], products[i][1], products[i][2]);
  return problem_conv((conv_op)((i - PRODUCTS) % CONV_OPS), convolutions[(i - PRODUCTS) / CONV_OPS]);
}

/* The two inputs. */
static contents *fills(problem *p, int which) {
  if (p->is_gemm) return which ? &p->gemm.b_data : &p->gemm.a_data;
  return &p->conv.fill[(p->conv.op + 1 + which) % 3];
}

static operand *inputs(problem *p, int which) {
  if (p->is_gemm) return which ? &p->gemm.B : &p->gemm.A;
  return &p->conv.tensor[(p->conv.op + 1 + which) % 3];
}

static void set_mode(problem *p, tc_math_mode_t mode) {
  if (p->is_gemm) {
    p->gemm.desc.math_mode = mode;
  } else {
    p->conv.desc.math_mode = mode;
    p->conv.positional = false;
  }
}

static int64_t terms_of(const problem *p) { return p->is_gemm ? p->gemm.desc.K : conv_terms(&p->conv.desc, p->conv.op); }

/* ---- Low halves ---- */

static void random_data(void) {
  for (size_t i = 0; i < PROBLEMS; i++) {
    problem p = problem_at(i);
    p.how = RULE_RANDOM;
    problem_check(&p, ctx);
  }
}

/* Odd integers from 257 to 2047 by integers of up to 256: exact. */
static void odd_integers(void) {
  for (size_t i = 0; i < PROBLEMS; i++) {
    for (int which = 0; which < 2; which++) {
      problem p = problem_at(i);
      const double largest = floor(ldexp(1, 22) / (double)terms_of(&p) / 2047);
      if (largest < 1) continue;
      *fills(&p, which) = (contents){DATA_ODD, 0};
      *fills(&p, !which) = (contents){DATA_INTEGER, fmin(256, largest)};
      if (!p.is_gemm) p.conv.fill[BIAS] = (contents){DATA_INTEGER, 2048};
      p.how = RULE_EXACT;
      problem_check(&p, ctx);
    }
  }
}

/* Low halves on both sides: exact in strict mode, within the bound otherwise. */
static void odd_by_odd(void) {
  for (int strict = 0; strict < 2; strict++) {
    for (size_t i = 0; i < PROBLEMS; i++) {
      problem p = problem_at(i);
      const double largest = floor(sqrt(ldexp(1, 22) / (double)terms_of(&p)));
      if (strict && largest < 300) continue; /* no low halves */
      *fills(&p, 0) = *fills(&p, 1) = strict ? (contents){DATA_INTEGER, fmin(2047, largest)} : (contents){DATA_ODD, 0};
      if (!p.is_gemm) p.conv.fill[BIAS] = (contents){DATA_INTEGER, 100};
      if (strict) set_mode(&p, TC_MATH_STRICT);
      p.how = strict ? RULE_EXACT : RULE_BOUND;
      problem_check(&p, ctx);
    }
  }
}

static void strict_products(void) {
  rng r = {test_seed()};
  for (int64_t K = 1; K <= 40; K++) {
    gemm_case g = gemm_make(40, 41, K);
    g.desc.math_mode = TC_MATH_STRICT;
    g.desc.c_dtype = K % 2 ? TC_DTYPE_F16 : TC_DTYPE_F32;
    g.a_data = g.b_data = (contents){DATA_INTEGER, floor(sqrt(ldexp(1, 22) / (double)K))};
    if (g.a_data.parameter > 2047) g.a_data.parameter = g.b_data.parameter = 2047;
    gemm_check(&g, ctx, &r, RULE_EXACT);
  }
}

/* Every low half as large as it can be, all of one sign: 1 + 2^-8 lies in the middle between two bf16. */
static void largest_low_halves(void) {
  static const double values[] = {1 + 0x1p-8, -1.5 - 0x1p-8, 0x1p-14 - 0x1p-24};
  for (size_t i = 0; i < PROBLEMS; i++) {
    for (size_t v = 0; v < COUNT(values); v++) {
      problem p = problem_at(i);
      *fills(&p, 0) = (contents){DATA_CONSTANT, values[v]};
      *fills(&p, 1) = (contents){DATA_CONSTANT, values[0]};
      if (v == 1) set_mode(&p, TC_MATH_STRICT);
      p.how = RULE_BOUND;
      problem_check(&p, ctx);
    }
  }
}

static void any_numbers(void) {
  static const contents kinds[] = {{DATA_FINITE, 0}, {DATA_SUBNORMAL, 0}, {DATA_NORMAL, 1}};
  for (size_t i = 0; i < PROBLEMS; i++) {
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
      problem p = problem_at(i);
      *fills(&p, 0) = kinds[kind];
      *fills(&p, 1) = kinds[(kind + i) % COUNT(kinds)];
      p.how = RULE_BOUND;
      problem_check(&p, ctx);
    }
  }
}

/* Sums of 100000 equal products. */
static void long_sums(void) {
  static const double constants[][2] = {{1, 1}, {1 + 0x1p-8, 0.25}, {1 + 0x1p-8, 1 + 0x1p-8}, {0.1, 0.1}, {0x1p-24, 1}};
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(constants); i++) {
    gemm_case g = gemm_make(20, 24, 100000);
    g.desc.c_dtype = TC_DTYPE_F32;
    g.a_data = (contents){DATA_CONSTANT, constants[i][0]};
    g.b_data = (contents){DATA_CONSTANT, constants[i][1]};
    gemm_check(&g, ctx, &r, i < 2 ? RULE_EXACT : RULE_BOUND);
  }
}

/* ---- Tails ---- */

/* Each number of terms that doesn't fill a step, with NaN beyond them. */
static void terms_beyond(void) {
  rng r = {test_seed()};
  for (int64_t K = 1; K <= 63; K++) {
    for (int transposes = 0; transposes < 4; transposes++) {
      gemm_case g = gemm_make(37, 45, K);
      g.desc.transpose_a = transposes & 1;
      g.desc.transpose_b = transposes >> 1;
      g.desc.lda = (transposes & 1 ? 37 : K) + 19;
      g.desc.ldb = (transposes >> 1 ? K : 45) + 19;
      g.place = K % 2 ? AT_END : AT_START;
      gemm_integers(&g, true);
      gemm_check(&g, ctx, &r, RULE_EXACT);
    }
  }
}

static void rows_and_columns(void) {
  rng r = {test_seed()};
  for (int64_t n = 8; n <= 70; n++) {
    for (int side = 0; side < 2; side++) {
      gemm_case g = gemm_make(side ? n : 40, side ? 40 : n, 64);
      gemm_integers(&g, true);
      gemm_check(&g, ctx, &r, RULE_EXACT);
    }
  }
}

/* Several products at once, some of which share an operand. */
static void batches(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(20); i > 0; i--) {
    gemm_case g = gemm_make(rng_between(&r, 8, 90), rng_between(&r, 8, 90), rng_between(&r, 16, 700));
    gemm_randomize(&g, &r);
    gemm_batch(&g, rng_between(&r, 2, 5), &r);
    gemm_integers(&g, i % 2);
    gemm_check(&g, ctx, &r, RULE_EXACT);
  }
}

/* ---- Infinities and NaNs ---- */

/* Puts a value at a place of one of the inputs, calls, and compares with the reference; the inputs as they are then. */
static void check_special(problem *p, int which, double place, double value) {
  problem_note(p);
  problem_open(p, ctx);
  operand *o = inputs(p, which);
  guarded_protect(&o->memory, true);
  operand_set(o, operand_place(o, (int64_t)(place * (double)(operand_elements(o) - 1))), value);
  CHECK_OK(problem_call(p, ctx));
  expected *want = p->is_gemm ? gemm_reference(&p->gemm) : conv_reference(&p->conv);
  check_output(problem_output(p), want, p->is_gemm ? p->gemm.before : p->conv.before, RULE_BOUND, NULL);
  free(want);
  problem_close(p, ctx);
}

static void one_special_element(void) {
  static const double values[] = {INFINITY, -INFINITY, NAN}, places[] = {0, 0.4, 0.77, 1};
  for (size_t i = 0; i < PROBLEMS; i++) {
    for (int which = 0; which < 2; which++) {
      for (size_t at = i % 2; at < COUNT(places); at += 2) {
        problem p = problem_at(i);
        check_special(&p, which, places[at], values[(i + at) % COUNT(values)]);
      }
    }
  }
}

static void many_special_elements(void) {
  for (size_t i = 0; i < PROBLEMS; i++) {
    for (int which = 0; which < 3; which++) {
      problem p = problem_at(i);
      if (which < 2) *fills(&p, which) = (contents){DATA_SPECIAL, 500};
      if (which == 2) *fills(&p, 0) = *fills(&p, 1) = (contents){DATA_SPECIAL, 50};
      p.how = RULE_BOUND;
      problem_check(&p, ctx);
    }
  }
}

/* A padded position is a zero that takes part in forward; dX sums real pairs only; infinite pixels beside padding are no NaN. */
static void special_beside_padding(void) {
  for (size_t i = PRODUCTS; i < PROBLEMS; i++) {
    for (int which = 0; which < 2; which++) {
      problem p = problem_at(i);
      *fills(&p, which) = (contents){DATA_CONSTANT, INFINITY};
      *fills(&p, !which) = (contents){DATA_CONSTANT, 1};
      p.how = RULE_BOUND;
      problem_check(&p, ctx);
    }
  }
}

/* ---- The same bits ---- */

/* An image gives the bits that it gives alone, whatever the other images are: NaN among them. */
static void beside_nan(void) {
  for (size_t i = PRODUCTS; i < PROBLEMS; i++) {
    problem p = problem_at(i);
    if (p.conv.op == CONV_BACKWARD_WEIGHT || p.conv.desc.batch < 2) continue;
    problem_note(&p);
    problem_open(&p, ctx);
    const int input = p.conv.op == CONV_FORWARD ? X : Y;
    const operand *out = problem_output(&p);
    const size_t image = (size_t)(operand_elements(out) / p.conv.desc.batch) * 2;
    CHECK_OK(problem_call(&p, ctx));
    uint8_t *clean = operand_snapshot(out);
    guarded_protect(&p.conv.tensor[input].memory, true);
    operand_set(&p.conv.tensor[input], 3, NAN);
    CHECK_OK(problem_call(&p, ctx));
    CHECK_BYTES(out->memory.data + image, clean + image, out->memory.bytes - image);
    free(clean);
    problem_close(&p, ctx);
  }
}

/* A NaN in a row of A or a column of B changes no other row or column to the bit. */
static void elements_beside_nan(void) {
  for (size_t i = 0; i < PRODUCTS; i++) {
    problem p = problem_at(i);
    problem_note(&p);
    problem_open(&p, ctx);
    const int64_t M = p.gemm.desc.M, N = p.gemm.desc.N;
    CHECK_OK(problem_call(&p, ctx));
    double *clean = operand_values(&p.gemm.C);
    guarded_protect(&p.gemm.A.memory, true);
    guarded_protect(&p.gemm.B.memory, true);
    operand_set(&p.gemm.A, 2 * p.gemm.desc.K + 5, NAN);
    operand_set(&p.gemm.B, 5 * N + 3, INFINITY);
    CHECK_OK(problem_call(&p, ctx));
    bool same = true;
    for (int64_t n = 0; n < M * N; n++) {
      const double got = operand_get(&p.gemm.C, n);
      same &= n / N == 2 ? isnan(got) : n % N == 3 ? !isfinite(got) : got == clean[n];
    }
    CHECK(same);
    free(clean);
    problem_close(&p, ctx);
  }
}

static void check_threads(problem *p) {
  static const int64_t counts[] = {1, 2, 3, 7};
  int64_t before = 0;
  CHECK_OK(tc_context_get_threads(ctx, &before));
  problem_note(p);
  problem_open(p, ctx);
  uint8_t *first = NULL;
  for (size_t i = 0; i < COUNT(counts); i++) {
    CHECK_OK(tc_context_set_threads(ctx, counts[i]));
    CHECK_OK(problem_call(p, ctx));
    if (!first) first = operand_snapshot(problem_output(p));
    CHECK_BYTES(problem_output(p)->memory.data, first, problem_output(p)->memory.bytes);
  }
  free(first);
  problem_close(p, ctx);
  CHECK_OK(tc_context_set_threads(ctx, before));
}

static void thread_counts(void) {
  for (size_t i = 0; i < PROBLEMS; i++) {
    problem p = problem_at(i);
    check_threads(&p);
    p = problem_at(i);
    *fills(&p, 0) = (contents){DATA_SPECIAL, 1000};
    check_threads(&p);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"random_data", random_data},
                               {"odd_integers", odd_integers},
                               {"odd_by_odd", odd_by_odd},
                               {"strict_products", strict_products},
                               {"largest_low_halves", largest_low_halves},
                               {"any_numbers", any_numbers},
                               {"long_sums", long_sums},
                               {"terms_beyond", terms_beyond},
                               {"rows_and_columns", rows_and_columns},
                               {"batches", batches},
                               {"one_special_element", one_special_element},
                               {"many_special_elements", many_special_elements},
                               {"special_beside_padding", special_beside_padding},
                               {"beside_nan", beside_nan},
                               {"elements_beside_nan", elements_beside_nan},
                               {"thread_counts", thread_counts}};
  ctx = open_context();
  const int status = run_tests("tiles", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  return status;
}
