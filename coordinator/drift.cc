#include "coordinator/drift.h"

#include <cstddef>

namespace paceline {

std::vector<StageDrift> DriftOf(const JobRecord& record) {
  std::vector<StageDrift> drifts;
  const std::vector<int> numbers = StageNumbers(record.stages);
  for (size_t stage = 0; stage < record.stages.size(); ++stage) {
    StageDrift drift;
    drift.stage = numbers[stage];
    drift.worker = record.stages[stage].worker;
    if (record.estimate.has_value() &&
        stage < record.estimate->stage_seconds.size()) {
      drift.predicted_seconds = record.estimate->stage_seconds[stage];
    }
    if (record.estimate.has_value() &&
        stage < record.estimate->layer_seconds.size()) {
      drift.layer_seconds = record.estimate->layer_seconds[stage];
    }
    if (stage < record.stage_times.size() &&
        record.stage_times[stage].micro_batches > 0) {
      const StageTime& time = record.stage_times[stage];
      drift.measured_seconds =
          time.seconds / static_cast<double>(time.micro_batches);
    }
    drifts.push_back(drift);
  }
  return drifts;
}

double MeasuredStepSeconds(const JobRecord& record) {
  return record.timed_steps > 0
             ? record.step_seconds / static_cast<double>(record.timed_steps)
             : 0;
}

}  // namespace paceline
