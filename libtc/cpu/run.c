/* SPDX-License-Identifier: MIT
 * How a call gets its memory and its threads. */
#include <fenv.h>
#include <stdlib.h>

#include "cpu/cpu.h"
#include "status.h"

/* ---- Workspaces ---- */

enum { HEADER = 64 };

typedef struct tc_workspace {
  size_t bytes;
} tc_workspace;

_Static_assert(sizeof(tc_workspace) <= HEADER, "a workspace's header must leave the block aligned");

/* A caller that finds no kept block, since a concurrent call has it, gets a new one; the one that is given back last is kept. */
tc_status_t tc_workspace_take(tc_cpu *cpu, tc_workspace_kind kind, size_t bytes, void **out) {
  tc_workspace *workspace = atomic_exchange(&cpu->kept[kind], NULL);
  if (!workspace || workspace->bytes < bytes) {
    free(workspace);
    const size_t size = bytes <= SIZE_MAX - 2 * HEADER ? (bytes + 2 * HEADER - 1) / HEADER * HEADER : 0;
    workspace = size ? aligned_alloc(HEADER, size) : NULL;
    TC_REQUIRE(workspace, TC_ERROR_MEMORY, "no memory for a workspace of %zu bytes", bytes);
    workspace->bytes = bytes;
  }
  tc_workspace_count(bytes);
  *out = (char *)workspace + HEADER;
  return TC_OK;
}

void tc_workspace_give(tc_cpu *cpu, tc_workspace_kind kind, void *block) {
  free(atomic_exchange(&cpu->kept[kind], (tc_workspace *)(void *)((char *)block - HEADER)));
}

void tc_workspaces_free(tc_cpu *cpu) {
  for (int kind = 0; kind < TC_WORKSPACE_KINDS; kind++) free(atomic_exchange(&cpu->kept[kind], NULL));
}

/* ---- Teams ---- */

/* Under so many multiply-adds the time to wake a thread would not come back. */
static const double SERIAL_MULTIPLIES = 1 << 18;

int64_t tc_cpu_threads(const tc_cpu *cpu, double multiplies) { return multiplies < SERIAL_MULTIPLIES ? 1 : cpu->pool.threads; }

tc_status_t tc_team_take(tc_cpu *cpu, int64_t threads, int64_t tasks, size_t workspace_bytes, tc_team *out) {
  const size_t bytes = (workspace_bytes + HEADER - 1) / HEADER * HEADER;
  *out = (tc_team){cpu, threads < tasks ? threads : tasks, bytes, NULL};
  void *block;
  TC_TRY(tc_workspace_take(cpu, TC_WORKSPACE_THREADS, (size_t)out->threads * bytes, &block));
  out->workspaces = block;
  return TC_OK;
}

void tc_team_give(tc_team *team) { tc_workspace_give(team->cpu, TC_WORKSPACE_THREADS, team->workspaces); }

typedef struct team_job {
  const tc_team *team;
  tc_team_task *task;
  const void *job;
} team_job;

static void run_task(void *arg, int64_t task, int64_t thread) {
  const team_job *j = arg;
  j->task(j->job, task, j->team->workspaces + (size_t)thread * j->team->bytes);
}

void tc_team_run(const tc_team *team, int64_t tasks, tc_team_task *task, const void *job) {
  team_job arg = {team, task, job};
  fenv_t callers;
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
  tc_pool_run(&team->cpu->pool, team->threads, tasks, run_task, &arg);
  fesetenv(&callers);
}
