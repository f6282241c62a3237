/* SPDX-License-Identifier: MIT
 *
 * How a call becomes dispatches on a Metal device: kernels, function constants, parameters, grids, workspace. Plain C, so that it can
 * be tested anywhere. The host encodes the steps of a plan without knowing what they do; tests and the roofline read the same plans.
 */
#ifndef TC_METAL_PLAN_H
#define TC_METAL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../metal/params.h"
#include "environment.h"
#include "tc/tc.h"

/* ---- The device ---- */

/* What the model of time knows about a chip. */
typedef struct tc_plan_chip {
  const char *name; /* as MTLDevice.name has it: "Apple M1 Max" */
  int family;       /* of Apple GPUs: 7 is M1, 8 M2, 9 M3 and M4, 10 M5 */
  int cores;
  double gigahertz, gigabytes_per_second;
} tc_plan_chip;

typedef struct tc_plan_device {
  const tc_plan_chip *chip;
  uint64_t max_buffer_bytes;
  bool round_in_bits; /* the probe found that the device's conversion to half doesn't round as needed */
} tc_plan_device;

/* The chip of that name; of an unknown one (or NULL), the smallest of the family, or of the family nearest to it. Never NULL. */
const tc_plan_chip *tc_plan_chip_find(const char *name, int family);

/* All chips, for the roofline. */
const tc_plan_chip *tc_plan_chips(size_t *count);

/* ---- Plans ---- */

/* What a buffer index is bound to. GEMM: A, B, C. Convolution, whatever the direction: X (or dX), weight (or dW), Y (or dY). */
typedef enum tc_plan_role {
  TC_ROLE_A,
  TC_ROLE_B,
  TC_ROLE_C,
  TC_ROLE_X,
  TC_ROLE_WEIGHT,
  TC_ROLE_BIAS,
  TC_ROLE_Y,
  TC_ROLE_SCRATCH_COL,
  TC_ROLE_SCRATCH_DX,
  TC_ROLE_WORKSPACE, /* the host's own memory, of plan.workspace_bytes */
  TC_ROLES
} tc_plan_role;

enum { TC_PLAN_CONSTANTS = 10, TC_PLAN_BINDINGS = 6, TC_PLAN_PARAMS_BYTES = 256, TC_PLAN_ALIGNMENT = 256 };

/* A function constant; all are bool. */
typedef struct tc_plan_constant {
  uint32_t index;
  bool value;
} tc_plan_constant;

/* What makes a pipeline. */
typedef struct tc_plan_kernel {
  const char *name; /* static storage */
  uint32_t constant_count;
  tc_plan_constant constants[TC_PLAN_CONSTANTS];
} tc_plan_kernel;

bool tc_plan_kernel_equal(const tc_plan_kernel *a, const tc_plan_kernel *b);

typedef struct tc_plan_binding {
  uint32_t index;
  tc_plan_role role;
  bool written;
  uint64_t offset; /* in bytes, a multiple of TC_PLAN_ALIGNMENT; offsets of operands are in the parameters, so this is 0 for them */
} tc_plan_binding;

/* One dispatch. It reads what the steps before it wrote. */
typedef struct tc_plan_step {
  tc_plan_kernel kernel;
  uint32_t params_bytes; /* bound at TC_BUFFER_PARAMS */
  uint32_t binding_count;
  tc_plan_binding bindings[TC_PLAN_BINDINGS];
  uint32_t threadgroups[3], threads[3]; /* threads of a threadgroup; at most 256 in all */
  double seconds;                       /* by the model; at most about TC_PLAN_SECONDS, unless one threadgroup takes longer */
  _Alignas(8) unsigned char params[TC_PLAN_PARAMS_BYTES];
} tc_plan_step;

#define TC_PLAN_SECONDS 0.5

typedef struct tc_plan {
  tc_plan_step *steps;
  size_t count, capacity;
  uint64_t workspace_bytes;
  const char *path; /* of a convolution: "col" or "implicit"; for tests */
} tc_plan;

/* What a caller of a convolution gave, and what TC_CONV_PATH asks for. */
typedef struct tc_plan_request {
  tc_conv_path_t path;
  bool bias, scratch_col, scratch_dx;
} tc_plan_request;

/* Each replaces what *plan has (all zeros at first); the descriptor is complete, as in backend.h. A forced path is taken where the
 * scratch it needs is there and the rules of the call permit it. Errors: MEMORY (of the host, or a workspace over
 * max_buffer_bytes), UNSUPPORTED (a plane or image that 32-bit indices inside a tile can't address). */
tc_status_t tc_plan_gemm(const tc_plan_device *device, const tc_gemm_batched_desc *d, tc_plan *plan);
tc_status_t tc_plan_conv2d_forward(const tc_plan_device *device, const tc_conv2d_desc *d, const tc_plan_request *request,
                                   tc_plan *plan);
tc_status_t tc_plan_conv2d_backward_input(const tc_plan_device *device, const tc_conv2d_desc *d, const tc_plan_request *request,
                                          tc_plan *plan);
tc_status_t tc_plan_conv2d_backward_weight(const tc_plan_device *device, const tc_conv2d_desc *d, const tc_plan_request *request,
                                           tc_plan *plan);

/* Frees the steps; the plan is all zeros then. */
void tc_plan_free(tc_plan *plan);

/* ---- The probe ---- */

/* What the kernels rely on, each as a word that the probe's kernel must give: `kernel void tc_probe`, one threadgroup of 32 threads,
 * buffer 0 the inputs (TC_PROBE_WORDS words), buffers 1 and 2 both the outputs (as many, zeroed before). No function constants. */
typedef struct tc_plan_probe_word {
  const char *what; /* "rounds to nearest even" */
  uint32_t input, expected;
  bool in_bits; /* where only such words differ, round_in_bits makes up for it; else the device can't be used */
} tc_plan_probe_word;

extern const tc_plan_probe_word tc_plan_probe[TC_PROBE_WORDS];

#endif
