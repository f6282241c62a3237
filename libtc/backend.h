/* SPDX-License-Identifier: MIT */
#ifndef TC_BACKEND_H
#define TC_BACKEND_H

#include <stdbool.h>
#include <string.h>

#include "environment.h"
#include "tc/tc.h"

/* Memory of a buffer as a backend made it. */
typedef struct tc_memory {
  void *data;  /* the CPU's pointer */
  void *owned; /* what the backend must release; NULL for the caller's own memory on the CPU */
} tc_memory;

struct tc_buffer {
  tc_context *ctx;
  tc_memory memory;
  size_t bytes;
};

/* The address of an element of a buffer; of an empty operand it need not exist. */
static inline void *tc_at(const tc_buffer *buffer, int64_t offset, int64_t element_size) {
  return (void *)((uintptr_t)buffer->memory.data + (uintptr_t)offset * (uintptr_t)element_size);
}

/* Bytes of an element; the dtype is valid. */
static inline int64_t tc_dtype_size(tc_dtype_t dtype) { return dtype == TC_DTYPE_F32 ? 4 : 2; }

/* Whether a float is +0 or -0. A comparison would take a subnormal for 0 where the caller's environment has DAZ set. */
static inline bool tc_is_zero(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits << 1 == 0;
}

/* All that core and backends share: one constant table for each backend. The core has checked every argument before it calls an op,
 * so backends never check again. Ops are called only between open and close, perhaps from several threads at once. A function that
 * fails records its sentence with tc_fail. Slots marked optional may be NULL. */
typedef struct tc_backend {
  tc_backend_t id;
  const char *name; /* as in TC_BACKEND */

  bool (*available)(void); /* TC_BACKEND_AUTO opens the first one that is, and its errors are final */
  tc_status_t (*open)(const tc_environment *environment, void **state);
  void (*close)(void *state);
  void (*device_info)(void *state, tc_device_info *out);
  void (*set_threads)(void *state, int64_t n);
  void (*trim)(void *state);
  void (*after_fork)(void *state); /* optional; runs in the child, which has one thread then */

  tc_status_t (*memory_alloc)(void *state, size_t bytes, tc_memory *out);
  tc_status_t (*memory_wrap)(void *state, void *ptr, size_t bytes, tc_memory *out);
  void (*memory_free)(tc_memory *memory); /* also after close, hence without the state */

  /* Descriptors are complete here: leading dimensions are filled in, and M, N and batch are at least 1 (K may be 0). */
  tc_status_t (*gemm)(void *state, const tc_gemm_batched_desc *desc, const tc_buffer *A, const tc_buffer *B, tc_buffer *C);
  /* batch is at least 1 in forward and backward_input. bias and scratch may be NULL. */
  tc_status_t (*conv2d_forward)(void *state, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *weight,
                                const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col);
  tc_status_t (*conv2d_backward_input)(void *state, const tc_conv2d_desc *desc, const tc_buffer *dY, const tc_buffer *weight,
                                       tc_buffer *dX, tc_buffer *scratch_col, tc_buffer *scratch_dX_f32);
  tc_status_t (*conv2d_backward_weight)(void *state, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *dY,
                                        tc_buffer *dW, tc_buffer *scratch_col);

  tc_status_t (*batch_begin)(void *state); /* optional, like batch_end */
  tc_status_t (*batch_end)(void *state);
} tc_backend;

extern const tc_backend tc_backend_cpu;
extern const tc_backend tc_backend_metal;

#endif
