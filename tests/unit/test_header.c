/* SPDX-License-Identifier: MIT
 *
 * tc.h alone, as C99 with -pedantic -Werror: it brings in what it needs, and its INIT macros are initialisers.
 */
#include <tc/tc.h>

static const tc_device_info info = TC_DEVICE_INFO_INIT;
static const tc_gemm_desc gemm = TC_GEMM_DESC_INIT;
static const tc_gemm_batched_desc batched = TC_GEMM_BATCHED_DESC_INIT;
static const tc_conv2d_desc conv2d = TC_CONV2D_DESC_INIT;

static int gemm_is_as_documented(void) {
  return gemm.struct_size == sizeof(gemm) && gemm.alpha == 1.0f && gemm.beta == 0.0f && gemm.c_offset == 0 &&
         batched.struct_size == sizeof(batched) && batched.alpha == 1.0f && batched.batch == 1 && batched.stride_c == 0;
}

static int conv2d_is_as_documented(void) {
  return conv2d.struct_size == sizeof(conv2d) && conv2d.stride_h == 1 && conv2d.stride_w == 1 && conv2d.dilation_h == 1 &&
         conv2d.dilation_w == 1 && conv2d.groups == 1 && conv2d.layout == TC_LAYOUT_NCHW && conv2d.alpha == 1.0f &&
         conv2d.beta == 0.0f && conv2d.reserved == 0 && conv2d.y_offset == 0;
}

int main(void) {
  int right = info.struct_size == sizeof(info) && gemm_is_as_documented() && conv2d_is_as_documented();
  return right && tc_api_version() == TC_API_VERSION ? 0 : 1;
}
