/* SPDX-License-Identifier: MIT */
#ifndef TC_STATUS_H
#define TC_STATUS_H

#include "tc/tc.h"

/* Names the public function that the calling thread has entered; tc_fail puts it in front of the sentence. */
void tc_function_set(const char *name);
const char *tc_function(void);

/* For TC_VERBOSE: the matrix kernel that the function has used, "none" so far, and the bytes of workspace that it has taken.
 * tc_function_set begins anew. */
void tc_kernel_use(const char *name);
const char *tc_kernel_used(void);
void tc_workspace_count(size_t bytes);
size_t tc_workspace_counted(void);

/* Records "function: sentence" for tc_last_error() and returns status. */
__attribute__((format(printf, 2, 3))) tc_status_t tc_fail(tc_status_t status, const char *format, ...);

/* The checks of this library: returns from the calling function with a status and its sentence unless the condition holds.
 * (The status is named twice for the compiler, which then sees that it isn't TC_OK.) */
#define TC_REQUIRE(condition, status, ...)                             \
  do {                                                                 \
    if (!(condition)) return tc_fail((status), __VA_ARGS__), (status); \
  } while (0)

/* Returns from the calling function with the status of a call that did not succeed. */
#define TC_TRY(call)                    \
  do {                                  \
    const tc_status_t tc_try = (call);  \
    if (tc_try != TC_OK) return tc_try; \
  } while (0)

#endif
