// The faults of a job's file.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "core/job/aggregation.h"
#include "core/model/description.h"
#include "tests/core/round/world/world_state.h"

namespace paceline::round_world {

namespace {

// Where the job does not say how many there are: those that it speaks of, and
// others to go on with.
std::vector<std::string> WorkersOf(const JobSpec& job) {
  std::vector<std::string> workers = job.aggregation.workers;
  const auto add = [&workers](const std::string& name) {
    if (std::find(workers.begin(), workers.end(), name) == workers.end()) {
      workers.push_back(name);
    }
  };
  int64_t members = KnownMembers(job.aggregation);
  if (members == 0) {
    members = 5;
    for (const FaultSpec& fault : job.faults) add(fault.worker);
  }
  for (int i = 1; std::ssize(workers) < members; ++i) add(absl::StrCat("w", i));
  return workers;
}

}  // namespace

// Before it computes its part of a step, once.
bool World::Misbehave(Process& process, int64_t step) {
  const std::pair<int64_t, int64_t> id = {process.attempt, step};
  if (process.misbehaved >= id) return false;
  process.misbehaved = id;
  const StepFaults faults = process.plan.At(step);
  if (faults.hang > absl::ZeroDuration()) {
    FreezeFor(process, faults.hang / absl::Microseconds(1));
  }
  process.dies_committing =
      process.dies_committing || process.plan.KillsServer(step, "committing");
  if (!faults.kill) return false;
  Trace(process, " dies while it computes");
  Kill(process, false);
  return true;
}

// As a worker's RoundDriver sees the phases, before it tells the core.
bool World::KilledInPhase(Process& process, const RoundMessage& message) {
  const auto* const part = std::get_if<PartOffer>(&message.body);
  const auto* const hold = std::get_if<Hold>(&message.body);
  if (!options_.script.has_value() || (part == nullptr && hold == nullptr)) {
    return false;
  }
  const int64_t step = part != nullptr ? part->step : hold->step;
  const char* const phase = part != nullptr ? "gathering" : "spreading";
  if (step != process.member->next() ||
      process.member->phase() != RoundMember::Phase::kRunning ||
      !process.plan.KillsServer(step, phase)) {
    return false;
  }
  Trace(process, " dies ", phase);
  Kill(process, false);
  return true;
}

absl::StatusOr<JobScript> ScriptOf(const JobSpec& job) {
  if (!IsDataParallel(job) || IsGossip(job)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "aggregation.mode is '", job.aggregation.mode,
        "': rounds are simulated, which that mode has none of; set it to "
        "rolling or central"));
  }
  JobScript script;
  script.workers = WorkersOf(job);
  if (script.workers.size() > kMostWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job has ", script.workers.size(),
                     " members, the simulation at most ", kMostWorkers,
                     ": lower aggregation.members"));
  }
  const std::vector<SpecProblem> problems =
      CheckFaultWorkers(job, script.workers);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(problems.front().path, ": ", problems.front().why));
  }
  script.faults = job.faults;
  // Members sum no bytes here: the model is large enough for any shards.
  ModelDescription large;
  large.layers.resize(1);
  large.layers[0].parameters = {{"weight", {1 << 20}}};
  script.shards = ShardsOf(job, large, std::ssize(script.workers));
  script.central = job.aggregation.mode == "central";
  script.min_parts = job.aggregation.min_parts;
  script.deadline = absl::Seconds(job.aggregation.deadline);
  for (const FaultSpec& fault : job.faults) {
    script.steps = std::max(script.steps, fault.step + fault.steps + 10);
  }
  script.steps = std::max<int64_t>(script.steps, 20);
  // With epochs it is not known how many there are.
  if (job.train.steps > 0) {
    script.steps = std::min(script.steps, job.train.steps);
  }
  return script;
}

}  // namespace paceline::round_world
