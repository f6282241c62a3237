/* SPDX-License-Identifier: MIT
 *
 * tc_gemm_batched against fp64 on one ISA: strides with gaps, shared operands, batches of 0, and products alone and in a batch.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/gemm_case.h"

#include <stdlib.h>
#include <string.h>

static tc_context *ctx;

static gemm_case random_batch(rng *r, int64_t largest) {
  gemm_case g = gemm_make(rng_between(r, 1, largest), rng_between(r, 1, largest), rng_between(r, 0, largest));
  gemm_randomize(&g, r);
  gemm_batch(&g, rng_between(r, 0, 7), r);
  g.batched = true;
  return g;
}

static void random_batches(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(300); i > 0; i--) {
    gemm_case g = random_batch(&r, i % 3 ? 20 : 70);
    gemm_check(&g, ctx, &r, RULE_RANDOM);
  }
}

static void integers(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(100); i > 0; i--) {
    gemm_case g = random_batch(&r, 50);
    gemm_integers(&g, i % 2);
    gemm_check(&g, ctx, &r, RULE_EXACT);
  }
}

static void any_numbers(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(100); i > 0; i--) {
    gemm_case g = random_batch(&r, 30);
    g.a_data = g.b_data = g.c_data = i % 2 ? (contents){DATA_SPECIAL, 30} : (contents){DATA_FINITE, 0};
    gemm_check(&g, ctx, &r, RULE_BOUND);
  }
}

/* Empty products, and K = 0. */
static void empty(void) {
  static const int64_t sizes[][4] = {{0, 3, 4, 5}, {3, 0, 4, 5}, {3, 4, 0, 5}, {3, 4, 5, 0}, {0, 0, 0, 0}, {1, 2, 3, 0}};
  for (size_t i = 0; i < COUNT(sizes); i++) {
    rng r = {test_seed()};
    gemm_case g = gemm_make(sizes[i][1], sizes[i][2], sizes[i][3]);
    g.batched = true;
    g.desc.beta = i % 2 ? 2 : 0;
    gemm_batch(&g, sizes[i][0], &r);
    gemm_check(&g, ctx, &r, RULE_EXACT);
  }
}

/* A batch of any number of products of which each is empty is over at once. */
static void endless_nothing(void) {
  tc_gemm_batched_desc d = TC_GEMM_BATCHED_DESC_INIT;
  tc_buffer *nothing = NULL;
  note("endless nothing");
  CHECK_OK(tc_buffer_alloc(ctx, 0, &nothing));
  d.batch = INT64_MAX;
  for (int i = 0; i < 3; i++) {
    d.M = i == 0 ? INT64_MAX : 0;
    d.N = i == 1 ? INT64_MAX : 0;
    d.K = 0;
    CHECK_OK(tc_gemm_batched(ctx, &d, nothing, nothing, nothing));
  }
  CHECK_OK(tc_buffer_free(ctx, nothing));
}

/* With one product the strides don't matter, even too short ones. */
static void batch_of_one(void) {
  rng r = {test_seed()};
  gemm_case g = gemm_make(9, 10, 11);
  g.batched = true;
  g.desc.stride_c = 1;
  gemm_check(&g, ctx, &r, RULE_BOUND);
}

/* Many small products. */
static void many(void) {
  rng r = {test_seed()};
  gemm_case g = gemm_make(2, 3, 4);
  gemm_batch(&g, 1 + scaled(65536), &r);
  gemm_check(&g, ctx, &r, RULE_BOUND);
}

/* Product i gives the bits that tc_gemm gives for it alone. */
static void item_alone(void) {
  rng r = {test_seed()};
  for (int64_t i = scaled(60); i > 0; i--) {
    gemm_case g = random_batch(&r, i % 4 ? 20 : 90);
    gemm_open(&g, ctx, &r);
    gemm_note(&g);
    CHECK_OK(gemm_call(&g, ctx));
    uint8_t *together = operand_snapshot(&g.C);
    operand_restore(&g.C, g.before);
    tc_gemm_desc one;
    memcpy(&one, &g.desc, sizeof(one));
    one.struct_size = sizeof(one);
    for (int64_t item = 0; item < g.desc.batch; item++) {
      one.a_offset = g.A.shift + g.desc.a_offset + item * g.desc.stride_a;
      one.b_offset = g.B.shift + g.desc.b_offset + item * g.desc.stride_b;
      one.c_offset = g.C.shift + g.desc.c_offset + item * g.desc.stride_c;
      CHECK_OK(tc_gemm(ctx, &one, g.A.buffer, g.B.buffer, g.C.buffer));
    }
    CHECK_BYTES(g.C.memory.data, together, g.C.memory.bytes);
    free(together);
    gemm_close(&g, ctx);
  }
}

/* Strides of more than 2^31 elements (pytorch#197636); just the touched pages take memory. */
static void far_products(void) {
  for (int which = 0; which < 3; which++) {
    rng r = {test_seed()};
    gemm_case g = gemm_make(3, 4, 5);
    gemm_batch(&g, 3, &r);
    int64_t *const strides[] = {&g.desc.stride_a, &g.desc.stride_b, &g.desc.stride_c};
    *strides[which] = ((int64_t)1 << 31) + 3;
    gemm_check(&g, ctx, &r, RULE_BOUND);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"random_batches", random_batches},
                               {"integers", integers},
                               {"any_numbers", any_numbers},
                               {"empty", empty},
                               {"endless_nothing", endless_nothing},
                               {"batch_of_one", batch_of_one},
                               {"many", many},
                               {"item_alone", item_alone},
                               {"far_products", far_products}};
  ctx = open_context();
  int status = run_tests("gemm_batched", tests, COUNT(tests), argc, argv);
  close_context(ctx);
  return status;
}
