/* SPDX-License-Identifier: MIT
 * What the GPU's arithmetic is like: a kernel at the start of the first context tells whether the others can rely on it. */
#import "metal/metal.h"

#include <stdio.h>
#include <string.h>

/* The kernel's input stands where others have their parameters; its output is the workspace, which is new here, so zeroed. */
static tc_status_t run_probe(tc_metal *m) {
  tc_plan_step step = {.kernel = {.name = "tc_probe"},
                       .params_bytes = TC_PROBE_WORDS * sizeof(uint32_t),
                       .binding_count = 2,
                       .bindings = {{.index = 1, .role = TC_ROLE_WORKSPACE, .written = true},
                                    {.index = 2, .role = TC_ROLE_WORKSPACE, .written = true}},
                       .threadgroups = {1, 1, 1},
                       .threads = {32, 1, 1}};
  for (size_t i = 0; i < TC_PROBE_WORDS; i++) memcpy(step.params + i * sizeof(uint32_t), &tc_plan_probe[i].input, sizeof(uint32_t));
  const tc_plan plan = {.steps = &step, .count = 1, .workspace_bytes = step.params_bytes};
  const tc_buffer *const nothing[TC_ROLES] = {NULL};
  return tc_metal_run(m, &plan, nothing);
}

/* Whether all is as expected, or *first_wrong is not. Errors: DEVICE. */
static tc_status_t judge(const uint32_t *words, const tc_plan_probe_word **first_wrong) {
  *first_wrong = NULL;
  for (size_t i = 0; i < TC_PROBE_WORDS; i++) {
    const tc_plan_probe_word *word = &tc_plan_probe[i];
    if (words[i] == word->expected) continue;
    TC_REQUIRE(word->in_bits, TC_ERROR_DEVICE,
               "the GPU can't be used, the probe found it wrong: \"%s\" gives 0x%08x, 0x%08x is needed", word->what, words[i],
               word->expected);
    if (!*first_wrong) *first_wrong = word;
  }
  return TC_OK;
}

static bool probed(tc_gpu *gpu) {
  pthread_mutex_lock(&gpu->lock);
  const bool done = gpu->probed;
  pthread_mutex_unlock(&gpu->lock);
  return done;
}

/* Two contexts may have run the probe at once; the first one to come here counts, since its ops read the plan from then on. */
static void take_over(tc_gpu *gpu, const tc_plan_probe_word *wrong) {
  pthread_mutex_lock(&gpu->lock);
  if (!gpu->probed) {
    gpu->probed = true;
    gpu->plan.round_in_bits = wrong != NULL;
    if (wrong) {
      snprintf(gpu->findings, sizeof gpu->findings, "not \"%.50s\": rounding by integers", wrong->what);
    } else {
      snprintf(gpu->findings, sizeof gpu->findings, "all as needed");
    }
  }
  pthread_mutex_unlock(&gpu->lock);
}

tc_status_t tc_metal_probe(tc_metal *m) {
  if (probed(m->gpu)) return TC_OK;
  const tc_plan_probe_word *wrong;
  TC_TRY(run_probe(m));
  TC_TRY(judge([m->workspace contents], &wrong));
  take_over(m->gpu, wrong);
  return TC_OK;
}
