/* SPDX-License-Identifier: MIT
 * Command buffers from commit to completion: bounded waits, and what becomes of a failure. */
#import "metal/metal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A wait goes on for a minute longer than twenty times what the model says. (macOS itself ends a command buffer after some seconds.) */
enum { SLICE_MS = 100, MODEL_FACTOR = 20, POLL_US = 50 };
int tc_metal_patience_ms = 60000;

/* ---- Failures ---- */

/* Records that the device failed; command buffers from value on are lost, calls that start from now on too. The first failure has
 * the text. Call it with flying held. */
static void fail(tc_metal *m, tc_status_t status, uint64_t value, const char *text) {
  if (m->failure == TC_OK || value < m->failed_value) m->failed_value = value;
  if (m->failure != TC_OK) return;
  m->failure = status;
  snprintf(m->failure_text, sizeof m->failure_text, "%s", text);
}

tc_status_t tc_metal_fail(tc_metal *m, const char *text) {
  pthread_mutex_lock(&m->flying);
  fail(m, TC_ERROR_DEVICE, UINT64_MAX, text);
  pthread_mutex_unlock(&m->flying);
  return tc_fail(TC_ERROR_DEVICE, "%s", text);
}

/* What work up to value came to. Call it with flying held. */
static tc_status_t outcome(const tc_metal *m, uint64_t value) {
  if (m->failure == TC_OK || value < m->failed_value) return TC_OK;
  return tc_fail(m->failure, "%s; the context can't be used any more", m->failure_text);
}

tc_status_t tc_metal_fork_check(void) {
  TC_REQUIRE(!tc_metal_forked(), TC_ERROR_DEVICE,
             "this process was forked from one that uses Metal, and Metal can't follow there; the cpu backend can");
  return TC_OK;
}

tc_status_t tc_metal_check(tc_metal *m) {
  TC_TRY(tc_metal_fork_check());
  pthread_mutex_lock(&m->flying);
  const tc_status_t status = outcome(m, UINT64_MAX);
  pthread_mutex_unlock(&m->flying);
  return status;
}

/* ---- Flights ---- */

/* Takes the oldest flight off the list. Metal itself keeps a command buffer, and all that it uses, until the GPU lets go of it. */
static void forget_oldest(tc_metal *m) {
  [m->flights[0].buffer release];
  m->flight_count--;
  memmove(m->flights, m->flights + 1, (size_t)m->flight_count * sizeof *m->flights);
}

/* Forgets the oldest flight if it has ended, and records it if it has failed. Call it with flying held. */
static bool land_oldest(tc_metal *m) {
  const tc_metal_flight oldest = m->flights[0];
  const MTLCommandBufferStatus status = [oldest.buffer status];
  if (status != MTLCommandBufferStatusCompleted && status != MTLCommandBufferStatusError) return false;
  if (status == MTLCommandBufferStatusError) {
    NSError *error = [oldest.buffer error];
    const bool late = [error code] == MTLCommandBufferErrorTimeout;
    char text[sizeof m->failure_text];
    snprintf(text, sizeof text, "the GPU failed, MTLCommandBufferError %ld: %s", (long)[error code], tc_metal_error_text(error));
    fail(m, late ? TC_ERROR_TIMEOUT : TC_ERROR_DEVICE, oldest.value, text);
  }
  forget_oldest(m);
  return true;
}

/* Gives up on everything that is still flying. Call it with flying held. */
static void give_up(tc_metal *m, const tc_metal_flight *oldest, double waited_ms) {
  char text[sizeof m->failure_text];
  snprintf(text, sizeof text, "the GPU did not answer for %.0f s, about %.3f s were to be expected", waited_ms / 1000,
           oldest->seconds);
  fail(m, TC_ERROR_TIMEOUT, oldest->value, text);
  while (m->flight_count) forget_oldest(m);
}

/* Waits for the oldest flight, for one slice at most. Gives how long in milliseconds, as promised, not by the clock: a machine that
 * slept meanwhile has lost nothing. The event comes a little before the command buffer's status. */
static double wait_slice(tc_metal *m, const tc_metal_flight *oldest) {
  if ([m->event signaledValue] < oldest -> value)
    return [m->event waitUntilSignaledValue:oldest->value timeoutMS:SLICE_MS] ? 0 : SLICE_MS;
  usleep(POLL_US);
  return POLL_US / 1000.0;
}

/* Lands flights until the first one left is of a later value than that. Call it with flying held; it is let go meanwhile. */
static void land_until(tc_metal *m, uint64_t value) {
  double waited = 0;
  for (uint64_t watched = 0; m->flight_count && m->flights[0].value <= value;) {
    if (land_oldest(m)) continue;
    tc_metal_flight oldest = m->flights[0];
    if (oldest.value != watched) waited = 0;
    watched = oldest.value;
    if (waited > tc_metal_patience_ms + MODEL_FACTOR * 1000 * oldest.seconds) {
      give_up(m, &oldest, waited);
      return;
    }
    [oldest.buffer retain];
    pthread_mutex_unlock(&m->flying);
    waited += wait_slice(m, &oldest);
    pthread_mutex_lock(&m->flying);
    [oldest.buffer release];
  }
}

tc_status_t tc_metal_wait(tc_metal *m, uint64_t value) {
  pthread_mutex_lock(&m->flying);
  land_until(m, value);
  const tc_status_t status = outcome(m, value);
  pthread_mutex_unlock(&m->flying);
  return status;
}

tc_status_t tc_metal_make_room(tc_metal *m) {
  pthread_mutex_lock(&m->flying);
  if (m->flight_count == TC_METAL_FLIGHTS) land_until(m, m->flights[0].value);
  const tc_status_t status = outcome(m, UINT64_MAX);
  pthread_mutex_unlock(&m->flying);
  return status;
}

void tc_metal_take_off(tc_metal *m, tc_metal_flight flight) {
  pthread_mutex_lock(&m->flying);
  m->flights[m->flight_count++] = flight;
  pthread_mutex_unlock(&m->flying);
}
