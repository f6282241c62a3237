/* SPDX-License-Identifier: MIT
 *
 * The caller's floating-point environment has no effect on results, and is as before after a call: rounding mode, flags, traps, and
 * the modes that flush subnormals.
 */
#include "common/check.h"
#include "common/context.h"
#include "common/problem.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static uint64_t control(void) { return _mm_getcsr(); }
static void set_control(uint64_t bits) { _mm_setcsr((unsigned)bits); }
static const uint64_t flush_bits = 0x8040;                                     /* FTZ and DAZ */
static uint64_t with_traps(uint64_t bits) { return bits & ~UINT64_C(0x1f80); } /* its bits mask them */
#elif defined(__aarch64__)
static uint64_t control(void) {
  uint64_t bits;
  __asm__ volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
static void set_control(uint64_t bits) { __asm__ volatile("msr fpcr, %0" : : "r"(bits)); }
static const uint64_t flush_bits = 1 << 24; /* FZ */
static uint64_t with_traps(uint64_t bits) { return bits | 0x1f00; }
#else
#error "the control register of this architecture is needed here"
#endif

static tc_context *ctx;

/* The problems and what they give in the default environment. */
enum { PROBLEMS = 24 };
static problem problems[PROBLEMS];
static uint8_t *results[PROBLEMS];

/* A product of many terms on several threads, scaled by a subnormal alpha: in an environment that takes it for 0, C would be 0. */
static problem subnormal_alpha(void) {
  problem p = problem_gemm(70, 80, 90);
  p.gemm.desc.alpha = 1e-40f;
  p.gemm.desc.c_dtype = TC_DTYPE_F32;
  p.gemm.a_data = p.gemm.b_data = (contents){DATA_CONSTANT, 60000};
  return p;
}

static void prepare(void) {
  rng r = {test_seed()};
  for (size_t i = 0; i < PROBLEMS; i++) {
    problems[i] = i == 0 ? subnormal_alpha() : problem_random(&r, 1 << 19);
    problem_note(&problems[i]);
    problem_open(&problems[i], ctx);
    CHECK_OK(problem_call(&problems[i], ctx));
    results[i] = operand_snapshot(problem_output(&problems[i]));
  }
}

static void finish_problems(void) {
  for (size_t i = 0; i < PROBLEMS; i++) {
    problem_close(&problems[i], ctx);
    free(results[i]);
  }
}

/* All problems, in the environment that enter makes. It holds during the call only, so that the checks run in the default one. */
static void check_in(const char *name, void (*enter)(void)) {
  for (size_t i = 0; i < PROBLEMS; i++) {
    problem_note(&problems[i]);
    fenv_t normal;
    fegetenv(&normal);
    enter();
    uint64_t before = control();
    int rounding = fegetround(), flags = fetestexcept(FE_ALL_EXCEPT);
    tc_status_t status = problem_call(&problems[i], ctx);
    uint64_t after = control();
    int rounding_after = fegetround(), flags_after = fetestexcept(FE_ALL_EXCEPT);
    fesetenv(&normal);
    CHECK_INT(status, TC_OK);
    CHECK_INT((int64_t)after, (int64_t)before);
    CHECK_INT(rounding_after, rounding);
    CHECK_INT(flags_after, flags);
    const guarded *out = &problem_output(&problems[i])->memory;
    if (!check_bytes(out->data, results[i], out->bytes, name, __FILE__, __LINE__)) return;
  }
}

static void upward(void) { fesetround(FE_UPWARD); }
static void downward(void) { fesetround(FE_DOWNWARD); }
static void toward_zero(void) { fesetround(FE_TOWARDZERO); }
static void flushing(void) { set_control(control() | flush_bits); }

/* Flags that are up stay up, and those that are down stay down. */
static void some_flags(void) {
  feclearexcept(FE_ALL_EXCEPT);
  feraiseexcept(FE_DIVBYZERO);
}

static void rounding_modes(void) {
  check_in("upward", upward);
  check_in("downward", downward);
  check_in("toward_zero", toward_zero);
}

static void subnormals_flushed(void) { check_in("flushing", flushing); }

static void flags(void) { check_in("some_flags", some_flags); }

/* With traps on, a signal would end the program: infinities, NaN and inexact results are everyday work. */
static void trapping(void) { set_control(with_traps(control())); }

static void traps(void) {
  const uint64_t before = control();
  trapping();
  const bool exist = control() == with_traps(before);
  set_control(before);
  if (!exist) {
    printf("fenv: traps aren't tested, this CPU has none\n");
    return;
  }
  check_in("trapping", trapping);
}

/* A thread that is started in another environment than the default one, as the first user of a new context. */
static void first_call(void) {
  for (size_t i = 0; i < PROBLEMS; i++) {
    tc_context *fresh = open_context();
    problem p = problems[i];
    size_t bytes = 0;
    problem_note(&p);
    problem_open(&p, fresh);
    fenv_t normal;
    fegetenv(&normal);
    flushing();
    upward();
    tc_status_t status = problem_call(&p, fresh);
    fesetenv(&normal);
    CHECK_INT(status, TC_OK);
    bytes = problem_output(&p)->memory.bytes;
    CHECK_BYTES(problem_output(&p)->memory.data, results[i], bytes);
    problem_close(&p, fresh);
    close_context(fresh);
  }
}

int main(int argc, char **argv) {
  static const test tests[] = {{"rounding_modes", rounding_modes},
                               {"subnormals_flushed", subnormals_flushed},
                               {"flags", flags},
                               {"traps", traps},
                               {"first_call", first_call}};
  ctx = open_context();
  CHECK_OK(tc_context_set_threads(ctx, 3));
  prepare();
  int status = run_tests("fenv", tests, COUNT(tests), argc, argv);
  finish_problems();
  close_context(ctx);
  return status;
}
