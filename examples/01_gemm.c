/* SPDX-License-Identifier: MIT
 *
 * A complete program: C = A * B for fp16 matrices, checked against a double loop.
 *
 *     cc 01_gemm.c $(pkg-config --cflags --libs libtc) -lm -o 01_gemm && ./01_gemm
 */
#include "common.h"

enum { M = 96, N = 128, K = 200 };

static exact_sum exact_element(const uint16_t *A, const uint16_t *B, int row, int column) {
  exact_sum sum = {0, 0};
  for (int k = 0; k < K; k++) add_product(&sum, tc_f16_to_f32(A[row * K + k]), tc_f16_to_f32(B[k * N + column]));
  return sum;
}

static double worst_error_ratio(const uint16_t *A, const uint16_t *B, const uint16_t *C) {
  double worst = 0;
  for (int row = 0; row < M; row++)
    for (int column = 0; column < N; column++)
      worst = fmax(worst, error_ratio(C[row * N + column], exact_element(A, B, row, column)));
  return worst;
}

static void fill(uint16_t *matrix, int n) {
  for (int i = 0; i < n; i++) matrix[i] = tc_f32_to_f16(next_random());
}

int main(void) {
  tc_context *ctx;
  CHECK(tc_init(&ctx));
  print_device(ctx);

  /* Buffers hold the matrices, row after row; what new_tensor returns is the same memory, to be read and written here. */
  tc_buffer *A_buffer, *B_buffer, *C_buffer;
  uint16_t *A = new_tensor(ctx, M * K, &A_buffer);
  uint16_t *B = new_tensor(ctx, K * N, &B_buffer);
  uint16_t *C = new_tensor(ctx, M * N, &C_buffer);
  fill(A, M * K);
  fill(B, K * N);

  /* The descriptor starts with everything at its default; set what differs. */
  tc_gemm_desc desc = TC_GEMM_DESC_INIT;
  desc.M = M;
  desc.N = N;
  desc.K = K;
  CHECK(tc_gemm(ctx, &desc, A_buffer, B_buffer, C_buffer));

  /* The call has finished: C is there. */
  double worst = worst_error_ratio(A, B, C);
  printf("C [%d,%d] = A [%d,%d] * B [%d,%d]\n", M, N, M, K, K, N);
  printf("first row of C: %g %g %g ...\n", tc_f16_to_f32(C[0]), tc_f16_to_f32(C[1]), tc_f16_to_f32(C[2]));
  printf("worst error: %.2f of what is permitted, over all %d elements\n", worst, M * N);

  CHECK(tc_buffer_free(ctx, A_buffer));
  CHECK(tc_buffer_free(ctx, B_buffer));
  CHECK(tc_buffer_free(ctx, C_buffer));
  CHECK(tc_shutdown(ctx));
  return worst <= 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
