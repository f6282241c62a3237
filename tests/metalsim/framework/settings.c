/* SPDX-License-Identifier: MIT */

/* Settings and faults: what the environment says, until a test says otherwise. */
#include "settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  const char *name, *initial;
  char given[SIM_TEXT];
  bool is_given;
} settings[SIM_SETTINGS] = {
    [SIM_DEVICE] = {"DEVICE", "m1", "", false},
    [SIM_NAME] = {"NAME", "", "", false},
    [SIM_ARCHITECTURE] = {"ARCHITECTURE", "", "", false},
    [SIM_FAMILY] = {"FAMILY", "", "", false},
    [SIM_MACOS] = {"MACOS", "13", "", false},
    [SIM_MAX_THREADS] = {"MAX_THREADS", "1024", "", false},
    [SIM_MAX_BUFFER_LENGTH] = {"MAX_BUFFER_LENGTH", "", "", false},
    [SIM_SLOW_MS] = {"SLOW_MS", "0", "", false},
    [SIM_CLOCK] = {"CLOCK", "1", "", false},
    [SIM_HANG_MS] = {"HANG_MS", "0", "", false},
    [SIM_DROPPED] = {"DROPPED", "report", "", false},
    [SIM_CHECK_LIVE] = {"CHECK_LIVE", "0", "", false},
};

static struct {
  const char *name;
  int64_t nth, code; /* nth: as in metalsim_fault; code 0: the fault's own */
} faults[SIM_FAULTS] = {
    [SIM_FAULT_DEFAULT_DEVICE] = {"default_device", -1, 0},
    [SIM_FAULT_ALL_DEVICES] = {"all_devices", -1, 0},
    [SIM_FAULT_QUEUE] = {"queue", -1, 0},
    [SIM_FAULT_EVENT] = {"event", -1, 0},
    [SIM_FAULT_BUFFER] = {"buffer", -1, 0},
    [SIM_FAULT_DATA] = {"data", -1, 0},
    [SIM_FAULT_COMPILE] = {"compile", -1, 0},
    [SIM_FAULT_FUNCTION] = {"function", -1, 0},
    [SIM_FAULT_PIPELINE] = {"pipeline", -1, 0},
    [SIM_FAULT_COMMAND_BUFFER] = {"command_buffer", -1, 0},
    [SIM_FAULT_ENCODER] = {"encoder", -1, 0},
    [SIM_FAULT_EXECUTION] = {"execution", -1, 0},
    [SIM_FAULT_HANG] = {"hang", -1, 0},
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void copy_text(char to[SIM_TEXT], const char *name, const char *from) {
  SIM_REQUIRE(strlen(from) < SIM_TEXT, "METALSIM_%s is too long: %s", name, from);
  strcpy(to, from);
}

void metalsim_set(const char *name, const char *value) {
  int i = 0;
  while (i < SIM_SETTINGS && strcmp(settings[i].name, name) != 0) i++;
  SIM_REQUIRE(i < SIM_SETTINGS, "there is no setting %s", name);
  pthread_mutex_lock(&mutex);
  settings[i].is_given = value != NULL;
  if (value) copy_text(settings[i].given, name, value);
  pthread_mutex_unlock(&mutex);
}

void sim_text(sim_setting setting, char text[SIM_TEXT]) {
  const char *name = settings[setting].name;
  char variable[SIM_TEXT];
  snprintf(variable, sizeof variable, "METALSIM_%s", name);
  const char *environment = getenv(variable);
  pthread_mutex_lock(&mutex);
  copy_text(text, name,
            settings[setting].is_given ? settings[setting].given
            : environment              ? environment
                                       : settings[setting].initial);
  pthread_mutex_unlock(&mutex);
}

/* The whole of the text, or a report. */
static int64_t parse_number(const char *name, const char *text) {
  char *end;
  long long number = strtoll(text, &end, 10);
  SIM_REQUIRE(end != text && *end == '\0', "METALSIM_%s is not a number: %s", name, text);
  return number;
}

int64_t sim_number(sim_setting setting) {
  char text[SIM_TEXT];
  sim_text(setting, text);
  return parse_number(settings[setting].name, text);
}

static void set_fault(const char *name, int64_t nth, int64_t code) {
  int i = 0;
  while (i < SIM_FAULTS && strcmp(faults[i].name, name) != 0) i++;
  SIM_REQUIRE(i < SIM_FAULTS, "there is no fault %s", name);
  pthread_mutex_lock(&mutex);
  faults[i].nth = nth;
  faults[i].code = code;
  pthread_mutex_unlock(&mutex);
}

/* "name:nth:code", with the last two as wanted. */
static void read_fault(char *text) {
  char *rest, *name = strtok_r(text, ":", &rest), *nth = strtok_r(NULL, ":", &rest), *code = strtok_r(NULL, ":", &rest);
  if (name) set_fault(name, nth ? parse_number("FAULTS", nth) : 0, code ? parse_number("FAULTS", code) : 0);
}

static void read_faults(void) {
  const char *environment = getenv("METALSIM_FAULTS");
  char *text = strdup(environment ? environment : ""), *rest;
  for (char *fault = strtok_r(text, ",", &rest); fault; fault = strtok_r(NULL, ",", &rest)) read_fault(fault);
  free(text);
}

static pthread_once_t faults_read = PTHREAD_ONCE_INIT;

void metalsim_fault(const char *fault, int64_t nth, int64_t code) {
  pthread_once(&faults_read, read_faults);
  set_fault(fault, nth, code);
}

bool sim_fault(sim_fault_kind fault, int64_t *code) {
  pthread_once(&faults_read, read_faults);
  pthread_mutex_lock(&mutex);
  bool fails = faults[fault].nth == 0 || faults[fault].nth == 1;
  if (faults[fault].nth > 0 && --faults[fault].nth == 0) faults[fault].nth = -1;
  if (fails && code && faults[fault].code) *code = faults[fault].code;
  pthread_mutex_unlock(&mutex);
  return fails;
}
