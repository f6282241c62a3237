/* SPDX-License-Identifier: MIT
 *
 * tc.h alone, as C++ with -pedantic -Werror; the functions link.
 */
#include <tc/tc.h>

int main() {
  const tc_device_info info = TC_DEVICE_INFO_INIT;
  const tc_gemm_desc gemm = TC_GEMM_DESC_INIT;
  const tc_gemm_batched_desc batched = TC_GEMM_BATCHED_DESC_INIT;
  const tc_conv2d_desc conv2d = TC_CONV2D_DESC_INIT;
  const bool sized = info.struct_size == sizeof(info) && gemm.struct_size == sizeof(gemm) &&
                     batched.struct_size == sizeof(batched) && conv2d.struct_size == sizeof(conv2d);
  return sized && tc_api_version() == TC_API_VERSION ? 0 : 1;
}
