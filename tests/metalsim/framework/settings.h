/* SPDX-License-Identifier: MIT */

/* Reports, settings, faults and counters: the part without Objective-C. */
#pragma once

#include <metalsim.h>
#include <stddef.h>

/* Stops the process as Metal's validation layer would. */
void sim_report(const char *where, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

#define SIM_REQUIRE(condition, ...) ((condition) ? (void)0 : sim_report(__func__, __VA_ARGS__))

typedef enum {
  SIM_DEVICE,
  SIM_NAME,
  SIM_ARCHITECTURE,
  SIM_FAMILY,
  SIM_MACOS,
  SIM_MAX_THREADS,
  SIM_MAX_BUFFER_LENGTH,
  SIM_SLOW_MS,
  SIM_CLOCK,
  SIM_HANG_MS,
  SIM_DROPPED,
  SIM_CHECK_LIVE,
  SIM_SETTINGS
} sim_setting;

enum { SIM_TEXT = 64 };

/* The setting's value, "" if there is none. */
void sim_text(sim_setting setting, char text[SIM_TEXT]);
/* As a number. */
int64_t sim_number(sim_setting setting);

typedef enum {
  SIM_FAULT_DEFAULT_DEVICE,
  SIM_FAULT_ALL_DEVICES,
  SIM_FAULT_QUEUE,
  SIM_FAULT_EVENT,
  SIM_FAULT_BUFFER,
  SIM_FAULT_DATA,
  SIM_FAULT_COMPILE,
  SIM_FAULT_FUNCTION,
  SIM_FAULT_PIPELINE,
  SIM_FAULT_COMMAND_BUFFER,
  SIM_FAULT_ENCODER,
  SIM_FAULT_EXECUTION,
  SIM_FAULT_HANG,
  SIM_FAULTS
} sim_fault_kind;

/* Is this call to fail? `code`, which may be NULL: set if the fault has one. */
bool sim_fault(sim_fault_kind fault, int64_t *code);

/* A queue's thread has committed command buffers; it has let go of the last one. */
void sim_worker_busy(void);
void sim_worker_idle(void);
/* Waits until no thread is busy, but for those that hang. */
void sim_workers_settle(void);

/* Waits for metalsim_release_hang, or METALSIM_HANG_MS. */
void sim_hang(void);
void sim_sleep_ms(int64_t milliseconds);

/* Counters, by the offset of their field. */
void sim_count(size_t field, int64_t more);
#define SIM_COUNT(field) sim_count(offsetof(metalsim_counters, field), 1)
void sim_count_dispatch(const face_counters *counters);

/* Objects alive. */
void sim_live_add(const char *kind, int more);
int64_t sim_live(bool print);
