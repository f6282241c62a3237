/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <sys/mman.h>

#include "common/check.h"
#include "common/gemm_case.h"

static face_binding zeros(uint64_t bytes) {
  if (bytes == 0) return (face_binding){0};
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) give_up("no memory for %llu bytes", (unsigned long long)bytes);
  return (face_binding){memory, bytes};
}

static face_binding halves(int64_t elements) { return zeros(2 * (uint64_t)elements); }

workload workload_gemm(const tc_plan_device *device, bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K) {
  workload w = {0};
  tc_gemm_batched_desc d = gemm_make(M, N, K).desc;
  d.transpose_a = transpose_a;
  d.transpose_b = transpose_b;
  d.lda = transpose_a ? M : K;
  d.ldb = transpose_b ? K : N;
  d.ldc = N;
  if (tc_plan_gemm(device, &d, &w.plan) != TC_OK) give_up("no plan: %s", tc_last_error());
  w.operands[TC_ROLE_A] = halves(M * K);
  w.operands[TC_ROLE_B] = halves(K * N);
  w.operands[TC_ROLE_C] = halves(M * N);
  w.operands[TC_ROLE_WORKSPACE] = zeros(w.plan.workspace_bytes);
  return w;
}

workload workload_conv(const tc_plan_device *device, conv_op op, conv_shape shape) {
  static tc_status_t (*const planners[CONV_OPS])(const tc_plan_device *, const tc_conv2d_desc *, const tc_plan_request *,
                                                 tc_plan *) = {
      [CONV_BACKWARD_INPUT] = tc_plan_conv2d_backward_input,
      [CONV_BACKWARD_WEIGHT] = tc_plan_conv2d_backward_weight,
      [CONV_FORWARD] = tc_plan_conv2d_forward,
  };
  const tc_plan_request request = {.path = TC_CONV_PATH_IMPLICIT};
  workload w = {0};
  const tc_conv2d_desc d = conv_make(op, shape).desc;
  if (planners[op](device, &d, &request, &w.plan) != TC_OK) give_up("no plan: %s", tc_last_error());
  w.operands[TC_ROLE_X] = halves(d.batch * d.in_channels * d.H * d.W);
  w.operands[TC_ROLE_WEIGHT] = halves(d.out_channels * d.in_channels / d.groups * d.kH * d.kW);
  w.operands[TC_ROLE_Y] = halves(d.batch * d.out_channels * d.out_H * d.out_W);
  w.operands[TC_ROLE_WORKSPACE] = zeros(w.plan.workspace_bytes);
  return w;
}

void workload_free(workload *w) {
  for (int role = 0; role < TC_ROLES; role++) {
    if (w->operands[role].pointer) munmap(w->operands[role].pointer, w->operands[role].length);
  }
  tc_plan_free(&w->plan);
}
