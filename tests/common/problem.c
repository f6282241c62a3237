/* SPDX-License-Identifier: MIT */
#include "problem.h"

#include "check.h"

problem problem_gemm(int64_t M, int64_t N, int64_t K) {
  return (problem){.is_gemm = true, .gemm = gemm_make(M, N, K), .how = RULE_RANDOM, .seed = test_seed()};
}

problem problem_conv(conv_op op, conv_shape shape) {
  return (problem){.conv = conv_make(op, shape), .how = RULE_RANDOM, .seed = test_seed()};
}

static gemm_case random_gemm(rng *r, int64_t macs) {
  static const int64_t limits[] = {4, 20, 70, 300, 1000};
  int64_t M, N, K;
  do {
    M = rng_between(r, 1, rng_pick(r, limits));
    N = rng_between(r, 1, rng_pick(r, limits));
    K = rng_between(r, 0, rng_pick(r, limits));
  } while (M * N * K > macs);
  gemm_case g = gemm_make(M, N, K);
  gemm_randomize(&g, r);
  if (rng_one_in(r, 4)) {
    g.batched = true;
    gemm_batch(&g, rng_between(r, 0, 5), r);
  }
  return g;
}

/* Integers, or the same kind of other data in all inputs. */
static void choose_data(problem *p, rng *r) {
  static const struct {
    contents fill;
    accuracy how;
  } choices[] = {{{DATA_NORMAL, 1}, RULE_RANDOM},  {{DATA_NORMAL, 0.03}, RULE_BOUND}, {{DATA_NORMAL, 300}, RULE_BOUND},
                 {{DATA_SPECIAL, 50}, RULE_BOUND}, {{DATA_FINITE, 0}, RULE_BOUND},    {{DATA_SUBNORMAL, 0}, RULE_BOUND},
                 {{DATA_INTEGER, 0}, RULE_EXACT},  {{DATA_ODD, 0}, RULE_EXACT}};
  int64_t choice = rng_between(r, 0, COUNT(choices) - 1);
  contents fill = choices[choice].fill;
  p->how = choices[choice].how;
  if (p->how == RULE_EXACT) {
    bool odd = fill.kind == DATA_ODD;
    if (p->is_gemm) gemm_integers(&p->gemm, odd);
    if (!p->is_gemm) conv_integers(&p->conv, odd);
    return;
  }
  p->gemm.a_data = p->gemm.b_data = p->gemm.c_data = fill;
  for (int t = 0; t < TENSORS; t++) p->conv.fill[t] = fill;
}

problem problem_random(rng *r, int64_t macs) {
  problem p = {.is_gemm = rng_one_in(r, CONV_OPS + 1)};
  if (p.is_gemm) {
    p.gemm = random_gemm(r, macs);
  } else {
    conv_shape shape = conv_random_shape(r, macs);
    p.conv = conv_make((conv_op)rng_between(r, 0, CONV_OPS - 1), shape);
    conv_randomize(&p.conv, r);
  }
  choose_data(&p, r);
  p.seed = rng_bits(r);
  return p;
}

void problem_open(problem *p, tc_context *ctx) {
  rng r = {p->seed};
  if (p->is_gemm) {
    gemm_open(&p->gemm, ctx, &r);
  } else {
    conv_open(&p->conv, ctx, &r);
  }
}

void problem_close(problem *p, tc_context *ctx) {
  if (p->is_gemm) {
    gemm_close(&p->gemm, ctx);
  } else {
    conv_close(&p->conv, ctx);
  }
}

tc_status_t problem_call(problem *p, tc_context *ctx) { return p->is_gemm ? gemm_call(&p->gemm, ctx) : conv_call(&p->conv, ctx); }

const operand *problem_output(const problem *p) { return p->is_gemm ? &p->gemm.C : &p->conv.tensor[p->conv.op]; }

bool problem_check(problem *p, tc_context *ctx) {
  rng r = {p->seed};
  return p->is_gemm ? gemm_check(&p->gemm, ctx, &r, p->how) : conv_check(&p->conv, ctx, &r, p->how);
}

void problem_note(const problem *p) {
  if (p->is_gemm) {
    gemm_note(&p->gemm);
  } else {
    conv_note(&p->conv);
  }
}

uint8_t *problem_bytes(problem *p, tc_context *ctx, size_t *bytes) {
  problem_note(p);
  problem_open(p, ctx);
  CHECK_OK(problem_call(p, ctx));
  *bytes = problem_output(p)->memory.bytes;
  uint8_t *copy = operand_snapshot(problem_output(p));
  problem_close(p, ctx);
  return copy;
}
