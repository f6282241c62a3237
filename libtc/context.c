/* SPDX-License-Identifier: MIT */
#include "context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

/* ---- The list of contexts, for fork ---- */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static tc_context *contexts;

static void before_fork(void) { pthread_mutex_lock(&contexts_lock); }

static void after_fork_parent(void) { pthread_mutex_unlock(&contexts_lock); }

/* The threads that were inside calls don't exist in the child, nor will they ever release what they held. */
static void after_fork_child(void) {
  for (tc_context *ctx = contexts; ctx; ctx = ctx->next) {
    pthread_mutex_init(&ctx->batch, NULL);
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_cond_init(&ctx->idle, NULL);
    ctx->running = 0;
    if (ctx->state && ctx->backend->after_fork) ctx->backend->after_fork(ctx->state);
  }
  pthread_mutex_unlock(&contexts_lock);
}

static int fork_handlers_error;

static void register_fork_handlers(void) { fork_handlers_error = pthread_atfork(before_fork, after_fork_parent, after_fork_child); }

static bool fork_handlers_ready(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_fork_handlers);
  return fork_handlers_error == 0;
}

static void contexts_add(tc_context *ctx) {
  pthread_mutex_lock(&contexts_lock);
  ctx->next = contexts;
  if (contexts) contexts->previous = ctx;
  contexts = ctx;
  pthread_mutex_unlock(&contexts_lock);
}

static void contexts_remove(tc_context *ctx) {
  pthread_mutex_lock(&contexts_lock);
  *(ctx->previous ? &ctx->previous->next : &contexts) = ctx->next;
  if (ctx->next) ctx->next->previous = ctx->previous;
  pthread_mutex_unlock(&contexts_lock);
}

/* ---- Life ---- */

static tc_status_t context_new(const tc_backend *backend, const tc_environment *environment, tc_context **out) {
  TC_REQUIRE(fork_handlers_ready(), TC_ERROR_MEMORY, "no memory for fork handlers");
  void *state = NULL;
  TC_TRY(backend->open(environment, &state));
  tc_context *ctx = calloc(1, sizeof *ctx);
  if (!ctx) {
    backend->close(state);
    return tc_fail(TC_ERROR_MEMORY, "no memory for a context");
  }
  ctx->backend = backend;
  ctx->state = state;
  ctx->verbose = environment->verbose;
  ctx->references = 1;
  pthread_mutex_init(&ctx->batch, NULL);
  pthread_mutex_init(&ctx->lock, NULL);
  pthread_cond_init(&ctx->idle, NULL);
  contexts_add(ctx);
  *out = ctx;
  return TC_OK;
}

static tc_status_t init(const char *function, tc_backend_t which, tc_context **out) {
  static const tc_backend *const backends[] = {&tc_backend_metal, &tc_backend_cpu}; /* the last one is always available */
  tc_function_set(function);
  TC_REQUIRE(out, TC_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  TC_REQUIRE(which >= TC_BACKEND_AUTO && which <= TC_BACKEND_METAL, TC_ERROR_ARGUMENT, "which = %d is not a tc_backend_t",
             (int)which);
  tc_environment environment;
  TC_TRY(tc_environment_read(&environment));
  if (which == TC_BACKEND_AUTO) which = environment.backend;
  const tc_backend *const *backend = backends;
  while (which == TC_BACKEND_AUTO ? !(*backend)->available() : (*backend)->id != which) backend++;
  return context_new(*backend, &environment, out);
}

tc_status_t tc_init(tc_context **out) { return init(__func__, TC_BACKEND_AUTO, out); }

tc_status_t tc_init_backend(tc_backend_t which, tc_context **out) { return init(__func__, which, out); }

void tc_context_retain(tc_context *ctx) {
  pthread_mutex_lock(&ctx->lock);
  ctx->references++;
  pthread_mutex_unlock(&ctx->lock);
}

void tc_context_release(tc_context *ctx) {
  pthread_mutex_lock(&ctx->lock);
  const int64_t left = --ctx->references;
  pthread_mutex_unlock(&ctx->lock);
  if (left) return;
  contexts_remove(ctx);
  pthread_mutex_destroy(&ctx->batch);
  pthread_mutex_destroy(&ctx->lock);
  pthread_cond_destroy(&ctx->idle);
  free(ctx);
}

tc_status_t tc_shutdown(tc_context *ctx) {
  tc_function_set(__func__);
  if (!ctx) return TC_OK;
  pthread_mutex_lock(&ctx->lock);
  const bool was_closed = ctx->closed;
  ctx->closed = true;
  while (!was_closed && ctx->running) pthread_cond_wait(&ctx->idle, &ctx->lock);
  void *state = ctx->state;
  if (!was_closed) ctx->state = NULL;
  pthread_mutex_unlock(&ctx->lock);
  TC_REQUIRE(!was_closed, TC_ERROR_CLOSED, "ctx has been shut down before");
  ctx->backend->close(state);
  tc_context_release(ctx);
  return TC_OK;
}

/* ---- Calls ---- */

tc_status_t tc_enter(const char *function, tc_context *ctx) {
  tc_function_set(function);
  TC_REQUIRE(ctx, TC_ERROR_ARGUMENT, "ctx is NULL");
  pthread_mutex_lock(&ctx->lock);
  const bool closed = ctx->closed;
  if (!closed) ctx->running++;
  pthread_mutex_unlock(&ctx->lock);
  TC_REQUIRE(!closed, TC_ERROR_CLOSED, "ctx has been shut down");
  return TC_OK;
}

tc_status_t tc_leave(tc_context *ctx, tc_status_t status) {
  pthread_mutex_lock(&ctx->lock);
  if (--ctx->running == 0) pthread_cond_broadcast(&ctx->idle);
  pthread_mutex_unlock(&ctx->lock);
  return status;
}

double tc_trace_now(const tc_context *ctx) {
  if (!ctx->verbose) return 0;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tc_trace(const tc_context *ctx, double start, double flops, const char *format, ...) {
  if (!ctx->verbose) return;
  const double seconds = tc_trace_now(ctx) - start;
  tc_device_info info = TC_DEVICE_INFO_INIT;
  ctx->backend->device_info(ctx->state, &info);
  char sizes[256];
  va_list args;
  va_start(args, format);
  vsnprintf(sizes, sizeof sizes, format, args);
  va_end(args);
  /* Decimals by hand: printf would take the decimal point from the locale. */
  const long long ms = (long long)(seconds * 1e7), gflops = seconds > 0 ? (long long)(flops / seconds * 1e-7) : 0;
  fprintf(stderr, "tc: %s,%s,backend=%s,kernel=%s,threads=%lld,workspace=%zu,ms=%lld.%04lld,gflops=%lld.%02lld\n", tc_function(),
          sizes, ctx->backend->name, tc_kernel_used(), (long long)info.threads, tc_workspace_counted(), ms / 10000, ms % 10000,
          gflops / 100, gflops % 100);
}

/* ---- Properties ---- */

tc_status_t tc_device_info_get(tc_context *ctx, tc_device_info *out) {
  TC_TRY(tc_enter(__func__, ctx));
  tc_device_info info = TC_DEVICE_INFO_INIT;
  ctx->backend->device_info(ctx->state, &info);
  return tc_leave(ctx, tc_struct_write("out", &info, sizeof info, out));
}

static tc_status_t set_threads(tc_context *ctx, int64_t n) {
  TC_REQUIRE(n >= 1 && n <= TC_THREADS_MAX, TC_ERROR_SHAPE, "n = %lld is out of range, 1 to %d is allowed", (long long)n,
             TC_THREADS_MAX);
  ctx->backend->set_threads(ctx->state, n);
  return TC_OK;
}

tc_status_t tc_context_set_threads(tc_context *ctx, int64_t n) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, set_threads(ctx, n));
}

static tc_status_t get_threads(tc_context *ctx, int64_t *out) {
  TC_REQUIRE(out, TC_ERROR_ARGUMENT, "out is NULL");
  tc_device_info info = TC_DEVICE_INFO_INIT;
  ctx->backend->device_info(ctx->state, &info);
  *out = info.threads;
  return TC_OK;
}

tc_status_t tc_context_get_threads(tc_context *ctx, int64_t *out) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, get_threads(ctx, out));
}

tc_status_t tc_context_trim(tc_context *ctx) {
  TC_TRY(tc_enter(__func__, ctx));
  ctx->backend->trim(ctx->state);
  return tc_leave(ctx, TC_OK);
}

/* ---- Batches ---- */

/* Sets in_batch, and gives what it was. */
static bool exchange_in_batch(tc_context *ctx, bool in_batch) {
  pthread_mutex_lock(&ctx->lock);
  const bool was = ctx->in_batch;
  ctx->in_batch = in_batch;
  pthread_mutex_unlock(&ctx->lock);
  return was;
}

static tc_status_t move_batch(tc_context *ctx, bool begin) {
  const bool was = exchange_in_batch(ctx, begin);
  TC_REQUIRE(was != begin, TC_ERROR_STATE, begin ? "a batch is open already, tc_batch_end is needed first" : "no batch is open");
  tc_status_t (*notify)(void *) = begin ? ctx->backend->batch_begin : ctx->backend->batch_end;
  const tc_status_t status = notify ? notify(ctx->state) : TC_OK;
  if (status != TC_OK) exchange_in_batch(ctx, false);
  return status;
}

/* Moves the context and its backend into or out of a batch, as one step for other threads. */
static tc_status_t set_batch(tc_context *ctx, bool begin) {
  pthread_mutex_lock(&ctx->batch);
  const tc_status_t status = move_batch(ctx, begin);
  pthread_mutex_unlock(&ctx->batch);
  return status;
}

tc_status_t tc_batch_begin(tc_context *ctx) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, set_batch(ctx, true));
}

tc_status_t tc_batch_end(tc_context *ctx) {
  TC_TRY(tc_enter(__func__, ctx));
  return tc_leave(ctx, set_batch(ctx, false));
}
