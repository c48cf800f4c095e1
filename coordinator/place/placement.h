// Decides where a job may run now.
//
// Assumes: a worker runs one job at a time; a job wants one worker a stage, or
// all that can run it when there are fewer; it waits for a busy worker rather
// than run on fewer workers, and slower, to its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/cluster/membership.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/plan.h"

namespace paceline {

// A live worker and what it is doing.
struct Candidate {
  const Member* member;    // not null
  JobId job;               // unassigned: idle
  bool measuring = false;  // for a person: not to be disturbed
  bool drained = false;    // gets no new work
  bool no_data = false;    // cannot hold the first stage
  bool unfit = false;      // gets no stage now; the caller says why
  double slowness = 1;     // InputWorker::slowness, where known
};

inline bool IsIdle(const Candidate& candidate) {
  return !candidate.job.assigned() && !candidate.measuring &&
         !candidate.drained && !candidate.unfit;
}

PlannerWorker ToPlanner(const Member& member);

// Says which of `names` are not available: "pipeline.workers names w7, w8,
// which are not attached; pipeline.workers names w9, which is drained (...)";
// empty: all are available.  key: the key that lists the names.
std::string AbsentText(const std::string& key,
                       const std::vector<std::string>& names,
                       const std::vector<Candidate>& candidates);

// The links among these workers over which `from` could not dial `to`.
std::vector<LinkMeasurement> RefusedLinks(const Measurements& measurements,
                                          const std::set<std::string>& names);
// The worker at an end of most of these links; of several, the last by name.
// links: at least one.
std::string MostRefused(const std::vector<LinkMeasurement>& links);
// "worker a cannot dial b (10.0.0.2:7401): connection refused"
std::string RefusedText(const LinkMeasurement& link);

struct PlacementVerdict {
  std::optional<Plan> plan;      // set: start now
  std::string cpu_capability;    // settled for `plan`; never "auto"
  std::string why;               // not set: names what the job waits for
  std::vector<JobId> waits_for;  // jobs on these workers; ascending
  // InvalidArgument, ResourceExhausted (memory) or FailedPrecondition (cores):
  // even the whole mesh, all idle, could not run it.
  absl::Status impossible;
  // The blocks that the plan skips, since their stage is lost.
  std::vector<int32_t> skipped_blocks;
  absl::Status undescribed;  // why the job's model cannot be described
};

// Takes seconds for a deep model on many workers.
using MakePlacement = std::function<PlacementVerdict()>;
// Calls `make` on another thread, unless `wanted` is gone by then, and `done`
// on the caller's.  Null: placements are made at once.
using PlaceLater =
    std::function<void(std::weak_ptr<const void> wanted, MakePlacement make,
                       std::function<void(PlacementVerdict)> done)>;

// Keeps the last placement while its inputs are the same.
class PlacementMemo {
 public:
  // Returns null while the placement is being made.
  //   key       a hash of all inputs but the slownesses
  //   slowness  each candidate's; small changes count as none
  //   inputs    called where a placement must be made; copies its inputs
  const PlacementVerdict* Get(uint64_t key, std::vector<double> slowness,
                              const PlaceLater& later,
                              absl::FunctionRef<MakePlacement()> inputs);

 private:
  std::optional<uint64_t> key_;
  std::vector<double> slowness_;
  // The work that is under way holds a weak pointer to it.  The work is dropped
  // when another placement has replaced this one.
  std::shared_ptr<std::optional<PlacementVerdict>> verdict_;
};
uint64_t PlacementKey(const std::vector<int64_t>& numbers);

// For infer.tolerate: returns the job without the stages whose workers
// (pipeline.workers) are absent: their layers go to the stage before, and their
// blocks are skipped.  Nothing where the job does not tolerate that, no worker
// is absent, or a lost stage holds more than whole blocks that can be skipped.
std::optional<JobSpec> WithoutLostStages(
    JobSpec spec, const ModelDescription& model,
    const std::function<bool(const std::string&)>& is_there);

// A worker gets no job with more compute threads than this for each core: they
// would only take turns.
constexpr int kMostThreadsACore = 4;

// candidates: sorted by id.  Calls DecideGroupPlacement() for a data-parallel
// job.
PlacementVerdict DecidePlacement(const JobSpec& spec,
                                 const ModelDescription& model,
                                 const std::vector<Candidate>& candidates,
                                 const Measurements& measurements = {});

// A mesh as placements that another thread makes see it.  Immutable.
class PlacementInputs {
 public:
  PlacementInputs(const std::vector<Candidate>& candidates,
                  const Measurements& measurements);
  PlacementInputs(const PlacementInputs&) = delete;
  PlacementInputs& operator=(const PlacementInputs&) = delete;

  // As Place(), for an attempt that begins now.  A group begins only with
  // enough members for its rule: rounds of fewer would all be void.
  PlacementVerdict Start(const JobSpec& spec) const;
  PlacementVerdict Place(const JobSpec& spec,
                         const ModelDescription& model) const {
    return DecidePlacement(spec, model, candidates_, measurements_);
  }

 private:
  const Measurements measurements_;
  std::vector<Member> members_;
  std::vector<Candidate> candidates_;  // point to members_
};

// Says why the worker can never run the job; empty: it can.  "it has 2 cores
// for 9 threads, and 4 a core is the most", where its cores are known; "it runs
// no scripts (--no-scripts)".
std::string UnfitText(const JobSpec& spec, const Member& member);
// Whether it is one of the workers that a job names; all are where it names
// none.
bool IsNamed(const std::vector<std::string>& names, const Member& member);
// Whether its CPU supports `capability`; every CPU supports "auto".
bool HasCapability(const std::string& capability, const Member& member);
// Whether its process runs at `capability`.  True for a process that did not
// report its own, and for "".
bool RunsAt(const std::string& capability, const Member& member);

// spec.cpu_capability; for "auto" the lowest of the plan's workers.  All of
// them run at one capability, or the bytes would depend on which worker holds
// which stage.
std::string SettleCapability(const JobSpec& spec, const Plan& plan,
                             const std::vector<Candidate>& candidates);

// Errors: InvalidArgument  `faults` names a worker that is none of these: a
// line for each, with the name that was probably meant
absl::Status CheckFaultsOf(const JobSpec& spec,
                           const std::vector<Candidate>& candidates);

// One sentence, by id, for each worker of the plan that has fewer cores than
// the job has threads.  Skips workers that do not report their cores.
std::vector<std::string> ThreadWarnings(
    const JobSpec& spec, const Plan& plan,
    const std::vector<Candidate>& candidates);

// One sentence: the threads that a worker of the plan (null: any) uses, its
// machine's cores, and the rate with as many threads as each worker can have
// cores.
//   rate  samples a second with that many threads; 0: not measured
std::string ThreadNote(const JobSpec& spec, const Plan* plan,
                       const std::vector<Candidate>& candidates,
                       absl::FunctionRef<double(int64_t threads)> rate);

// Other notes that a person should read before a job starts; `plan` may be
// null.
std::vector<std::string> PlacementNotes(
    const JobSpec& spec, const Plan* plan,
    const std::vector<Candidate>& candidates);

// "workers c, d get no stage: interleaved-1f1b gives each worker as many ..."
// when workers stay idle because the stages cannot be divided among all of
// them; else empty.  It skips workers that are unfit or not idle.
//
//   plan  made from spec and candidates
std::string DealingNote(const JobSpec& spec, const Plan& plan,
                        const std::vector<Candidate>& candidates);

}  // namespace paceline
