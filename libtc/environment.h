/* SPDX-License-Identifier: MIT */
#ifndef TC_ENVIRONMENT_H
#define TC_ENVIRONMENT_H

#include <stdbool.h>

#include "tc/tc.h"

enum { TC_THREADS_MAX = 1024 };

typedef enum tc_conv_path_t { TC_CONV_PATH_ANY, TC_CONV_PATH_COL, TC_CONV_PATH_IMPLICIT } tc_conv_path_t;

/* The TC_* environment variables. */
typedef struct tc_environment {
  tc_backend_t backend; /* AUTO if unset */
  const char *cpu_isa;  /* NULL if unset; the CPU backend knows the values */
  int64_t threads;      /* 0 if unset */
  bool verbose;
  tc_conv_path_t conv_path;
} tc_environment;

/* Reads and checks all but TC_CPU_ISA. Errors: ENVIRONMENT. */
tc_status_t tc_environment_read(tc_environment *out);

#endif
