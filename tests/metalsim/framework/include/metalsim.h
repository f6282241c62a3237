/* SPDX-License-Identifier: MIT */

/* What a test tells the simulator, and asks it. Each setting is an environment variable too, for programs that can't call. A fault
   of the caller, at which Metal's validation layer would stop, is a sentence on stderr and abort(); settings and faults make the
   failures that a right program meets. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../../face/face.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets METALSIM_<name>: a value as the environment would have it, or NULL for the environment's own. Settings of a device hold for
   devices made from then on. tests/metalsim/README.md lists them. */
void metalsim_set(const char *name, const char *value);

/* Faults. `fault` is a name below; the nth of the calls that could fail so from now on does it (1 is the next one), 0 is each of
   them, -1 none any more. In the environment: METALSIM_FAULTS="buffer:3,execution:1:2", that is name:nth:code.

     default_device  MTLCreateSystemDefaultDevice gives nil
     all_devices     MTLCopyAllDevices gives an empty array
     queue           newCommandQueue gives nil
     event           newSharedEvent gives nil
     buffer          newBuffer... gives nil
     data            newLibraryWithData: fails with MTLLibraryErrorInternal, or with the code
     compile         newLibraryWithSource: fails with MTLLibraryErrorCompileFailure, or with the code
     function        newFunctionWithName: fails with MTLLibraryErrorFunctionNotFound, or with the code
     pipeline        newComputePipelineState... fails with MTLLibraryErrorInternal, or with the code
     command_buffer  commandBuffer gives nil
     encoder         computeCommandEncoder gives nil
     execution       a committed command buffer runs nothing and fails with the code (MTLCommandBufferError...)
     hang            a committed command buffer doesn't end before metalsim_release_hang, or METALSIM_HANG_MS are over */
void metalsim_fault(const char *fault, int64_t nth, int64_t code);
void metalsim_release_hang(void);

/* Metal objects alive, of all kinds; waits for command buffers that are committed and don't hang. `print` lists them on stderr. */
int64_t metalsim_live(bool print);

/* What devices have done since the last reset. */
typedef struct {
  int64_t compilations, pipelines, command_buffers, dispatches;
  int64_t fast_math; /* compilations without MTLMathModeSafe or fastMathEnabled = NO: NaN, infinities and order of sums not kept */
  int64_t dropped;   /* command buffers released with work in them and never committed */
  face_counters kernels; /* of all dispatches */
} metalsim_counters;

metalsim_counters metalsim_counters_get(void);
void metalsim_counters_reset(void);

#ifdef __cplusplus
}
#endif
