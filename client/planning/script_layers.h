// What is in a TorchScript file: this program has no LibTorch, a worker does.
#pragma once

#include "absl/status/status.h"
#include "client/console.h"
#include "client/measure_client.h"
#include "client/pause.h"
#include "core/model/job_spec.h"

namespace paceline {

// When the model of `spec` is a script that no worker has looked into, has one
// do so, and fills in what it found; otherwise does nothing.  Blocks until a
// worker is free of jobs; says on `console` for what it waits.
//
// Errors:
//   InvalidArgument  the worker cannot use the file; says why
//   Cancelled        interrupted
//   those of MeasureClient
absl::Status FillInScript(Console& console, Pauser& pauser,
                          MeasureClient& measure, JobSpec* spec);

}  // namespace paceline
