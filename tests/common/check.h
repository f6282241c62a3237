/* SPDX-License-Identifier: MIT
 *
 * The harness of the C tests. A failed check prints its expression, place, both values and the note of the problem at hand, and the
 * test goes on. Each CHECK gives true if it held. Exit status: 0 passed, 1 failed, 77 skipped (with the reason on stdout).
 *
 * Environment: TC_TEST_SEED changes all random data; TC_TEST_SCALE multiplies the number of random problems.
 */
#ifndef TC_TESTS_CHECK_H
#define TC_TESTS_CHECK_H

#include "rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tc/tc.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

#define CHECK(condition) check_true((condition), #condition, __FILE__, __LINE__)
#define CHECK_INT(got, want) check_int((got), (want), #got, __FILE__, __LINE__)
#define CHECK_STATUS(call, want) check_status((call), (want), #call, __FILE__, __LINE__)
#define CHECK_OK(call) check_status((call), TC_OK, #call, __FILE__, __LINE__)
#define CHECK_STRING(got, want) check_string((got), (want), #got, __FILE__, __LINE__)
#define CHECK_CONTAINS(text, word) check_contains((text), (word), #text, __FILE__, __LINE__)
#define CHECK_BYTES(got, want, bytes) check_bytes((got), (want), (bytes), #got, __FILE__, __LINE__)
#define CHECK_AT_MOST(got, limit) check_at_most((got), (limit), #got, __FILE__, __LINE__)

bool check_true(bool ok, const char *text, const char *file, int line);
bool check_int(int64_t got, int64_t want, const char *text, const char *file, int line);
bool check_status(tc_status_t got, tc_status_t want, const char *text, const char *file, int line);
bool check_string(const char *got, const char *want, const char *text, const char *file, int line);
bool check_bytes(const void *got, const void *want, size_t bytes, const char *text, const char *file, int line);
bool check_at_most(double got, double limit, const char *text, const char *file, int line);

/* word stands in text, with no letter, digit or underscore on either side of it. */
bool check_contains(const char *text, const char *word, const char *name, const char *file, int line);

/* A failure that a comparison found by itself: always prints, counts as one failed check, gives false. */
bool check_failed(const char *file, int line, const char *format, ...) PRINTF_LIKE(3, 4);

/* Says what the calling thread is doing from now on; printed with each of its failures. */
void note(const char *format, ...) PRINTF_LIKE(1, 2);

/* Ends the program: as a failure that leaves nothing to go on with, or as a skip. */
_Noreturn void give_up(const char *format, ...) PRINTF_LIKE(1, 2);
_Noreturn void skip(const char *format, ...) PRINTF_LIKE(1, 2);

typedef struct test {
  const char *name;
  void (*run)(void);
} test;

/* Runs the tests whose name contains argv[1] (all without it) and prints one line. Gives main's exit status. */
int run_tests(const char *program, const test *tests, size_t count, int argc, char **argv);

/* The status of the checks so far, printed as run_tests does; for programs without a table. */
int finish(const char *program, size_t tests);

uint64_t test_seed(void);
int64_t scaled(int64_t count); /* count * TC_TEST_SCALE, at least 1 */
bool sampled(rng *r);          /* true for a share TC_TEST_SCALE of all problems, for tests that have a list of them */

#endif
