/* SPDX-License-Identifier: MIT */
#ifndef TC_CONTEXT_H
#define TC_CONTEXT_H

#include <pthread.h>

#include "backend.h"
#include "status.h"

/* Who may touch what: lock guards state, running, references, closed and in_batch; the lock of the list of contexts guards next and
 * previous; the rest is constant after tc_init. */
struct tc_context {
  const tc_backend *backend;
  void *state; /* the backend's; NULL once closed, and calls read it between tc_enter and tc_leave */
  bool verbose;

  pthread_mutex_t batch; /* held while a batch begins or ends, before lock */
  pthread_mutex_t lock;
  pthread_cond_t idle; /* running fell to 0 */
  int64_t running;     /* calls inside the context */
  int64_t references;  /* the open handle, and each live buffer */
  bool closed, in_batch;

  tc_context *next, *previous;
};

/* Begins a public call on a context: names the function, refuses NULL and closed contexts. tc_leave must follow TC_OK. */
tc_status_t tc_enter(const char *function, tc_context *ctx);

/* Ends it, and passes the call's status on. */
tc_status_t tc_leave(tc_context *ctx, tc_status_t status);

void tc_context_retain(tc_context *ctx);  /* one more buffer */
void tc_context_release(tc_context *ctx); /* one less; frees the context with the last one, if it is closed */

/* A line for TC_VERBOSE about work that began at start: seconds on the monotonic clock, or 0 if nothing is to be printed. */
double tc_trace_now(const tc_context *ctx);
__attribute__((format(printf, 4, 5))) void tc_trace(const tc_context *ctx, double start, double flops, const char *format, ...);

#endif
