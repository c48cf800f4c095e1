#include "coordinator/place/placement.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/place/group_placement.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/cluster/registration.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "core/job/aggregation.h"
#include "core/plan/inputs.h"
#include "core/schedule/schedule.h"
#include "core/transfer/checksum.h"

namespace paceline {
namespace {

// Names what occupies the workers that are not idle; where all are idle, says
// that other workers are needed.
std::string Ahead(const std::set<JobId>& jobs, bool measuring) {
  constexpr char kProfile[] = "a profile that is being taken";
  if (jobs.empty()) return measuring ? kProfile : "other workers";
  return absl::StrCat(JobsText(jobs), measuring ? " and " : "",
                      measuring ? kProfile : "");
}

// Says how a batch is split that its micro-batches do not divide; empty: they
// do.
std::string UnevenBatch(const JobSpec& spec) {
  const TrainSpec& train = spec.train;
  const int64_t rest = train.batch % train.micro_batch;
  if (IsInference(spec) || rest == 0) return "";
  return absl::StrCat(
      "the last micro-batch of a batch has ", rest, " of ", train.batch,
      " samples, the others ", train.micro_batch,
      ScheduleTraitsOf(spec.pipeline.schedule).asynchronous
          ? ", and each is an update: a train.micro_batch that divides "
            "train.batch makes all updates alike"
          : ": a train.micro_batch that divides train.batch fills the pipeline "
            "better; the gradient is the same");
}

size_t WorkersWanted(const JobSpec& spec) {
  if (spec.pipeline.workers.empty()) return std::max(1, spec.pipeline.stages);
  return std::set<std::string>(spec.pipeline.workers.begin(),
                               spec.pipeline.workers.end())
      .size();
}

bool ForbidsScript(const JobSpec& spec, const Member& member) {
  return !spec.model.file.empty() && member.registration.no_scripts();
}

// Why none of the candidates is fit.  candidates: at least one.
absl::Status AllUnfit(const JobSpec& spec, std::vector<Candidate> candidates) {
  std::erase_if(candidates, [&spec](const Candidate& each) {
    return ForbidsScript(spec, *each.member);
  });
  if (candidates.empty()) {
    return FailedPrecondition(
        "model.file is a script, and every worker that the job may have "
        "forbids scripts (--no-scripts)");
  }
  const v1::Registration* most = &candidates[0].member->registration;
  for (const Candidate& candidate : candidates) {
    const v1::Registration& has = candidate.member->registration;
    if (has.cores() > most->cores()) most = &has;
  }
  return FailedPrecondition(
      "threads is ", spec.threads, ", but worker ", most->name(), " has ",
      Counted(most->cores(), "core"),
      candidates.size() == 1 ? "" : ", more than any other", ": at most ",
      kMostThreadsACore,
      " threads a core; lower it with --set "
      "threads=",
      most->cores());
}

std::vector<const Member*> Placed(const Plan& plan,
                                  const std::vector<Candidate>& candidates) {
  std::set<WorkerId> ids;
  for (const StageOfPlan& stage : plan.stages) ids.insert(stage.worker);
  std::vector<const Member*> placed;
  for (const Candidate& candidate : candidates) {
    if (ids.contains(candidate.member->id)) placed.push_back(candidate.member);
  }
  return placed;
}

// Names what a job waits for while no candidate takes new work.
std::string NoneWilling(const std::vector<Candidate>& all) {
  if (all.empty()) return "a worker: none is attached";
  const bool drained =
      absl::c_all_of(all, [](const Candidate& each) { return each.drained; });
  if (!drained) return "a worker";
  return absl::StrCat("a worker: all ", all.size(),
                      " attached are drained; paceline node undrain NAME takes "
                      "one back");
}

// Returns the links that the plan needs and that cannot be dialled.  A stage
// dials the next one.  In training it dials the one before for the gradients,
// its replicas, the first worker of the first stage for the gate, and stages
// that share a weight with it.
std::vector<LinkMeasurement> RefusedWays(
    const JobSpec& spec, const ModelDescription& model, const Plan& plan,
    const std::vector<Candidate>& candidates,
    const Measurements& measurements) {
  std::map<std::string, WorkerId> ids;
  std::set<std::string> names;
  for (const Member* member : Placed(plan, candidates)) {
    ids[member->registration.name()] = member->id;
    names.insert(member->registration.name());
  }
  const std::vector<TieCost> ties = TiesOf(model);
  const auto has = [](LayerRange range, int layer) {
    return layer >= range.first && layer < range.last;
  };
  const auto share = [&](LayerRange a, LayerRange b) {
    return absl::c_any_of(ties, [&](const TieCost& tie) {
      return (has(a, tie.owner) && has(b, tie.user)) ||
             (has(b, tie.owner) && has(a, tie.user));
    });
  };
  const std::vector<int> numbers = StageNumbers(plan.stages);
  const auto needs = [&](size_t i, size_t j) {
    const int from = numbers[i], to = numbers[j];
    return to == from + 1 ||
           (!IsInference(spec) &&
            (from == to + 1 || from == to || j == 0 ||
             share(plan.stages[i].layers, plan.stages[j].layers)));
  };
  std::vector<LinkMeasurement> ways = RefusedLinks(measurements, names);
  std::erase_if(ways, [&](const LinkMeasurement& link) {
    for (size_t i = 0; i < plan.stages.size(); ++i) {
      for (size_t j = 0; j < plan.stages.size(); ++j) {
        if (plan.stages[i].worker == ids[link.from] &&
            plan.stages[j].worker == ids[link.to] && needs(i, j)) {
          return false;
        }
      }
    }
    return true;
  });
  return ways;
}

// Says why bf16 costs time instead of saving it; empty: it does not.
std::string SlowBf16(const JobSpec& spec, const Plan& plan,
                     const std::vector<Candidate>& candidates) {
  const std::string native = HighestUseful("bf16");
  if (spec.precision != "bf16" ||
      SettleCapability(spec, plan, candidates) == native) {
    return "";
  }
  std::vector<std::string> without;
  for (const Member* member : Placed(plan, candidates)) {
    const v1::Registration& r = member->registration;
    if (CapabilityRank(r.cpu_capability()) < CapabilityRank(native)) {
      without.push_back(r.name());
    }
  }
  const std::string why =
      without.empty()
          ? absl::StrCat("cpu_capability is ", spec.cpu_capability)
          : absl::StrCat(absl::StrJoin(without, ", "), " cannot do it");
  return absl::StrCat("precision bf16 without bf16 instructions (", why,
                      "): values are rounded to bf16 and computed with in "
                      "float32, slower than precision fp32");
}

// Has a worker with the data hold the first stage: of the exchanges of two
// places, the one with the fewest changes.  Where no worker's memory allows
// that, only workers with the data hold stages.
//
// Errors: NotFound  says what the job waits for; others as MakePlan()
absl::StatusOr<Plan> PlanWithData(const JobSpec& spec,
                                  const ModelDescription& model,
                                  const std::vector<Candidate>& capable,
                                  const std::vector<PlannerWorker>& idle,
                                  const Measurements& measurements) {
  std::set<WorkerId> no_data;
  for (const Candidate& candidate : capable) {
    if (candidate.no_data) no_data.insert(candidate.member->id);
  }
  if (no_data.size() == capable.size()) {
    return NotFound("a worker that has the data");
  }
  absl::StatusOr<Plan> plan = MakePlan(spec, model, idle, measurements);
  if (!plan.ok() || !no_data.contains(plan->stages.front().worker)) return plan;
  if (!spec.pipeline.workers.empty()) {
    return NotFound(
        "the data: pipeline.workers names a worker for the first stage that "
        "does not have it");
  }
  const WorkerId first = plan->stages.front().worker;
  const auto holds = [&plan](const PlannerWorker& worker) {
    return BytesOn(*plan, worker.worker) > 0;
  };
  const auto room = [&idle](WorkerId worker, int64_t bytes) {
    return absl::c_any_of(idle, [&](const auto& each) {
      return each.worker == worker &&
             (each.memory_bytes == 0 || each.memory_bytes >= bytes);
    });
  };
  std::vector<PlannerWorker> with_data = idle;
  std::erase_if(with_data, [&](const PlannerWorker& worker) {
    return no_data.contains(worker.worker);
  });
  absl::c_stable_partition(with_data, holds);
  for (const PlannerWorker& other : with_data) {
    if (!room(other.worker, BytesOn(*plan, first)) ||
        !room(first, BytesOn(*plan, other.worker))) {
      continue;
    }
    const auto exchange = [&](WorkerId& worker) {
      worker = worker == first          ? other.worker
               : worker == other.worker ? first
                                        : worker;
    };
    for (StageOfPlan& stage : plan->stages) exchange(stage.worker);
    for (WorkerBytes& bytes : plan->memory) exchange(bytes.worker);
    return plan;
  }
  return MakePlan(spec, model, with_data, measurements);
}

// Plans again without a worker where the plan needs a link that cannot be
// dialled, unless the job names its workers or needs as many.
//
// Errors: NotFound  says what the job waits for; others as MakePlan()
absl::StatusOr<Plan> PlanOverLinks(const JobSpec& spec,
                                   const ModelDescription& model,
                                   const std::vector<Candidate>& capable,
                                   std::vector<PlannerWorker> idle,
                                   const Measurements& measurements) {
  const PipelineSpec& pipeline = spec.pipeline;
  const size_t least = std::max(WorkersWanted(spec), pipeline.cuts.size() + 1);
  absl::Status waits_for;
  while (true) {
    absl::StatusOr<Plan> plan =
        PlanWithData(spec, model, capable, idle, measurements);
    if (!plan.ok()) return waits_for.ok() ? plan.status() : waits_for;
    const std::vector<LinkMeasurement> refused =
        RefusedWays(spec, model, *plan, capable, measurements);
    if (refused.empty()) return plan;
    if (waits_for.ok()) {
      waits_for = NotFound("a link: ", RefusedText(refused.front()));
    }
    std::erase_if(idle, [name = MostRefused(refused)](const auto& worker) {
      return worker.name == name;
    });
    if (!pipeline.workers.empty() || idle.size() < least) return waits_for;
  }
}

// Checks that the whole mesh, all idle, could run the job.
absl::Status CheckPossible(const JobSpec& spec, const ModelDescription& model,
                           const std::vector<Candidate>& capable,
                           const Measurements& measurements) {
  std::vector<PlannerWorker> all;
  for (const Candidate& candidate : capable) {
    all.push_back(ToPlanner(*candidate.member));
  }
  const absl::Status status = CheckPlannable(spec, model, all, measurements);
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

}  // namespace

PlacementInputs::PlacementInputs(const std::vector<Candidate>& candidates,
                                 const Measurements& measurements)
    : measurements_(measurements), candidates_(candidates) {
  members_.reserve(candidates.size());
  for (Candidate& each : candidates_) {
    each.member = &members_.emplace_back(*each.member);
  }
}

const PlacementVerdict* PlacementMemo::Get(
    uint64_t key, std::vector<double> slowness, const PlaceLater& later,
    absl::FunctionRef<MakePlacement()> inputs) {
  constexpr double kAlike = 1.05;  // measurements vary by this much
  const bool is_same =
      key_ == key &&
      std::equal(slowness.begin(), slowness.end(), slowness_.begin(),
                 slowness_.end(), [](double a, double b) {
                   return a <= kAlike * b && b <= kAlike * a;
                 });
  if (!is_same) {
    key_ = key;
    slowness_ = std::move(slowness);
    verdict_ = std::make_shared<std::optional<PlacementVerdict>>();
    if (later == nullptr) {
      *verdict_ = inputs()();
    } else {
      later(verdict_, inputs(),
            [wanted = std::weak_ptr(verdict_)](PlacementVerdict placed) {
              if (const auto verdict = wanted.lock()) {
                *verdict = std::move(placed);
              }
            });
    }
  }
  return verdict_->has_value() ? &**verdict_ : nullptr;
}

uint64_t PlacementKey(const std::vector<int64_t>& numbers) {
  return HashBytes({reinterpret_cast<const uint8_t*>(numbers.data()),
                    numbers.size() * sizeof(int64_t)});
}

std::vector<LinkMeasurement> RefusedLinks(const Measurements& measurements,
                                          const std::set<std::string>& names) {
  std::vector<LinkMeasurement> refused;
  for (const auto& [ends, link] : measurements.links) {
    if (!link.error.empty() && names.contains(link.from) &&
        names.contains(link.to)) {
      refused.push_back(link);
    }
  }
  return refused;
}

std::string MostRefused(const std::vector<LinkMeasurement>& links) {
  std::map<std::string, int> count;
  for (const LinkMeasurement& link : links) {
    ++count[link.from];
    ++count[link.to];
  }
  return absl::c_max_element(count,
                             [](const auto& a, const auto& b) {
                               return std::pair(a.second, a.first) <
                                      std::pair(b.second, b.first);
                             })
      ->first;
}

std::string RefusedText(const LinkMeasurement& link) {
  return absl::StrCat("worker ", link.from, " ", link.error);
}

std::string UnfitText(const JobSpec& spec, const Member& member) {
  if (ForbidsScript(spec, member)) return "it runs no scripts (--no-scripts)";
  const int64_t cores = member.registration.cores();  // 0: not known
  if (cores == 0 || spec.threads <= kMostThreadsACore * cores) return "";
  return absl::StrCat("it has ", Counted(cores, "core"), " for ",
                      Counted(spec.threads, "thread"), ", and ",
                      kMostThreadsACore, " a core is the most");
}

bool IsNamed(const std::vector<std::string>& names, const Member& member) {
  return names.empty() ||
         absl::c_linear_search(names, member.registration.name());
}

bool HasCapability(const std::string& capability, const Member& member) {
  return capability == "auto" ||
         CapabilityRank(member.registration.cpu_capability()) >=
             CapabilityRank(capability);
}

bool RunsAt(const std::string& capability, const Member& member) {
  const std::string& runs_at = member.registration.started_for();
  return capability.empty() || runs_at.empty() || runs_at == capability;
}

std::string SettleCapability(const JobSpec& spec, const Plan& plan,
                             const std::vector<Candidate>& candidates) {
  if (spec.cpu_capability != "auto") return spec.cpu_capability;
  std::string lowest = HighestUseful(spec.precision);
  for (const Member* member : Placed(plan, candidates)) {
    const std::string& has = member->registration.cpu_capability();
    if (CapabilityRank(has) < CapabilityRank(lowest)) lowest = has;
  }
  return lowest;
}

namespace {

// The blocks of these layers; nothing unless they are whole blocks that can be
// skipped.
std::optional<std::set<int32_t>> BlocksOf(const ModelDescription& model,
                                          LayerRange layers) {
  std::set<int32_t> blocks;
  for (int i = layers.first; i < layers.last; ++i) {
    const int block = model.layers[i].block;
    if (!WhyNotSkipped(model, block).empty()) return std::nullopt;
    blocks.insert(block);
  }
  // Nothing where another stage has the rest of a block.
  for (int i = 0; i < static_cast<int>(model.layers.size()); ++i) {
    const bool inside = i >= layers.first && i < layers.last;
    if (!inside && blocks.contains(model.layers[i].block)) return std::nullopt;
  }
  return blocks;
}

}  // namespace

std::optional<JobSpec> WithoutLostStages(
    JobSpec spec, const ModelDescription& model,
    const std::function<bool(const std::string&)>& is_there) {
  PipelineSpec& pipeline = spec.pipeline;
  const std::vector<int32_t> cuts = std::exchange(pipeline.cuts, {});
  const std::vector<std::string> workers = std::exchange(pipeline.workers, {});
  if (!IsInference(spec) || spec.infer.tolerate != "skip" ||
      workers.size() != cuts.size() + 1 || !pipeline.replicas.empty()) {
    return std::nullopt;
  }
  const auto layers = static_cast<int32_t>(model.layers.size());
  for (size_t stage = 0; stage < workers.size(); ++stage) {
    const int32_t first = stage == 0 ? 0 : cuts[stage - 1];
    if (is_there(workers[stage])) {
      pipeline.workers.push_back(workers[stage]);
      if (stage > 0) pipeline.cuts.push_back(first);
      continue;
    }
    const auto blocks =
        BlocksOf(model, {first, stage < cuts.size() ? cuts[stage] : layers});
    // No stage can take over the first layers, where samples come in.
    if (stage == 0 || !blocks.has_value()) return std::nullopt;
    for (const int32_t block : *blocks) {
      spec.faults.push_back({.worker = "", .kind = kSkipStage, .block = block});
    }
  }
  if (pipeline.cuts.size() == cuts.size()) return std::nullopt;
  pipeline.stages = static_cast<int32_t>(pipeline.workers.size());
  return spec;
}

PlacementVerdict DecidePlacement(const JobSpec& spec,
                                 const ModelDescription& model,
                                 const std::vector<Candidate>& all,
                                 const Measurements& measurements) {
  PlacementVerdict verdict;
  const auto waits_for = [&verdict](const auto&... what) {
    verdict.why = absl::StrCat("waits for ", what...);
    return verdict;
  };
  std::vector<Candidate> candidates = all;
  std::erase_if(candidates, [](const Candidate& each) {
    return each.drained || each.unfit;
  });
  if (candidates.empty()) return waits_for(NoneWilling(all));
  if (IsDataParallel(spec)) {
    return DecideGroupPlacement(spec, model, all, measurements);
  }
  const std::string absent =
      AbsentText("pipeline.workers", spec.pipeline.workers, all);
  if (!absent.empty()) return waits_for("workers: ", absent);
  std::vector<Candidate> capable = candidates;
  std::erase_if(capable, [&spec](const Candidate& candidate) {
    return !IsNamed(spec.pipeline.workers, *candidate.member) ||
           !HasCapability(spec.cpu_capability, *candidate.member);
  });
  if (capable.empty()) {
    return waits_for("a worker with ", spec.cpu_capability, ": none of the ",
                     candidates.size(), " attached has it");
  }
  const absl::Status all_unfit = AllUnfit(spec, capable);
  std::erase_if(capable, [&spec](const Candidate& candidate) {
    return !UnfitText(spec, *candidate.member).empty();
  });
  verdict.impossible = capable.empty()
                           ? all_unfit
                           : CheckPossible(spec, model, capable, measurements);
  if (!verdict.impossible.ok()) {
    return waits_for("other workers: ", verdict.impossible.message());
  }
  std::vector<PlannerWorker> idle;
  std::set<JobId> ahead;
  bool measuring = false;
  for (const Candidate& candidate : capable) {
    if (candidate.job.assigned()) ahead.insert(candidate.job);
    measuring = measuring || candidate.measuring;
    if (!IsIdle(candidate)) continue;
    idle.push_back(ToPlanner(*candidate.member));
    idle.back().slowness = candidate.slowness;
  }
  verdict.waits_for.assign(ahead.begin(), ahead.end());
  const size_t wanted = std::min(WorkersWanted(spec), capable.size());
  if (idle.size() < wanted) {
    return waits_for(Ahead(ahead, measuring), ": ", idle.size(), " of the ",
                     Counted(wanted, "worker"), " it needs ",
                     idle.size() == 1 ? "is" : "are", " free");
  }
  const absl::StatusOr<Plan> plan =
      PlanOverLinks(spec, model, capable, std::move(idle), measurements);
  const absl::string_view lacks = plan.status().message();
  if (absl::IsNotFound(plan.status())) return waits_for(lacks);
  // The whole mesh could run it: the plan lacks busy workers, or workers with
  // the data.
  if (!plan.ok()) return waits_for(Ahead(ahead, measuring), ": ", lacks);
  verdict.cpu_capability = SettleCapability(spec, *plan, candidates);
  verdict.plan = *plan;
  return verdict;
}

absl::Status CheckFaultsOf(const JobSpec& spec,
                           const std::vector<Candidate>& candidates) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) {
    names.push_back(candidate.member->registration.name());
  }
  return ToStatus(CheckFaultWorkers(spec, names), "\n");
}

std::vector<std::string> ThreadWarnings(
    const JobSpec& spec, const Plan& plan,
    const std::vector<Candidate>& candidates) {
  std::vector<std::string> warnings;
  for (const Member* member : Placed(plan, candidates)) {
    const v1::Registration& has = member->registration;
    if (has.cores() == 0 || spec.threads <= has.cores()) continue;
    warnings.push_back(absl::StrCat(
        spec.threads, " compute threads share the ", has.cores(),
        has.cores() == 1 ? " core" : " cores", " of worker ", has.name(),
        ": they take turns, and the whole pipeline waits for it"));
  }
  return warnings;
}

std::string ThreadNote(const JobSpec& spec, const Plan* plan,
                       const std::vector<Candidate>& candidates,
                       absl::FunctionRef<double(int64_t threads)> rate) {
  std::vector<const Member*> members;
  for (const Candidate& each : candidates) members.push_back(each.member);
  if (plan != nullptr) members = Placed(*plan, candidates);
  std::map<std::string, std::vector<int64_t>> cores;
  for (const Member* member : members) {
    const v1::Registration& has = member->registration;
    if (has.cores() == 0) continue;
    cores[HostOf(has)].push_back(has.cores());
  }
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0, sharing = 0;
  int64_t own = least;  // cores that every worker has to itself
  for (const auto& [host, of_workers] : cores) {
    const int64_t workers = std::ssize(of_workers);
    least = std::min(least, of_workers[0]);
    most = std::max(most, of_workers[0]);
    sharing = std::max(sharing, workers);
    own = std::min(own, std::max<int64_t>(1, of_workers[0] / workers));
  }
  std::string text =
      absl::StrCat(Counted(spec.threads, "compute thread"), " a worker; ");
  constexpr char kRounds[] = ", and another number may round differently";
  if (cores.empty()) {
    return absl::StrCat(text, "--set threads=N changes that", kRounds);
  }
  absl::StrAppend(
      &text, cores.size() == 1 ? "the machine has " : "machines have ",
      least == most ? "" : absl::StrCat(least, " to "), Counted(most, "core"),
      sharing > 1 ? absl::StrCat(", which up to ", sharing, " workers share")
                  : "");
  if (own == spec.threads) {
    return absl::StrCat(text, ": more threads would only take turns");
  }
  absl::StrAppend(
      &text, own > spec.threads ? ": " : ": they take turns, and all wait; ",
      "--set threads=", own, " gives ");
  if (own < spec.threads) return absl::StrCat(text, "each a core", kRounds);
  const double faster = rate(own);
  return absl::StrCat(
      text,
      faster > 0 ? absl::StrFormat("%.3g samples/s as measured (with %d: %.3g)",
                                   faster, spec.threads, rate(spec.threads))
                 : absl::StrFormat("at most %.3g times the speed",
                                   static_cast<double>(own) / spec.threads),
      kRounds);
}

std::vector<std::string> PlacementNotes(
    const JobSpec& spec, const Plan* plan,
    const std::vector<Candidate>& candidates) {
  std::vector<std::string> notes;
  const auto add = [&notes](std::string note) {
    if (!note.empty()) notes.push_back(std::move(note));
  };
  if (IsInference(spec) && spec.model.weights.empty() &&
      spec.model.file.empty()) {
    notes.push_back(
        "predictions of weights that are drawn from the seed: "
        "--set model.weights=FILE takes trained ones");
  }
  if (IsInference(spec) && !spec.model.weights.empty() &&
      spec.model.reset_head) {
    notes.push_back(
        "model.reset_head draws the head from the seed: without training, its "
        "predictions mean nothing");
  }
  add(UnevenBatch(spec));
  if (!IsInference(spec)) {
    for (std::string& note :
         WalkNotes(spec.train, TrainSamplesOf(spec.data), spec.train.steps)) {
      add(std::move(note));
    }
  }
  for (const Candidate& candidate : candidates) {
    const std::string unfit = UnfitText(spec, *candidate.member);
    if (unfit.empty()) continue;
    notes.push_back(absl::StrCat("worker ",
                                 candidate.member->registration.name(),
                                 " gets no stage: ", unfit));
  }
  if (plan == nullptr) return notes;
  if (const std::string absent = AbsentText(
          "aggregation.workers", spec.aggregation.workers, candidates);
      !absent.empty()) {
    notes.push_back(absl::StrCat(
        absent, ": the job begins without, and takes in who joins later"));
  }
  add(SlowBf16(spec, *plan, candidates));
  std::map<WorkerId, int> stages;
  for (const StageOfPlan& stage : plan->stages) ++stages[stage.worker];
  if (stages.size() < plan->stages.size()) {
    notes.push_back(absl::StrCat(
        Counted(plan->stages.size(), "stage"), " on ",
        Counted(stages.size(), "worker"),
        ScheduleTraitsOf(spec.pipeline.schedule).deals
            ? ": dealt out in turn"
            : ": neighbouring stages share a worker and compute in turn"));
  }
  // Kinds of CPU, each with the first worker that has it.
  std::map<std::string, std::string> kinds;
  for (const Member* member : Placed(*plan, candidates)) {
    const v1::Registration& r = member->registration;
    kinds.emplace(absl::StrCat(r.cpu_model(), " (", r.architecture(), ", ",
                               r.cpu_capability(), ")"),
                  r.name());
  }
  if (kinds.size() > 1) {
    notes.push_back(absl::StrCat(
        "unlike CPUs: ",
        absl::StrJoin(kinds, "; ",
                      [](std::string* out, const auto& kind) {
                        absl::StrAppend(out, kind.second, " has ", kind.first);
                      }),
        ": the last bits of the result may depend on who holds which stage; "
        "all compute with ",
        SettleCapability(spec, *plan, candidates)));
  }
  return notes;
}

PlannerWorker ToPlanner(const Member& member) {
  return {member.id, member.registration.name(),
          member.registration.memory_bytes(), member.registration.machine_id()};
}

std::string AbsentText(const std::string& key,
                       const std::vector<std::string>& names,
                       const std::vector<Candidate>& candidates) {
  std::set<std::string> missing(names.begin(), names.end());
  std::set<std::string> drained, unfit;
  for (const Candidate& candidate : candidates) {
    const std::string& name = candidate.member->registration.name();
    if (missing.erase(name) == 0) continue;
    if (candidate.drained) {
      drained.insert(name);
    } else if (candidate.unfit) {
      unfit.insert(name);
    }
  }
  std::vector<std::string> parts;
  const auto add = [&](const std::set<std::string>& of, const char* what) {
    if (of.empty()) return;
    parts.push_back(
        absl::StrCat(key, " names ", absl::StrJoin(of, ", "),
                     of.size() == 1 ? ", which is " : ", which are ", what));
  };
  add(missing, "not attached");
  add(unfit, "attached and cannot be used now");
  add(drained, "drained (paceline node undrain NAME takes one back)");
  return absl::StrJoin(parts, "; ");
}

std::string DealingNote(const JobSpec& spec, const Plan& plan,
                        const std::vector<Candidate>& candidates) {
  const PipelineSpec& pipeline = spec.pipeline;
  if (!ScheduleTraitsOf(pipeline.schedule).deals || !pipeline.workers.empty()) {
    return "";
  }
  std::set<WorkerId> used;
  for (const StageOfPlan& stage : plan.stages) used.insert(stage.worker);
  std::vector<std::string> idle;
  for (const Candidate& candidate : candidates) {
    if (used.contains(candidate.member->id) || !IsIdle(candidate) ||
        !UnfitText(spec, *candidate.member).empty() ||
        !HasCapability(spec.cpu_capability, *candidate.member)) {
      continue;
    }
    idle.push_back(candidate.member->registration.name());
  }
  if (idle.empty()) return "";
  const size_t all = used.size() + idle.size();
  const std::string whom = absl::StrCat(
      idle.size() == 1 ? "worker " : "workers ", absl::StrJoin(idle, ", "),
      idle.size() == 1 ? " gets" : " get", " no stage: ");
  if (pipeline.stages == 0 && pipeline.cuts.empty()) {
    return absl::StrCat(
        whom, "interleaved-1f1b wants two layers for each worker, and the ",
        "micro-batches of a batch (train.batch / train.micro_batch, ",
        spec.train.batch / spec.train.micro_batch,
        ") to be a multiple of the workers");
  }
  const int layers = plan.stages.back().layers.last;
  if (2 * static_cast<int>(all) > layers) {
    return absl::StrCat(whom,
                        "interleaved-1f1b gives each worker at least two "
                        "stages, and the model's ",
                        layers, " layers are too few for that on ", all,
                        " workers");
  }
  return absl::StrCat(
      whom, "interleaved-1f1b gives each worker as many stages, at least two, ",
      "and ", plan.stages.size(),
      plan.stages.size() == 1 ? " stage does" : " stages do",
      " not divide so among ", all, " workers; --set pipeline.stages=", 2 * all,
      " or another multiple of ", all, " has all of them work");
}

PlacementVerdict PlacementInputs::Start(const JobSpec& spec) const {
  PlacementVerdict verdict;
  const absl::StatusOr<ModelDescription> model = Describe(spec);
  verdict.undescribed = model.status();
  if (!model.ok()) return verdict;
  verdict = Place(spec, *model);
  if (!verdict.plan.has_value() || !IsDataParallel(spec)) return verdict;
  const absl::Status rule =
      CheckMembersOfRule(spec, std::ssize(verdict.plan->stages));
  if (rule.ok()) return verdict;
  verdict.plan.reset();
  verdict.why = absl::StrCat("waits for more workers: ", rule.message());
  return verdict;
}

}  // namespace paceline
