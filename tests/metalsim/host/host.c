/* SPDX-License-Identifier: MIT */
#include "host.h"

#include "common/half.h"

tc_context *open_metal(void) {
  tc_context *ctx = NULL;
  if (tc_init_backend(TC_BACKEND_METAL, &ctx) != TC_OK) give_up("%s", tc_last_error());
  return ctx;
}

void check_nothing_lives(void) {
  if (!CHECK_INT(metalsim_live(false), 0)) metalsim_live(true);
}

void close_metal(tc_context *ctx) {
  CHECK_OK(tc_shutdown(ctx));
  check_nothing_lives();
}

static uint16_t *new_halves(tc_context *ctx, int64_t count, uint16_t value, tc_buffer **out) {
  void *data = NULL;
  if (tc_buffer_alloc(ctx, (size_t)count * sizeof(uint16_t), out) != TC_OK) give_up("%s", tc_last_error());
  CHECK_OK(tc_buffer_map(*out, &data));
  uint16_t *halves = data;
  for (int64_t i = 0; i < count; i++) halves[i] = value;
  return halves;
}

enum { NAN_HALF = 0x7e00 };

product product_open(tc_context *ctx, int64_t M, int64_t N, int64_t K) {
  product p = {.desc = TC_GEMM_DESC_INIT, .a = 2, .b = 0.25};
  p.desc.M = M;
  p.desc.N = N;
  p.desc.K = K;
  new_halves(ctx, M * K, half_round(p.a), &p.A);
  new_halves(ctx, K * N, half_round(p.b), &p.B);
  p.c = new_halves(ctx, M * N, NAN_HALF, &p.C);
  return p;
}

tc_status_t product_call(const product *p, tc_context *ctx) { return tc_gemm(ctx, &p->desc, p->A, p->B, p->C); }

void product_close(product *p, tc_context *ctx) {
  CHECK_OK(tc_buffer_free(ctx, p->A));
  CHECK_OK(tc_buffer_free(ctx, p->B));
  CHECK_OK(tc_buffer_free(ctx, p->C));
}

static bool all(const product *p, uint16_t value) {
  int64_t other = 0;
  for (int64_t i = 0; i < p->desc.M * p->desc.N; i++) other += p->c[i] != value;
  return CHECK_INT(other, 0);
}

bool product_right(const product *p) { return all(p, half_round(p->a * p->b * (double)p->desc.K)); }

bool product_untouched(const product *p) { return all(p, NAN_HALF); }
