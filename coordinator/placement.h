// Decides where a job may run now.
//
// Assumes: a worker runs one job at a time; a job wants one worker a stage, or
// all that can run it when there are fewer; it rather waits for a worker that
// another job has than runs on fewer now and slower for its whole life.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/cluster/membership.h"
#include "core/model/description.h"
#include "core/model/job_spec.h"
#include "core/plan/plan.h"

namespace paceline {

// A live worker and what it is doing.
struct Candidate {
  const Member* member;    // not null
  JobId job;               // unassigned: idle
  bool measuring = false;  // for a person; not to be disturbed
  bool drained = false;    // gets nothing new
  bool no_data = false;    // cannot hold the first stage
  bool unfit = false;      // gets no stage now, and the caller says why
  double slowness = 1;     // InputWorker::slowness, where that is known
};

inline bool IsIdle(const Candidate& candidate) {
  return !candidate.job.assigned() && !candidate.measuring &&
         !candidate.drained && !candidate.unfit;
}

PlannerWorker ToPlanner(const Member& member);

// Those of `names` that cannot be had: "pipeline.workers names w7, w8, which
// are not attached; pipeline.workers names w9, which is drained (...)"; empty:
// none.  key: where the names stand.
std::string AbsentText(const std::string& key,
                       const std::vector<std::string>& names,
                       const std::vector<Candidate>& candidates);

// The links among these workers over which `from` could not dial `to`.
std::vector<LinkMeasurement> RefusedLinks(const Measurements& measurements,
                                          const std::set<std::string>& names);
// The end of most of these links, the last name of several.  links: at least
// one.
std::string MostRefused(const std::vector<LinkMeasurement>& links);
// "worker a cannot dial b (10.0.0.2:7401): connection refused"
std::string RefusedText(const LinkMeasurement& link);

struct PlacementVerdict {
  std::optional<Plan> plan;      // set: start now
  std::string cpu_capability;    // settled for `plan`; never "auto"
  std::string why;               // not set: what the job waits for
  std::vector<JobId> waits_for;  // jobs that have the workers; ascending
  // InvalidArgument, ResourceExhausted (memory) or FailedPrecondition (cores):
  // not even the whole mesh, all idle, could run it.
  absl::Status impossible;
  // Blocks that the plan goes without, since their stage is lost.
  std::vector<int32_t> skipped_blocks;
  absl::Status undescribed;  // why the job's model cannot be described
};

// Answers with the placement that was made last while what it was made of is
// the same: that of a deep model takes a second.
class PlacementMemo {
 public:
  // key: of all that decides but for how slow each candidate is, which may have
  // changed a little.  made: counts those that are made anew.
  const PlacementVerdict& Get(uint64_t key, std::vector<double> slowness,
                              int64_t& made,
                              absl::FunctionRef<PlacementVerdict()> make);

 private:
  std::optional<uint64_t> key_;
  std::vector<double> slowness_;
  PlacementVerdict verdict_;
};
uint64_t PlacementKey(const std::vector<int64_t>& numbers);

// infer.tolerate: returns the job without the stages whose workers
// (pipeline.workers) are not there: their layers go to the stage before, and
// their blocks are skipped.  Nothing where the job does not tolerate that, no
// worker is missing, or a lost stage holds more than whole blocks that can be
// skipped.
std::optional<JobSpec> WithoutLostStages(
    JobSpec spec, const ModelDescription& model,
    const std::function<bool(const std::string&)>& is_there);

// More compute threads than that for each core of a worker only take turns; a
// worker gets no such job.
constexpr int kMostThreadsACore = 4;

// candidates: sorted by id.  A data-parallel job: DecideGroupPlacement().
PlacementVerdict DecidePlacement(const JobSpec& spec,
                                 const ModelDescription& model,
                                 const std::vector<Candidate>& candidates,
                                 const Measurements& measurements = {});

// Says what keeps the job from the worker whatever else changes; empty:
// nothing. "it has 2 cores for 9 threads, and 4 a core is the most", where it
// says how many it has; "it runs no scripts (--no-scripts)".
std::string UnfitText(const JobSpec& spec, const Member& member);
// Whether its CPU can compute with `capability`; all can with "auto".
bool HasCapability(const std::string& capability, const Member& member);
// Whether its process runs at `capability`; one that does not say so is taken
// to, and nothing is asked of it with "".
bool RunsAt(const std::string& capability, const Member& member);

// cpu_capability, settled: the lowest that all workers of the plan have.  What
// one of them cannot run, none of them runs, or the bytes would depend on who
// holds which stage.
std::string SettleCapability(const JobSpec& spec, const Plan& plan,
                             const std::vector<Candidate>& candidates);

// Errors: InvalidArgument  `faults` names a worker that is none of these: each
// a line with the name that was probably meant
absl::Status CheckFaultsOf(const JobSpec& spec,
                           const std::vector<Candidate>& candidates);

// Workers of the plan that have fewer cores than the job has threads, a
// sentence each, by id.  A worker that does not say how many it has is not
// judged.
std::vector<std::string> ThreadWarnings(
    const JobSpec& spec, const Plan& plan,
    const std::vector<Candidate>& candidates);

// One sentence: the threads that a worker of the plan (null: any) computes
// with, the cores that its machine has, and what as many threads as each worker
// can have cores would give.
//   rate  samples a second with so many threads; 0: not measured
std::string ThreadNote(const JobSpec& spec, const Plan* plan,
                       const std::vector<Candidate>& candidates,
                       absl::FunctionRef<double(int64_t threads)> rate);

// Other notes that a person should read before a job starts; `plan` may be
// null.
std::vector<std::string> PlacementNotes(
    const JobSpec& spec, const Plan* plan,
    const std::vector<Candidate>& candidates);

// "workers c, d get no stage: interleaved-1f1b gives each worker as many ..."
// when workers stay idle because the stages could not be dealt out to all of
// them; else empty.  Workers that the job does not name, that lack the CPU or
// the cores, or that have something else to do are not meant.
//
//   plan  made of spec and candidates
std::string DealingNote(const JobSpec& spec, const Plan& plan,
                        const std::vector<Candidate>& candidates);

}  // namespace paceline
