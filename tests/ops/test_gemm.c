/* SPDX-License-Identifier: MIT
 *
 * tc_gemm against fp64 on one ISA: sizes, transposes, factors, leading dimensions and offsets, NaN and infinity, subnormals, long
 * sums, and matrices of more than 2^31 elements.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/gemm_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static tc_context *ctx;

static void check_one(gemm_case g, accuracy how) {
  rng r = {test_seed()};
  gemm_check(&g, ctx, &r, how);
}

/* Every M, N, K of the list, each with other parameters. Under an emulator a part of them. */
static void sweep(void) {
  static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129};
  enum { SIZES = COUNT(sizes) };
  rng r = {test_seed()};
  for (int64_t i = 0; i < SIZES * SIZES * SIZES; i++) {
    gemm_case g = gemm_make(sizes[i % SIZES], sizes[i / SIZES % SIZES], sizes[i / SIZES / SIZES]);
    gemm_randomize(&g, &r);
    if (sampled(&r)) gemm_check(&g, ctx, &r, RULE_RANDOM);
  }
}

/* One under, at and over sizes at which blocks end, in each dimension. */
static void block_edges(void) {
  static const int64_t sizes[][3] = {{1, 257, 513},   {193, 1, 257},  {191, 255, 255}, {192, 256, 256},
                                     {193, 257, 257}, {385, 33, 511}, {13, 513, 769},  {97, 129, 1025},
                                     {256, 256, 512}, {5, 1031, 300}, {1031, 5, 300},  {7, 9, 5003},
                                     {2, 32776, 8},   {127, 1, 1749}, {32776, 2, 8},   {30, 2048, 300}};
  rng r = {test_seed()};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    if (!sampled(&r)) continue;
    gemm_case g = gemm_make(sizes[i][0], sizes[i][1], sizes[i][2]);
    gemm_check(&g, ctx, &r, RULE_RANDOM);
    gemm_randomize(&g, &r);
    gemm_check(&g, ctx, &r, RULE_RANDOM);
  }
}

static void integers(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(400); i > 0; i--) {
    gemm_case g = gemm_make(rng_between(&r, 1, 70), rng_between(&r, 1, 70), rng_between(&r, 1, 600));
    gemm_randomize(&g, &r);
    gemm_integers(&g, i % 2 == 0);
    gemm_check(&g, ctx, &r, RULE_EXACT);
  }
}

/* One product of any two finite numbers is exact in fp32, so it comes out rounded once; subnormals and overflow among them. */
static void single_products(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(20); i > 0; i--) {
    gemm_case g = gemm_make(100, 101, 1);
    g.desc.c_dtype = i % 4 ? TC_DTYPE_F16 : TC_DTYPE_F32;
    g.a_data = (contents){DATA_FINITE, 0};
    g.b_data = i % 2 ? (contents){DATA_FINITE, 0} : (contents){DATA_SUBNORMAL, 0};
    gemm_check(&g, ctx, &r, RULE_EXACT);
  }
}

static void any_numbers(void) {
  static const contents kinds[] = {
      {DATA_FINITE, 0}, {DATA_SUBNORMAL, 0}, {DATA_SPECIAL, 10}, {DATA_SPECIAL, 300}, {DATA_NORMAL, 200}};
  rng r = {test_seed()};
  for (int64_t i = scaled(300); i > 0; i--) {
    gemm_case g = gemm_make(rng_between(&r, 1, 40), rng_between(&r, 1, 40), rng_between(&r, 0, 90));
    gemm_randomize(&g, &r);
    g.a_data = kinds[rng_between(&r, 0, COUNT(kinds) - 1)];
    g.b_data = kinds[rng_between(&r, 0, COUNT(kinds) - 1)];
    g.c_data = kinds[rng_between(&r, 0, COUNT(kinds) - 1)];
    gemm_check(&g, ctx, &r, RULE_BOUND);
  }
}

/* Subnormal inputs against 1: subnormal results, to the bit. */
static void subnormals(void) {
  gemm_case g = gemm_make(37, 41, 1);
  g.a_data = (contents){DATA_SUBNORMAL, 0};
  g.b_data = (contents){DATA_CONSTANT, 1};
  check_one(g, RULE_EXACT);
  g = gemm_make(5, 7, 30);
  g.a_data = g.b_data = (contents){DATA_CONSTANT, 0x1p-12}; /* 30 * 2^-24 */
  check_one(g, RULE_EXACT);
  g.b_data = (contents){DATA_CONSTANT, 0x1p-18}; /* 30 * 2^-30 rounds to 0, in fp32 it is there */
  check_one(g, RULE_EXACT);
  g.desc.c_dtype = TC_DTYPE_F32;
  check_one(g, RULE_EXACT);
  g.a_data = g.b_data = (contents){DATA_CONSTANT, 0x1p-24}; /* the smallest products there are */
  check_one(g, RULE_EXACT);
}

/* A NaN or infinity in one element of A reaches exactly one row of C, in one of B one column: the reference knows which. */
static void one_special_element(void) {
  static const double values[] = {NAN, INFINITY, -INFINITY};
  rng r = {test_seed()};
  for (int64_t i = scaled(60); i > 0; i--) {
    gemm_case g = gemm_make(rng_between(&r, 1, 50), rng_between(&r, 1, 50), rng_between(&r, 1, 300));
    gemm_randomize(&g, &r);
    if (g.desc.alpha == 0) g.desc.alpha = 1;
    gemm_open(&g, ctx, &r);
    gemm_note(&g);
    operand *o = i % 2 ? &g.A : &g.B;
    guarded_protect(&o->memory, true);
    operand_set(o, operand_place(o, rng_between(&r, 0, operand_elements(o) - 1)), values[i % 3]);
    CHECK_OK(gemm_call(&g, ctx));
    expected *want = gemm_reference(&g);
    int64_t beside = 0, special = 0;
    for (int64_t n = 0; n < operand_elements(&g.C); n++) *(isfinite(want[n].exact) ? &beside : &special) += 1;
    CHECK_INT(special, i % 2 ? g.desc.N : g.desc.M);
    CHECK_INT(beside, (g.desc.M - (i % 2)) * (g.desc.N - !(i % 2)));
    check_output(&g.C, want, g.before, RULE_BOUND, NULL);
    free(want);
    gemm_close(&g, ctx);
  }
}

/* oneDNN#5717: row 0 of A is 1, all other rows NaN; row 0 of C is as exact as if they weren't there. */
static void nan_rows(void) {
  static const int64_t depths[] = {1, 17, 31, 33, 47, 63, 65, 95, 129, 255, 257};
  for (size_t i = 0; i < COUNT(depths); i++) {
    gemm_case g = gemm_make(16, 64, depths[i]);
    rng r = {test_seed()};
    gemm_integers(&g, false);
    gemm_open(&g, ctx, &r);
    gemm_note(&g);
    guarded_protect(&g.A.memory, true);
    for (int64_t n = 0; n < operand_elements(&g.A); n++) operand_set(&g.A, n, n < depths[i] ? 1 : NAN);
    CHECK_OK(gemm_call(&g, ctx));
    expected *want = gemm_reference(&g);
    check_output(&g.C, want, g.before, RULE_EXACT, NULL);
    free(want);
    gemm_close(&g, ctx);
  }
}

/* M, N or batch 0: nothing is written, not even a gap. K = 0: C = beta * C. */
static void empty(void) {
  static const int64_t sizes[][3] = {{0, 0, 0}, {0, 5, 3}, {5, 0, 3}, {3, 4, 0}, {1, 1, 0}, {0, 5, 0}, {64, 65, 0}};
  static const float betas[] = {0, 1, -1, 10, 0.25f};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    for (size_t b = 0; b < COUNT(betas); b++) {
      gemm_case g = gemm_make(sizes[i][0], sizes[i][1], sizes[i][2]);
      g.desc.beta = betas[b];
      g.desc.c_offset = 3;
      g.desc.ldc = g.desc.N + 2;
      check_one(g, RULE_EXACT);
      g.desc.c_dtype = TC_DTYPE_F32;
      check_one(g, RULE_EXACT);
    }
  }
}

/* An empty operand needs no memory, and its offset may be any. */
static void empty_operands(void) {
  tc_buffer *nothing = NULL, *C = NULL;
  CHECK_OK(tc_buffer_wrap(ctx, NULL, 0, &nothing));
  CHECK_OK(tc_buffer_alloc(ctx, 12 * 2, &C));
  tc_gemm_desc desc = TC_GEMM_DESC_INIT;
  desc.M = 3;
  desc.N = 4;
  CHECK_OK(tc_gemm(ctx, &desc, nothing, nothing, C));
  desc.a_offset = desc.b_offset = INT64_MAX;
  CHECK_OK(tc_gemm(ctx, &desc, nothing, nothing, C));
  CHECK_OK(tc_buffer_free(ctx, nothing));
  CHECK_OK(tc_buffer_free(ctx, C));
}

/* alpha = 0: A and B are not read: they may not even be readable. beta = 0 then writes +0, over NaN too. */
static void alpha_zero(void) {
  static const float betas[] = {0, 1, -2};
  for (size_t b = 0; b < COUNT(betas); b++) {
    rng r = {test_seed()};
    gemm_case g = gemm_make(33, 34, 35);
    g.desc.alpha = 0;
    g.desc.beta = betas[b];
    gemm_note(&g);
    gemm_open(&g, ctx, &r);
    mprotect(g.A.memory.map, g.A.memory.map_bytes, PROT_NONE);
    mprotect(g.B.memory.map, g.B.memory.map_bytes, PROT_NONE);
    CHECK_OK(gemm_call(&g, ctx));
    guarded_protect(&g.A.memory, true);
    guarded_protect(&g.B.memory, true);
    expected *want = gemm_reference(&g);
    check_output(&g.C, want, g.before, RULE_EXACT, NULL);
    for (size_t i = 0; betas[b] == 0 && i < g.C.memory.bytes; i++) CHECK_INT(g.C.memory.data[i], 0);
    free(want);
    gemm_close(&g, ctx);
  }
}

/* K = 0 and beta = 0: +0, to the bit. */
static void zero_is_positive(void) {
  rng r = {test_seed()};
  gemm_case g = gemm_make(9, 17, 0);
  g.desc.alpha = -1;
  gemm_note(&g);
  gemm_open(&g, ctx, &r);
  CHECK_OK(gemm_call(&g, ctx));
  for (size_t i = 0; i < g.C.memory.bytes; i++) CHECK_INT(g.C.memory.data[i], 0);
  gemm_close(&g, ctx);
}

/* Constants over long sums, where a single fp32 sum would drift or stand still. */
static void long_sums(void) {
  static const struct {
    double a, b;
    int64_t K;
    tc_dtype_t c_dtype;
    accuracy how;
  } rows[] = {
      {1, 1, 100000, TC_DTYPE_F32, RULE_EXACT},     /* 100000 */
      {1, 1, 100000, TC_DTYPE_F16, RULE_EXACT},     /* infinity */
      {0.5, 1, 100000, TC_DTYPE_F16, RULE_EXACT},   /* 50000 */
      {0.1, 0.1, 100000, TC_DTYPE_F16, RULE_BOUND}, /* 1000 */
      {0.1, 0.1, 100000, TC_DTYPE_F32, RULE_BOUND},   {0.7, -0.9, 100000, TC_DTYPE_F32, RULE_BOUND},
      {0.1, 0.1, 32767, TC_DTYPE_F32, RULE_BOUND},    {0.1, 0.1, 32769, TC_DTYPE_F32, RULE_BOUND},
      {0x1p-24, 1, 100000, TC_DTYPE_F16, RULE_EXACT}, /* subnormals */
      {8, 8, 4096, TC_DTYPE_F16, RULE_EXACT},         /* 262144: infinity */
      {8, 8, 1000, TC_DTYPE_F16, RULE_EXACT},         /* 64000: with fp16 sums it would be wrong */
      {65504, 65504, 3, TC_DTYPE_F16, RULE_EXACT},    {65504, 1, 1, TC_DTYPE_F16, RULE_EXACT},
      {65504, 65504, 2000, TC_DTYPE_F32, RULE_BOUND}, {1025. / 1024, 1, 70000, TC_DTYPE_F32, RULE_BOUND},
      {257, 257, 100, TC_DTYPE_F32, RULE_EXACT}, /* both operands at the limit of two bf16 */
  };
  for (size_t i = 0; i < COUNT(rows); i++) {
    gemm_case g = gemm_make(3, 17, rows[i].K);
    g.desc.c_dtype = rows[i].c_dtype;
    g.a_data = (contents){DATA_CONSTANT, rows[i].a};
    g.b_data = (contents){DATA_CONSTANT, rows[i].b};
    check_one(g, rows[i].how);
  }
}

/* One product of 1, then many too small to change an fp32 sum of 1 one by one: together they must be there. */
static void swallowed(void) {
  static const int64_t depths[] = {256, 512, 513, 100000};
  for (size_t i = 0; i < COUNT(depths); i++) {
    gemm_case g = gemm_make(5, 17, depths[i]);
    rng r = {test_seed()};
    g.desc.c_dtype = TC_DTYPE_F32;
    g.a_data = (contents){DATA_CONSTANT, 0x1p-12};
    g.b_data = (contents){DATA_CONSTANT, 0x1p-13};
    gemm_open(&g, ctx, &r);
    gemm_note(&g);
    guarded_protect(&g.A.memory, true);
    guarded_protect(&g.B.memory, true);
    for (int64_t row = 0; row < 5; row++) operand_set(&g.A, row * depths[i], 1);
    for (int64_t column = 0; column < 17; column++) operand_set(&g.B, column, 1);
    CHECK_OK(gemm_call(&g, ctx));
    expected *want = gemm_reference(&g);
    check_output(&g.C, want, g.before, RULE_BOUND, NULL);
    free(want);
    gemm_close(&g, ctx);
  }
}

/* Large sums that cancel: +-65504 * 65504 in pairs, and what is left is small. */
static void cancellation(void) {
  rng r = {test_seed()};
  gemm_case g = gemm_make(4, 5, 1000);
  gemm_open(&g, ctx, &r);
  gemm_note(&g);
  guarded_protect(&g.A.memory, true);
  for (int64_t n = 0; n < operand_elements(&g.A); n++) operand_set(&g.A, n, n % 2 ? 65504 : -65504);
  guarded_protect(&g.B.memory, true);
  for (int64_t n = 0; n < operand_elements(&g.B); n++) operand_set(&g.B, n, 65504);
  CHECK_OK(gemm_call(&g, ctx));
  for (int64_t n = 0; n < operand_elements(&g.C); n++) CHECK(operand_get(&g.C, n) == 0);
  gemm_close(&g, ctx);
}

/* alpha and beta far from 1; a product beyond fp32 is infinite, never NaN. */
static void large_factors(void) {
  static const float factors[][2] = {{1000, 0},   {1e-4f, 0}, {1, 1000},   {1e-3f, 1e3f},
                                     {-300, 300}, {1e30f, 0}, {-1e38f, 0}, {1e-38f, 1}};
  for (size_t i = 0; i < COUNT(factors); i++) {
    gemm_case g = gemm_make(30, 31, 32);
    g.desc.alpha = factors[i][0];
    g.desc.beta = factors[i][1];
    check_one(g, RULE_BOUND);
    g.desc.c_dtype = TC_DTYPE_F32;
    check_one(g, RULE_BOUND);
  }
}

/* Inputs may share memory: C = A * A^T out of one buffer. */
static void shared_inputs(void) {
  rng r = {test_seed()};
  gemm_case g = gemm_make(40, 40, 33);
  g.desc.transpose_b = 1;
  gemm_open(&g, ctx, &r);
  gemm_note(&g);
  CHECK_OK(tc_buffer_free(ctx, g.B.buffer));
  guarded_protect(&g.B.memory, true);
  memcpy(g.B.memory.data, g.A.memory.data, g.A.memory.bytes);
  g.B.buffer = g.A.buffer;
  g.B.shift = g.A.shift;
  CHECK_OK(gemm_call(&g, ctx));
  expected *want = gemm_reference(&g);
  check_output(&g.C, want, g.before, RULE_RANDOM, NULL);
  for (int64_t i = 0; i < 40; i++) {
    for (int64_t j = 0; j < i; j++) CHECK(operand_get(&g.C, i * 40 + j) == operand_get(&g.C, j * 40 + i));
  }
  free(want);
  g.B.buffer = NULL;
  gemm_close(&g, ctx);
}

/* Rows so far apart, or an offset so large, that elements lie beyond 2^31 and bytes beyond 2^32. Only touched pages take memory. Two
 * rows, since a GPU's buffers have a limit, of 9.7 GB at least. */
static void far_elements(void) {
  static const int64_t far = ((int64_t)1 << 31) + 5;
  for (int which = 0; which < 6; which++) {
    gemm_case g = gemm_make(2, 4, 2);
    tc_gemm_batched_desc *d = &g.desc;
    int64_t *const fields[] = {&d->lda, &d->ldb, &d->ldc, &d->a_offset, &d->b_offset, &d->c_offset};
    *fields[which] = far;
    rng r = {test_seed()};
    gemm_note(&g);
    gemm_open(&g, ctx, &r);
    CHECK_OK(gemm_call(&g, ctx));
    expected *want = gemm_reference(&g);
    check_output(&g.C, want, g.before, RULE_BOUND, NULL);
    free(want);
    gemm_close(&g, ctx);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"sweep", sweep},
                               {"block_edges", block_edges},
                               {"integers", integers},
                               {"single_products", single_products},
                               {"any_numbers", any_numbers},
                               {"subnormals", subnormals},
                               {"one_special_element", one_special_element},
                               {"nan_rows", nan_rows},
                               {"empty", empty},
                               {"empty_operands", empty_operands},
                               {"alpha_zero", alpha_zero},
                               {"zero_is_positive", zero_is_positive},
                               {"long_sums", long_sums},
                               {"swallowed", swallowed},
                               {"cancellation", cancellation},
                               {"large_factors", large_factors},
                               {"shared_inputs", shared_inputs},
                               {"far_elements", far_elements}};
  ctx = open_context();
  int status = run_tests("gemm", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  return status;
}
