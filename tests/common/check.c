/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77, FAILURES_SHOWN = 40 };

static atomic_llong checks, failures;
static _Thread_local char current_note[512];
static const char *current_test = "";

static void show(const char *file, int line, const char *format, va_list values) {
  char text[1024];
  vsnprintf(text, sizeof(text), format, values);
  long long before = atomic_fetch_add(&failures, 1);
  if (before < FAILURES_SHOWN) {
    printf("FAIL %s:%d [%s] %s\n     with %s; seed %" PRIu64 "\n", file, line, current_test, text, current_note, test_seed());
  }
  if (before == FAILURES_SHOWN) printf("FAIL further failures are only counted\n");
  fflush(stdout);
}

bool check_failed(const char *file, int line, const char *format, ...) {
  va_list values;
  va_start(values, format);
  show(file, line, format, values);
  va_end(values);
  atomic_fetch_add(&checks, 1);
  return false;
}

static bool passed(void) {
  atomic_fetch_add_explicit(&checks, 1, memory_order_relaxed);
  return true;
}

bool check_true(bool ok, const char *text, const char *file, int line) {
  return ok ? passed() : check_failed(file, line, "%s", text);
}

bool check_int(int64_t got, int64_t want, const char *text, const char *file, int line) {
  return got == want ? passed() : check_failed(file, line, "%s is %" PRId64 ", not %" PRId64, text, got, want);
}

bool check_status(tc_status_t got, tc_status_t want, const char *text, const char *file, int line) {
  if (got == want) return passed();
  return check_failed(file, line, "%s gives %s, not %s; last error: %s", text, tc_status_string(got), tc_status_string(want),
                      tc_last_error());
}

bool check_string(const char *got, const char *want, const char *text, const char *file, int line) {
  return strcmp(got, want) == 0 ? passed() : check_failed(file, line, "%s is \"%s\", not \"%s\"", text, got, want);
}

static bool word_character(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool contains_word(const char *text, const char *word) {
  size_t length = strlen(word);
  for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
    bool starts = at == text || !word_character(at[-1]) || !word_character(word[0]);
    bool ends = !word_character(at[length]) || !word_character(word[length - 1]);
    if (starts && ends) return true;
  }
  return false;
}

bool check_contains(const char *text, const char *word, const char *name, const char *file, int line) {
  if (contains_word(text, word)) return passed();
  return check_failed(file, line, "%s is \"%s\", and has no \"%s\"", name, text, word);
}

bool check_bytes(const void *got, const void *want, size_t bytes, const char *text, const char *file, int line) {
  const uint8_t *a = got, *b = want;
  if (bytes == 0 || memcmp(a, b, bytes) == 0) return passed();
  size_t i = 0;
  while (a[i] == b[i]) i++;
  return check_failed(file, line, "%s: byte %zu of %zu is 0x%02x, not 0x%02x", text, i, bytes, a[i], b[i]);
}

bool check_at_most(double got, double limit, const char *text, const char *file, int line) {
  return got <= limit ? passed() : check_failed(file, line, "%s is %g, over %g", text, got, limit);
}

void note(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(current_note, sizeof(current_note), format, values);
  va_end(values);
}

void give_up(const char *format, ...) {
  va_list values;
  va_start(values, format);
  show("tests", 0, format, values);
  va_end(values);
  exit(EXIT_FAILURE);
}

void skip(const char *format, ...) {
  va_list values;
  va_start(values, format);
  printf("SKIP: ");
  vprintf(format, values);
  printf("\n");
  va_end(values);
  exit(SKIPPED);
}

int finish(const char *program, size_t tests) {
  const char *isa = getenv("TC_CPU_ISA");
  printf("%s%s%s: %zu tests, %lld checks, %lld failed\n", program, isa ? " on " : "", isa ? isa : "", tests, atomic_load(&checks),
         atomic_load(&failures));
  return atomic_load(&failures) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int run_tests(const char *program, const test *tests, size_t count, int argc, char **argv) {
  const char *filter = argc > 1 ? argv[1] : "";
  size_t ran = 0;
  for (size_t i = 0; i < count; i++) {
    if (!strstr(tests[i].name, filter)) continue;
    current_test = tests[i].name;
    note("no problem set");
    tests[i].run();
    ran++;
  }
  if (ran == 0) give_up("no test's name contains \"%s\"", filter);
  return finish(program, ran);
}

uint64_t test_seed(void) {
  const char *text = getenv("TC_TEST_SEED");
  return text ? strtoull(text, NULL, 0) : 1;
}

static double scale(void) {
  const char *text = getenv("TC_TEST_SCALE");
  return text ? strtod(text, NULL) : 1;
}

int64_t scaled(int64_t count) {
  double result = (double)count * scale();
  return result > 1 ? (int64_t)result : 1;
}

bool sampled(rng *r) { return (double)rng_between(r, 1, 1000) <= 1000 * scale(); }
