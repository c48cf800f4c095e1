// A whole pipeline in one process: a thread a worker, memory links, a shared
// gate, any engine.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/cluster/run_report.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/schedule/instruction.h"
#include "worker/pipeline/batch_source.h"
#include "worker/pipeline/stage_engine.h"

namespace paceline {

struct PipelineRequest {
  JobSpec spec;
  ModelDescription model;
  std::vector<int> worker_of;  // [spec.pipeline.stages]; of replicas the first
  std::function<absl::StatusOr<std::unique_ptr<StageEngine>>(
      const EngineOptions&)>
      make_engine;
  std::function<absl::StatusOr<std::unique_ptr<BatchSource>>(const JobSpec&,
                                                             const Turns&)>
      open_data;
  // [stages], or empty: the other workers of a stage, which share it equally.
  std::vector<std::vector<int>> replicas = {};
  // Bounds the predictions on a worker; 0: no limit.
  int64_t most_prediction_bytes = 0;
};

struct PipelineOutcome {
  // By name; of inference jobs the predictions.
  std::map<std::string, std::vector<uint8_t>> weights;
  std::map<int, FlowTimes> flows;  // by worker
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  // By stage, of training.
  std::map<int, StageTime> stages;  // seconds are not summed
  std::map<int, InstructionList> instructions;
  int64_t skipped_updates = 0;
  int64_t unreadable = 0;  // samples
};

// Trains to the end.  The first error of any worker.
absl::StatusOr<PipelineOutcome> RunPipeline(const PipelineRequest& request);

}  // namespace paceline
