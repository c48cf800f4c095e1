// A whole pipeline in one process: a thread a worker, memory links, a shared
// gate, any engine.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/schedule/schedule.h"
#include "paceline/v1/coordinator.pb.h"
#include "paceline/v1/types.pb.h"
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
  // [stages], or empty: the other workers of a stage.
  std::vector<std::vector<int>> replicas = {};
  // [stages], or empty: what its workers' shares are; empty: equal.
  std::vector<std::vector<double>> shares = {};
  // The run begins after so many steps (inference: micro-batches), with these
  // states of all layers; no states: those that engines are made with.
  int64_t first_step = 0;
  std::map<int, std::vector<uint8_t>> states = {};
  // The outcome has the states after so many steps; 0: none.
  int64_t copied_step = 0;
};

struct PipelineOutcome {
  // By name; of inference jobs the predictions.
  std::map<std::string, std::vector<uint8_t>> weights;
  std::map<int, v1::FlowTimes> flows;  // by worker
  std::vector<v1::StepRecord> steps;
  std::vector<v1::EvaluationRecord> evaluations;
  // By stage, of training; versions alone of asynchronous schedules.
  std::map<int, v1::StageVersions> versions;
  std::map<int, v1::BatchTrace> traces;  // by stage, the newest
  std::map<int, InstructionList> instructions;
  std::map<int, std::vector<uint8_t>> states;  // by layer
  // By first layer and step, of training: hashes of its replicas' states.
  std::map<std::pair<int, int64_t>, std::set<uint64_t>> hashes;
  int64_t skipped_updates = 0;
  v1::Unreadable unreadable;
};

// Trains to the end.  The first error of any worker.
absl::StatusOr<PipelineOutcome> RunPipeline(const PipelineRequest& request);

// Expects that a run on the stages of `worker_of`, which begins with the states
// that `request` has after `step` steps, ends as `request` does: with the same
// bytes and the same records.
void ExpectToGoOn(PipelineRequest request, int64_t step,
                  const std::vector<int>& worker_of);

}  // namespace paceline
