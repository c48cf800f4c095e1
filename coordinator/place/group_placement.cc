#include "coordinator/place/group_placement.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "coordinator/jobs/job_text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/plan/memory.h"
#include "core/simulate/estimate.h"

namespace paceline {
namespace {

// The job on one worker.
JobSpec Alone(const JobSpec& spec) {
  JobSpec alone = spec;
  alone.pipeline = PipelineSpec();
  alone.pipeline.stages = 1;
  alone.pipeline.policy = "equal";
  alone.pipeline.schedule = "gpipe";
  return alone;
}

int64_t Needed(const JobSpec& spec) {
  return std::max<int64_t>(1, spec.aggregation.min_parts);
}

// Estimates a run on that worker alone.
std::optional<RunEstimate> EstimateOn(const JobSpec& spec,
                                      const ModelDescription& model,
                                      const Member& member,
                                      const Measurements& measurements) {
  const v1::Registration& r = member.registration;
  const LayerRange all = {0, static_cast<int>(model.layers.size())};
  absl::StatusOr<RunEstimate> estimate =
      EstimateRun(Alone(spec), model, {{all, 0, 1}},
                  {{r.name(), r.machine_id(), r.memory_bytes()}}, measurements);
  if (!estimate.ok() || estimate->stage_seconds.empty()) return std::nullopt;
  return *std::move(estimate);
}

// Names what the job waits for while only `free` workers can run it.  absent:
// from AbsentText().
std::string WaitText(const JobSpec& spec, size_t free,
                     const std::set<JobId>& ahead, bool measuring,
                     const std::vector<std::string>& unfit,
                     const std::string& absent) {
  const int64_t needed = Needed(spec);
  std::string text = absl::StrCat(
      "waits for workers: a round needs ", Counted(needed, "member"), ", and ",
      free,
      free == 1 ? " worker that can be one is" : " workers that can be one are",
      " free");
  if (!absent.empty()) absl::StrAppend(&text, "; ", absent);
  if (!ahead.empty()) {
    absl::StrAppend(&text, "; ", JobsText(ahead),
                    ahead.size() == 1 ? " has others" : " have others");
  }
  if (measuring) absl::StrAppend(&text, "; a profile is being taken on others");
  for (const std::string& why : unfit) absl::StrAppend(&text, "; ", why);
  return text;
}

absl::Status CheckMemory(const Member& worker, int64_t members, int64_t need,
                         const std::string& when) {
  const int64_t has = worker.registration.memory_bytes();  // 0: not known
  if (has <= 0 || need <= has) return absl::OkStatus();
  return ResourceExhausted(
      "worker ", worker.registration.name(), " has ", BytesText(has), " (", has,
      " bytes) of memory, and would need ", BytesText(need), " (", need,
      " bytes) as one of ", Counted(members, "member"), when);
}

// Takes the first workers, as many as the job wants.  While one has too little
// memory for a group of that size, drops the one with the least: the next one
// takes its place, or the others need less.
void TakeMembers(const JobSpec& spec, const ModelDescription& model,
                 std::vector<const Member*>& free,
                 std::vector<std::string>& unfit) {
  while (!free.empty()) {
    const int64_t most = spec.aggregation.members;  // 0: all
    const int64_t members =
        most > 0 ? std::min(most, std::ssize(free)) : std::ssize(free);
    const auto least = std::min_element(
        free.begin(), free.begin() + members,
        [](const Member* a, const Member* b) {
          const auto known = [](const Member* member) {
            const int64_t bytes = member->registration.memory_bytes();
            return bytes > 0 ? bytes : std::numeric_limits<int64_t>::max();
          };
          return known(a) < known(b);
        });
    const absl::Status room =
        CheckMemory(**least, members, MemberBytes(spec, model, members), "");
    if (room.ok()) return free.resize(members);
    unfit.push_back(std::string(room.message()));
    free.erase(least);
  }
}

// While some link cannot be dialled, drops the member with the most such links:
// each member of a round dials all others.
void LeaveOutRefused(const Measurements& measurements,
                     std::vector<const Member*>& free,
                     std::vector<std::string>& unfit) {
  std::set<std::string> names;
  for (const Member* member : free) names.insert(member->registration.name());
  std::vector<LinkMeasurement> refused = RefusedLinks(measurements, names);
  while (!refused.empty()) {
    const std::string name = MostRefused(refused);
    const auto is_its = [&name](const LinkMeasurement& link) {
      return link.from == name || link.to == name;
    };
    unfit.push_back(RefusedText(*absl::c_find_if(refused, is_its)));
    std::erase_if(refused, is_its);
    std::erase_if(free, [&name](const Member* member) {
      return member->registration.name() == name;
    });
  }
}

}  // namespace

absl::Status CheckRoom(const JobSpec& spec, const ModelDescription& model,
                       const std::vector<const Member*>& members,
                       const Member& joiner) {
  const int64_t all = std::ssize(members) + 1;
  PACELINE_RETURN_IF_ERROR(CheckMemory(joiner, all,
                                       JoinerBytes(spec, model, all),
                                       ", the state that it fetches included"));
  // A joiner may ask any member for the state, of which that member makes a
  // copy.
  const int64_t need =
      (MemberBytes(spec, model, all) + Bytes(GroupStateBytes(spec, model)))
          .count;
  for (const Member* member : members) {
    PACELINE_RETURN_IF_ERROR(CheckMemory(
        *member, all, need,
        absl::StrCat(", if ", joiner.registration.name(),
                     " joined, the copy that it fetches included")));
  }
  return absl::OkStatus();
}

absl::Status CheckJoiner(const JobSpec& spec, const ModelDescription& model,
                         const std::string& cpu_capability,
                         const Member& worker,
                         const Measurements& measurements) {
  const v1::Registration& has = worker.registration;
  if (!IsNamed(spec.aggregation.workers, worker)) {
    return FailedPrecondition("worker ", has.name(),
                              " is not among aggregation.workers");
  }
  if (!HasCapability(cpu_capability, worker)) {
    return FailedPrecondition("worker ", has.name(), " has ",
                              has.cpu_capability(),
                              ", and the job computes with ", cpu_capability);
  }
  if (const std::string unfit = UnfitText(spec, worker); !unfit.empty()) {
    return FailedPrecondition("worker ", has.name(), " is no member: ", unfit);
  }
  return CheckPlannable(Alone(spec), model, {ToPlanner(worker)}, measurements);
}

std::map<WorkerId, double> SharesOf(const JobSpec& spec,
                                    const ModelDescription& model,
                                    const std::vector<const Member*>& workers,
                                    const Measurements& measurements) {
  const AggregationSpec& group = spec.aggregation;
  std::map<WorkerId, double> shares;
  for (const Member* worker : workers) {
    double share = 0;
    if (group.shares.empty()) {
      const auto estimate = EstimateOn(spec, model, *worker, measurements);
      if (estimate.has_value() && estimate->measured &&
          estimate->stage_seconds[0] > 0) {
        share = 1 / estimate->stage_seconds[0];
      }
    } else {
      const auto named =
          absl::c_find(group.workers, worker->registration.name());
      const size_t place = named - group.workers.begin();
      if (place < group.shares.size()) share = group.shares[place];
    }
    if (share > 0) shares[worker->id] = share;
  }
  // Then each member has its own samples, in equal numbers.
  const bool apart = spec.data.distribution != "iid";
  if (!apart && shares.size() == workers.size()) return shares;
  for (const Member* worker : workers) shares[worker->id] = 1;
  return shares;
}

double SlowestMicroBatch(const JobSpec& spec, const ModelDescription& model,
                         const std::vector<const Member*>& workers,
                         const Measurements& measurements) {
  double slowest = 0;
  for (const Member* worker : workers) {
    const auto estimate = EstimateOn(spec, model, *worker, measurements);
    if (!estimate.has_value()) return 0;
    slowest = std::max(slowest, estimate->stage_seconds[0]);
  }
  return slowest;
}

PlacementVerdict DecideGroupPlacement(const JobSpec& spec,
                                      const ModelDescription& model,
                                      const std::vector<Candidate>& candidates,
                                      const Measurements& measurements) {
  PlacementVerdict verdict;
  std::vector<const Member*> free;
  std::vector<std::string> unfit;
  absl::Status last_unfit;
  size_t fit = 0;
  std::set<JobId> ahead;
  bool measuring = false;
  for (const Candidate& candidate : candidates) {
    if (candidate.drained || candidate.unfit ||
        !IsNamed(spec.aggregation.workers, *candidate.member))
      continue;
    const absl::Status can = CheckJoiner(spec, model, spec.cpu_capability,
                                         *candidate.member, measurements);
    if (!can.ok()) {
      unfit.push_back(std::string(can.message()));
      last_unfit = can;
      continue;
    }
    ++fit;
    if (candidate.job.assigned()) ahead.insert(candidate.job);
    measuring = measuring || candidate.measuring;
    if (IsIdle(candidate)) free.push_back(candidate.member);
  }
  verdict.waits_for.assign(ahead.begin(), ahead.end());
  if (fit == 0 && !last_unfit.ok()) {
    verdict.impossible = last_unfit;
    verdict.why =
        absl::StrCat("waits for other workers: ", last_unfit.message());
    return verdict;
  }
  LeaveOutRefused(measurements, free, unfit);
  TakeMembers(spec, model, free, unfit);
  if (std::ssize(free) < Needed(spec)) {
    verdict.why = WaitText(spec, free.size(), ahead, measuring, unfit,
                           AbsentText("aggregation.workers",
                                      spec.aggregation.workers, candidates));
    return verdict;
  }
  const std::map<WorkerId, double> shares =
      SharesOf(spec, model, free, measurements);
  Plan plan;
  const LayerRange all = {0, static_cast<int>(model.layers.size())};
  for (const Member* member : free) {
    plan.stages.push_back({all, member->id, shares.at(member->id)});
    plan.memory.push_back(
        {member->id, MemberBytes(spec, model, std::ssize(free))});
  }
  verdict.cpu_capability = SettleCapability(spec, plan, candidates);
  verdict.plan = std::move(plan);
  return verdict;
}

}  // namespace paceline
