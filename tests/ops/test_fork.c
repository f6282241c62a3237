/* SPDX-License-Identifier: MIT
 *
 * fork: the child goes on using the parent's CPU contexts, whatever the parent's threads were doing; on a GPU it gets an error, and
 * can use the CPU. The parent goes on as before.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/workers.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 20 };

/* ---- Can it be tested here? ---- */

static void *nothing(void *arg) { return arg; }

static void *wait_for_end(void *arg) {
  atomic_int *end = arg;
  while (!atomic_load(end)) usleep(1000);
  return NULL;
}

/* A child of a process with threads starts one of its own. It gets a stack of another size, since ThreadSanitizer takes a thread on
 * the stack of one that the fork left behind for that one. */
static bool child_can_start_threads(void) {
  atomic_int end = 0;
  pthread_t mine;
  if (pthread_create(&mine, NULL, wait_for_end, &end)) give_up("no thread");
  pid_t pid = fork();
  if (pid == 0) {
    pthread_t childs;
    pthread_attr_t other_stack;
    alarm(CHILD_SECONDS);
    pthread_attr_init(&other_stack);
    pthread_attr_setstacksize(&other_stack, 1 << 20);
    _exit(pthread_create(&childs, &other_stack, nothing, NULL) || pthread_join(childs, NULL));
  }
  int status = -1;
  waitpid(pid, &status, 0);
  atomic_store(&end, 1);
  pthread_join(mine, NULL);
  return status == 0;
}

/* ---- Children ---- */

/* The call gives the same bytes. */
static bool cpu_child(problem *p, tc_context *ctx, const uint8_t *want) {
  bool right = problem_call(p, ctx) == TC_OK;
  right = right && memcmp(problem_output(p)->memory.data, want, problem_output(p)->memory.bytes) == 0;
  tc_context *fresh = NULL; /* a context of the child's own */
  right = right && tc_init(&fresh) == TC_OK && tc_shutdown(fresh) == TC_OK;
  int64_t threads = 0;
  right = right && tc_context_get_threads(ctx, &threads) == TC_OK && tc_context_set_threads(ctx, threads + 1) == TC_OK;
  return right && problem_call(p, ctx) == TC_OK;
}

static bool refused(tc_status_t status) { return status == TC_ERROR_DEVICE && strstr(tc_last_error(), "forked"); }

/* Every call that needs the GPU answers with an error, those that free do nothing, and the CPU works. */
static bool gpu_child(problem *p, tc_context *ctx, const uint8_t *want) {
  tc_context *fresh = NULL;
  tc_buffer *buf = NULL;
  (void)want;
  bool right = refused(problem_call(p, ctx)) && refused(tc_init(&fresh)) && !fresh;
  right = right && refused(tc_buffer_alloc(ctx, 8, &buf)) && refused(tc_buffer_wrap(ctx, NULL, 0, &buf)) && !buf;
  right = right && refused(tc_batch_begin(ctx)) && tc_batch_end(ctx) == TC_ERROR_STATE && tc_context_trim(ctx) == TC_OK;
  right = right && tc_init_backend(TC_BACKEND_CPU, &fresh) == TC_OK;
  problem other = busy_problem();
  if (right) problem_open(&other, fresh);
  right = right && problem_call(&other, fresh) == TC_OK;
  if (right) problem_close(&other, fresh);
  problem_close(p, ctx);
  return right && tc_shutdown(fresh) == TC_OK && tc_shutdown(ctx) == TC_OK;
}

/* Ends the child; an alarm ends one that hangs. */
_Noreturn static void child(problem *p, tc_context *ctx, const uint8_t *want) {
  alarm(CHILD_SECONDS);
  _exit((on_metal(ctx) ? gpu_child : cpu_child)(p, ctx, want) ? 0 : 1);
}

static pid_t fork_child(problem *p, tc_context *ctx, const uint8_t *want) {
  pid_t pid = fork();
  if (pid < 0) give_up("no child");
  if (pid == 0) child(p, ctx, want);
  return pid;
}

static void wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status)) check_failed(__FILE__, __LINE__, "the child ended by signal %d", WTERMSIG(status));
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* OpenBLAS#294: the parent computes, then the child, then the parent again. */
static void fork_between_calls(void) {
  tc_context *ctx = open_context();
  CHECK_OK(tc_context_set_threads(ctx, 3));
  problem p = busy_problem();
  problem_note(&p);
  problem_open(&p, ctx);
  CHECK_OK(problem_call(&p, ctx));
  uint8_t *want = operand_snapshot(problem_output(&p));
  for (int i = 0; i < 3; i++) {
    wait_for(fork_child(&p, ctx, want));
    CHECK_OK(problem_call(&p, ctx));
    CHECK_BYTES(problem_output(&p)->memory.data, want, problem_output(&p)->memory.bytes);
  }
  free(want);
  problem_close(&p, ctx);
  close_context(ctx);
}

/* The parent is inside calls, on this context and its workers, when it forks. */
static void fork_inside_calls(void) {
  tc_context *ctx = open_context();
  CHECK_OK(tc_context_set_threads(ctx, 3));
  problem p = busy_problem();
  problem_note(&p);
  problem_open(&p, ctx);
  CHECK_OK(problem_call(&p, ctx));
  uint8_t *want = operand_snapshot(problem_output(&p));
  atomic_int stop = 0;
  worker workers[2];
  for (size_t i = 0; i < COUNT(workers); i++) workers[i] = (worker){.run = work_until_stopped, .ctx = ctx, .signal = &stop};
  workers_start(workers, COUNT(workers));
  for (int64_t i = scaled(30); i > 0; i--) {
    usleep((useconds_t)(i % 7 * 100));
    wait_for(fork_child(&p, ctx, want));
  }
  atomic_store(&stop, 1);
  workers_join(workers, COUNT(workers));
  free(want);
  problem_close(&p, ctx);
  close_context(ctx);
}

int main(int argc, char **argv) {
  static const test tests[] = {{"fork_between_calls", fork_between_calls}, {"fork_inside_calls", fork_inside_calls}};
  if (!child_can_start_threads()) skip("a forked child can't start threads here, even without libtc (qemu-user 7.2 can't)");
  return run_tests("fork", tests, COUNT(tests), argc, argv);
}
