/* SPDX-License-Identifier: MIT */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local const char *function = "libtc";
static _Thread_local const char *kernel = "none";
static _Thread_local size_t workspace;
static _Thread_local char sentence[512];

int32_t tc_api_version(void) { return TC_API_VERSION; }

#define TEXT(x) #x
#define DOTTED(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *tc_version(void) { return DOTTED(TC_VERSION_MAJOR, TC_VERSION_MINOR, TC_VERSION_PATCH); }

const char *tc_status_string(tc_status_t status) {
  static const char *const names[] = {
      "TC_OK",
      "TC_ERROR_ARGUMENT",
      "TC_ERROR_SHAPE",
      "TC_ERROR_BUFFER",
      "TC_ERROR_ALIGNMENT",
      "TC_ERROR_OVERLAP",
      "TC_ERROR_MEMORY",
      "TC_ERROR_UNSUPPORTED",
      "TC_ERROR_ENVIRONMENT",
      "TC_ERROR_NO_DEVICE",
      "TC_ERROR_DEVICE",
      "TC_ERROR_TIMEOUT",
      "TC_ERROR_CLOSED",
      "TC_ERROR_STATE",
  };
  const int64_t index = -(int64_t)status;
  return index >= 0 && index < (int64_t)(sizeof names / sizeof *names) ? names[index] : "TC_ERROR_UNKNOWN";
}

const char *tc_last_error(void) { return sentence; }

void tc_function_set(const char *name) {
  function = name;
  kernel = "none";
  workspace = 0;
}

void tc_kernel_use(const char *name) { kernel = name; }

const char *tc_kernel_used(void) { return kernel; }

void tc_workspace_count(size_t bytes) { workspace += bytes; }

size_t tc_workspace_counted(void) { return workspace; }

const char *tc_function(void) { return function; }

tc_status_t tc_fail(tc_status_t status, const char *format, ...) {
  const int prefix = snprintf(sentence, sizeof sentence, "%s: ", function);
  va_list args;
  va_start(args, format);
  vsnprintf(sentence + prefix, sizeof sentence - (size_t)prefix, format, args);
  va_end(args);
  return status;
}
