// The coordinator's answers (jobs, workers, events, log lines) as documents, as
// text, and in the words that several commands use of them.
#pragma once

#include <optional>
#include <string>

#include "client/values/document.h"
#include "client/values/text.h"
#include "core/cluster/job_state.h"
#include "core/job/spec/job_spec.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// --- jobs -------------------------------------------------------------------

bool IsInference(const v1::Job& job);

// Returns what Job.step counts: "step", or "micro-batch" of inference.
std::string StepName(const v1::Job& job);

// Returns the name of the job's result: "weights" or "predictions".
std::string ResultName(const v1::Job& job);

// How micro-batches passed through a stage; nothing until it has results.  Of
// replicas: counts together, the mean of their medians weighted by these, and
// the longest of their longest latencies.
std::optional<v1::FlowTimes> FlowOf(const v1::Job& job, int stage);
// The same of the last stage.
std::optional<v1::FlowTimes> ResultFlow(const v1::Job& job);

using Placements = google::protobuf::RepeatedPtrField<v1::StagePlacement>;

// The stages by number; replicas in the order of their workers.
Placements StagesInOrder(const v1::Job& job);

// Returns the part of its stage's micro-batches that stages[i] computes, in (0,
// 1].
double ShareOf(const Placements& stages, int i);
// ", 25.0 % of the micro-batches"; empty for all of them.
std::string ShareText(const Placements& stages, int i);

// Stages of the job as placed, else as its spec asks; 0: not decided yet.
int StageCount(const v1::Job& job);
int StageCount(const PipelineSpec& pipeline);

// The name of the schedule; "forward only" where there is none to choose.
std::string ScheduleText(const JobSpec& spec);
// "shards: 4 (why)".
std::string ShardsText(int32_t shards, const std::string& why);

// "0,2": the numbers of the stages that the worker holds.
std::string StageNumbers(const v1::JobWorker& worker);
// "3 stages"; "stages not chosen yet" for 0.
std::string StagesText(int stages);

// --- documents --------------------------------------------------------------

// README.md of client/ lists the keys.  What is not there yet is null;
// with_curve adds `loss`.
Document ToDocument(const v1::Job& job, bool with_curve);
Document ToDocument(const v1::Worker& worker);

// --- text -------------------------------------------------------------------

// "12:03:11", local time.
std::string ClockText(int64_t unix_ms);
// "w3 is lost; from step 40, 6 steps again; detect 0.01 s, leave 0.10 s, ...".
// Empty: there was none.
std::string RecoveryText(const v1::Job& job);
// wide: with all columns, and the whole reason why each stands as it does.
std::string RenderJobs(const v1::ListJobsResponse& jobs, bool wide = false);
// Says what is left of a long job's curve; empty: all of it.
std::string CurveText(const v1::Job& job);
std::string RenderJob(const v1::Job& job, const PlotOptions& plot);
// idle, busy, measuring (for a person; a link between two workers that the mesh
// measures by itself does not count), draining (drained, and has a job still),
// drained, suspect, lost, stopped; unknown of a newer coordinator.
std::string StateText(const v1::Worker& worker);
std::string RenderWorkers(const v1::ListWorkersResponse& workers,
                          bool wide = false);
std::string RenderWorker(const v1::Worker& worker);
std::string RenderEvent(const v1::JobEvent& event);  // one line
std::string RenderLogLine(const v1::LogLine& line);

// How an ended (or stopped watching) job stands, in lines that scripts may
// grep: "test accuracy: 0.9012", "weights: PATH", "sha256: HEX".
std::string RenderOutcome(const v1::Job& job);

}  // namespace paceline
