/* SPDX-License-Identifier: MIT
 *
 * A problem with its plan for a device, and memory for its operands: zeros, of which only what is touched takes space.
 */
#ifndef TC_TESTS_ROOFLINE_WORKLOAD_H
#define TC_TESTS_ROOFLINE_WORKLOAD_H

#include <face.h>

#include "common/conv_case.h"
#include "metal/plan.h"

typedef struct workload {
  tc_plan plan;
  face_binding operands[TC_ROLES];
} workload;

/* Both end the program if there is no plan or no memory. */
workload workload_gemm(const tc_plan_device *device, bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K);
workload workload_conv(const tc_plan_device *device, conv_op op, conv_shape shape);
void workload_free(workload *w);

#endif
