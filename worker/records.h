// What a run tells the coordinator: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "worker/time_meter.h"

namespace paceline {

// One optimizer update, from the last stage.
struct StepRecord {
  int64_t step = 0;  // 1 after the first update
  double loss = 0;   // mean over the batch
  int64_t samples = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  bool skipped = false;
  int64_t unix_ms = 0;  // for people
};

// One walk through the test set, from the last stage.
struct EvaluationRecord {
  int64_t step = 0;  // updates done before
  double loss = 0;
  double accuracy = 0;  // in [0, 1]
  int64_t samples = 0;
};

struct LogRecord {
  int64_t unix_ms = 0;
  std::string level;
  std::string text;
};

// Values are those of paceline.v1.RunState.Phase.
enum class RunPhase : uint8_t {
  kPreparing = 1,
  kRunning = 2,
  kDone = 3,
  kFailed = 4,
};

// The whole state of a run, as a heartbeat carries it.
struct RunStatus {
  Fence fence;
  RunPhase phase = RunPhase::kPreparing;
  int64_t step = 0;   // updates done
  int64_t steps = 0;  // in all; 0: not known yet
  int64_t samples = 0;
  absl::Status error;  // when kFailed
  TimeReading seconds;
};

}  // namespace paceline
