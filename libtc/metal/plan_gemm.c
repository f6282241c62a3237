/* SPDX-License-Identifier: MIT */
#include "metal/plan_steps.h"

#include "backend.h"
#include "status.h"

/* [tile][transpose_a][transpose_b], the tiles in the order of tc_plan_tiles. */
#define NAMES(M, N, K, simdgroups_m, simdgroups_n) \
  {{"tc_gemm_nn_" #M "x" #N, "tc_gemm_nt_" #M "x" #N}, {"tc_gemm_tn_" #M "x" #N, "tc_gemm_tt_" #M "x" #N}},
static const char *const kernels[][2][2] = {TC_GEMM_TILES(NAMES)};
#undef NAMES

static tc_gemm_params params_of(const tc_gemm_batched_desc *d, const tc_plan_parts *parts) {
  return (tc_gemm_params){
      .M = (uint64_t)d->M,
      .N = (uint64_t)d->N,
      .K = (uint64_t)d->K,
      .part = parts->part,
      .parts = parts->parts,
      .a_offset = (uint64_t)d->a_offset,
      .b_offset = (uint64_t)d->b_offset,
      .c_offset = (uint64_t)d->c_offset,
      .lda = (uint64_t)d->lda,
      .ldb = (uint64_t)d->ldb,
      .ldc = (uint64_t)d->ldc,
      .stride_a = (uint64_t)d->stride_a,
      .stride_b = (uint64_t)d->stride_b,
      .stride_c = (uint64_t)d->stride_c,
      .alpha = d->alpha,
      .beta = d->beta,
  };
}

/* Whether each row of the matrices can be read four elements at a time. */
static bool vectors(const tc_gemm_batched_desc *d, int64_t columns, int64_t ld, int64_t offset, int64_t stride) {
  return columns % 4 == 0 && ld % 4 == 0 && offset % 4 == 0 && (d->batch == 1 || stride % 4 == 0);
}

static void add_output(const tc_plan_builder *b, tc_plan_step *step, const tc_gemm_batched_desc *d) {
  tc_plan_constant_add(step, TC_CONSTANT_F32_OUTPUT, d->c_dtype == TC_DTYPE_F32);
  tc_plan_constant_add(step, TC_CONSTANT_READ_C, !tc_is_zero(d->beta));
  tc_plan_constant_add(step, TC_CONSTANT_ROUND_IN_BITS, b->device->round_in_bits);
}

/* Bytes of memory that an element of C takes, itself and what it is made of. */
static double element_bytes(const tc_gemm_batched_desc *d, double parts) {
  return (double)tc_dtype_size(d->c_dtype) * (tc_is_zero(d->beta) ? 1 : 2) + 4 * parts;
}

static tc_status_t emit_elements(const tc_plan_builder *b, const char *kernel, const tc_gemm_batched_desc *d,
                                 const tc_plan_parts *parts, bool partials) {
  tc_plan_step step = tc_plan_step_make(kernel);
  const tc_gemm_params params = params_of(d, parts);
  tc_plan_params_set(&step, &params, sizeof params);
  add_output(b, &step, d);
  tc_plan_bind(&step, TC_BUFFER_C, TC_ROLE_C, true);
  if (partials) tc_plan_bind_workspace(&step, TC_BUFFER_PARTIALS, 0, false);
  return tc_plan_emit_elements(b, &step, params.N, params.M, (uint64_t)d->batch,
                               element_bytes(d, partials ? (double)parts->parts : 0));
}

static tc_status_t emit_product(const tc_plan_builder *b, const tc_gemm_batched_desc *d, const tc_plan_product *product,
                                const tc_plan_tile *tile, const tc_plan_parts *parts) {
  const bool split = parts->parts > 1;
  tc_plan_step step = tc_plan_step_make(kernels[tile - tc_plan_tiles][d->transpose_a][d->transpose_b]);
  const tc_gemm_params params = params_of(d, parts);
  tc_plan_params_set(&step, &params, sizeof params);
  tc_plan_constant_add(&step, TC_CONSTANT_LONG_SUMS, parts->part > TC_SUM_PRODUCTS);
  tc_plan_constant_add(&step, TC_CONSTANT_VECTORS_A, vectors(d, d->transpose_a ? d->M : d->K, d->lda, d->a_offset, d->stride_a));
  tc_plan_constant_add(&step, TC_CONSTANT_VECTORS_B, vectors(d, d->transpose_b ? d->K : d->N, d->ldb, d->b_offset, d->stride_b));
  tc_plan_constant_add(&step, TC_CONSTANT_SPLIT, split);
  add_output(b, &step, d);
  tc_plan_bind(&step, TC_BUFFER_A, TC_ROLE_A, false);
  tc_plan_bind(&step, TC_BUFFER_B, TC_ROLE_B, false);
  if (split) {
    tc_plan_bind_workspace(&step, TC_BUFFER_C, 0, true);
  } else {
    tc_plan_bind(&step, TC_BUFFER_C, TC_ROLE_C, true);
  }
  return tc_plan_emit_tiles(b, &step, product, tile, parts, 1);
}

tc_status_t tc_plan_gemm(const tc_plan_device *device, const tc_gemm_batched_desc *d, tc_plan *plan) {
  const tc_plan_builder b = tc_plan_begin(device, plan);
  if (d->K == 0 || tc_is_zero(d->alpha)) return emit_elements(&b, "tc_gemm_scale", d, &(tc_plan_parts){0, 1}, false);
  const tc_plan_product product = {
      .M = (uint64_t)d->M,
      .N = (uint64_t)d->N,
      .K = (uint64_t)d->K,
      .items = (uint64_t)d->batch,
      .matrices = true,
      .along_k = !d->transpose_a && d->transpose_b,
  };
  const bool long_sums = product.K > TC_PLAN_LONG_K;
  tc_plan_parts parts = long_sums ? tc_plan_parts_long(&product) : (tc_plan_parts){product.K, 1};
  const tc_plan_tile *tile = tc_plan_tile_choose(device, &product, parts.parts);
  if (!long_sums) parts = tc_plan_parts_even(device, &product, tile);
  if (parts.parts == 1) return emit_product(&b, d, &product, tile, &parts);
  uint64_t partials;
  TC_TRY(tc_plan_reserve(&b, 4 * product.M * product.N * product.items * parts.parts, &partials));
  TC_TRY(emit_product(&b, d, &product, tile, &parts));
  return emit_elements(&b, "tc_gemm_reduce", d, &parts, true);
}
