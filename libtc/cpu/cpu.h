/* SPDX-License-Identifier: MIT */
#ifndef TC_CPU_CPU_H
#define TC_CPU_CPU_H

#include "backend.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/split.h"

/* Memory for the time of a call. One block of each kind is kept for the next call. */
typedef enum tc_workspace_kind {
  TC_WORKSPACE_THREADS,
  TC_WORKSPACE_PARTIALS,
  TC_WORKSPACE_PACKED,
  TC_WORKSPACE_KINDS
} tc_workspace_kind;

/* The state of a CPU context. */
typedef struct tc_cpu {
  const tc_cpu_kernels *kernels;
  const tc_split_kernels *split; /* NULL if the ISA has no tiles */
  tc_pool pool;
  _Atomic(struct tc_workspace *) kept[TC_WORKSPACE_KINDS];
  tc_device_info info; /* all but threads */
} tc_cpu;

/* A block of at least that many bytes, aligned to 64. Errors: MEMORY. */
tc_status_t tc_workspace_take(tc_cpu *cpu, tc_workspace_kind kind, size_t bytes, void **out);
void tc_workspace_give(tc_cpu *cpu, tc_workspace_kind kind, void *block);
void tc_workspaces_free(tc_cpu *cpu);

/* Threads for a call, each with a workspace of its own. */
typedef struct tc_team {
  tc_cpu *cpu;
  int64_t threads;
  size_t bytes; /* of each workspace */
  char *workspaces;
} tc_team;

/* Threads that a call of so many multiply-adds should use: just the caller's for a small one. */
int64_t tc_cpu_threads(const tc_cpu *cpu, double multiplies);

/* At most one thread for each task. Errors: MEMORY. */
tc_status_t tc_team_take(tc_cpu *cpu, int64_t threads, int64_t tasks, size_t workspace_bytes, tc_team *out);
void tc_team_give(tc_team *team);

/* One task of a job, with a workspace that no other task uses meanwhile. */
typedef void tc_team_task(const void *job, int64_t task, char *workspace);

/* Runs all tasks, in no particular order, in the default floating-point environment. */
void tc_team_run(const tc_team *team, int64_t tasks, tc_team_task *task, const void *job);

tc_status_t tc_cpu_gemm(void *cpu, const tc_gemm_batched_desc *desc, const tc_buffer *A, const tc_buffer *B, tc_buffer *C);
tc_status_t tc_cpu_conv2d_forward(void *cpu, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *weight,
                                  const tc_buffer *bias, tc_buffer *Y, tc_buffer *scratch_col);
tc_status_t tc_cpu_conv2d_backward_input(void *cpu, const tc_conv2d_desc *desc, const tc_buffer *dY, const tc_buffer *weight,
                                         tc_buffer *dX, tc_buffer *scratch_col, tc_buffer *scratch_dX_f32);
tc_status_t tc_cpu_conv2d_backward_weight(void *cpu, const tc_conv2d_desc *desc, const tc_buffer *X, const tc_buffer *dY,
                                          tc_buffer *dW, tc_buffer *scratch_col);

#endif
