// What a job was predicted to take beside what it takes.  Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/records.h"

namespace paceline {

// Forward and backward of a micro-batch.
struct StageDrift {
  int32_t stage = 0;
  WorkerId worker;
  double predicted_seconds = 0;  // 0: not known
  double measured_seconds = 0;   // 0: not yet
  double layer_seconds = 0;      // RunEstimate::layer_seconds; 0: not known
};

// One a stage of the present plan, and of replicas one each; none before it is
// placed.
std::vector<StageDrift> DriftOf(const JobRecord& record);

// Mean of the steps timed so far; 0: none yet.
double MeasuredStepSeconds(const JobRecord& record);

}  // namespace paceline
