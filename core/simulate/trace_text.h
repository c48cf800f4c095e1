// A simulation's trace as text that ui.perfetto.dev and chrome://tracing open.
#pragma once

#include <string>

#include "core/plan/problem.h"
#include "core/simulate/simulation.h"

namespace paceline {

// Chrome's "Trace Event Format" (JSON object form): a process a device, a
// thread a track (compute; frames: CPU work of frames; one for each link), a
// complete event a slice, a counter for memory.  Slices are named "F 3"
// (forward of micro-batch 3), "B 3", "LOAD 3", "STEP", "send F 3", "receive B
// 3", "part 0"; on links "F 3", "B 3", "part 0".  Time stamps are microseconds
// since the begin and never go back.  About 150 bytes a slice.
std::string TraceText(const PlanProblem& problem, const SimulationTrace& trace);

}  // namespace paceline
