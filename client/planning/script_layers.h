// What is in a TorchScript file: this program has no LibTorch, a worker does.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "client/console.h"
#include "client/measure_client.h"
#include "client/pause.h"
#include "core/base/clock.h"
#include "core/model/job_spec.h"

namespace paceline {

// When the model of `spec` is a script that no worker has looked into, has one
// do so, and fills in what it found; otherwise does nothing.  Blocks until a
// worker is free of jobs and has looked, though no longer than `timeout`; says
// on `console` for what it waits.
//
// Errors:
//   InvalidArgument   the worker cannot use the file; says why
//   Cancelled         interrupted
//   DeadlineExceeded  `timeout` is over; the coordinator gives it up too
//   those of MeasureClient
absl::Status FillInScript(Console& console, Pauser& pauser, const Clock& clock,
                          std::optional<absl::Duration> timeout,
                          MeasureClient& measure, JobSpec* spec);

}  // namespace paceline
