#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/job_keys.h"
#include "core/plan/cost_table.h"
#include "core/plan/cut.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/plan/search/policy.h"
#include "core/plan/why.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// The stages of one worker, and the micro-batches that each keeps.
struct Load {
  std::vector<int> stages;
  std::vector<LayerRange> ranges;
  std::vector<StageKeeps> keeps;
};

// Stages and their workers, as positions among the used workers.  Neighbours
// with the same layers are replicas of one stage.
struct Layout {
  std::vector<LayerRange> stages;      // one entry for each replica
  std::vector<int> worker_of;          // [stages], first used in order
  std::vector<double> shares;          // [stages]; empty: no replicas
  std::vector<PlannerWorker> workers;  // the used ones
  // Where workers were taken only for their place in the order: `workers`, then
  // the other available ones.
  std::vector<PlannerWorker> pool;
  bool exact = false;  // as Plan::exact
  std::string why;
};

// Whether the policy may give a stage to several workers.
bool MayGiveReplicas(const JobSpec& spec, const ModelDescription& model,
                     int64_t workers) {
  if (IsInference(spec)) return MayReplicate(spec.pipeline);
  return spec.pipeline.replicate == "allowed" && !IsDataParallel(spec) &&
         WhyNoReplicas(spec, model, workers).empty();
}

std::vector<StageOfPlan> StagesOf(const Layout& layout) {
  std::vector<StageOfPlan> stages;
  for (size_t i = 0; i < layout.stages.size(); ++i) {
    stages.push_back({layout.stages[i],
                      layout.workers[layout.worker_of[i]].worker,
                      layout.shares.empty() ? 1 : layout.shares[i]});
  }
  return stages;
}

std::vector<Load> LoadsOf(const Layout& layout,
                          const std::vector<StageKeeps>& keeps) {
  const std::vector<int> numbers = StageNumbers(StagesOf(layout));
  std::vector<Load> loads(layout.workers.size());
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    Load& load = loads[layout.worker_of[stage]];
    load.stages.push_back(numbers[stage]);
    load.ranges.push_back(layout.stages[stage]);
    load.keeps.push_back(keeps[stage]);
  }
  return loads;
}

// "stage 2", "stages 2..3", "stages 0, 4".
std::string StagesText(const std::vector<int>& stages) {
  if (stages.size() == 1) return absl::StrCat("stage ", stages.front());
  if (stages[1] != stages[0] + 1) {
    return absl::StrCat("stages ", absl::StrJoin(stages, ", "));
  }
  return absl::StrCat("stages ", stages.front(), "..", stages.back());
}

// `need` begins with the owner of the memory and ends before the number of
// bytes.
absl::Status CheckMemory(const PlannerWorker& worker, int64_t need_bytes,
                         absl::string_view need, absl::string_view advice) {
  if (worker.memory_bytes <= 0 || need_bytes <= worker.memory_bytes) {
    return absl::OkStatus();
  }
  return ResourceExhausted(
      "worker ", worker.name, " has ", BytesText(worker.memory_bytes), " (",
      worker.memory_bytes, " bytes) of memory, ", need, " ",
      BytesText(need_bytes), " (", need_bytes, " bytes): use ", advice);
}

std::string LayerCountsText(const std::vector<LayerRange>& ranges) {
  return Joined(ranges, "+", [](const LayerRange& range) {
    return range.last - range.first;
  });
}

// Keeps each range once, however many replicas hold it.
std::vector<LayerRange> Unreplicated(std::vector<LayerRange> ranges) {
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
  return ranges;
}

// Returns the share of its stage that worker `i` computes, as text; empty: all
// of it.
std::string ShareText(const Layout& layout, size_t i) {
  double mine = 0, sum = 0;
  for (size_t stage = 0; stage < layout.shares.size(); ++stage) {
    const auto own = static_cast<size_t>(
        std::find(layout.worker_of.begin(), layout.worker_of.end(), i) -
        layout.worker_of.begin());
    if (layout.stages[stage] != layout.stages[own]) continue;
    sum += layout.shares[stage];
    if (stage == own) mine = layout.shares[stage];
  }
  return mine < sum ? absl::StrFormat(", %.1f %% of it", 100 * mine / sum) : "";
}

// "equal: 7 layers in 3 stages (3+2+2) on 2 workers; fewer workers than
// stages: a holds stages 0..1 (1.5 MiB), b holds stage 2 (800.0 KiB)".
std::string Explain(const Layout& layout, const ModelDescription& model,
                    const std::vector<Load>& loads,
                    const std::vector<int64_t>& need_bytes) {
  const std::vector<LayerRange> stages = Unreplicated(layout.stages);
  std::string why = absl::StrCat(
      layout.why, ": ", Counted(model.layers.size(), "layer"), " in ",
      Counted(stages.size(), "stage"), " (", LayerCountsText(stages), ") on ",
      Counted(loads.size(), "worker"), ";");
  if (loads.size() < layout.stages.size()) {
    absl::StrAppend(&why, " fewer workers than stages:");
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    absl::StrAppend(&why, i == 0 ? " " : ", ", layout.workers[i].name,
                    " holds ", StagesText(loads[i].stages), " (",
                    BytesText(need_bytes[i]), ShareText(layout, i), ")");
  }
  return why;
}

// Deals stages out in the order of the workers.
Layout InOrder(StageCut cut, const std::vector<PlannerWorker>& workers) {
  Layout layout;
  layout.worker_of = SpreadStages(static_cast<int>(cut.stages.size()),
                                  static_cast<int>(workers.size()));
  layout.workers.assign(workers.begin(),
                        workers.begin() + layout.worker_of.back() + 1);
  layout.pool = workers;
  layout.stages = std::move(cut.stages);
  layout.why = std::move(cut.why);
  return layout;
}

std::vector<InputWorker> AsInputs(const std::vector<PlannerWorker>& workers) {
  std::vector<InputWorker> inputs;
  for (const PlannerWorker& worker : workers) {
    inputs.push_back(
        {worker.name, worker.machine_id, worker.memory_bytes, worker.slowness});
  }
  return inputs;
}

// Sets shares by speed, where a stage has several workers.
void ShareOut(const JobSpec& spec, const ModelDescription& model,
              const Measurements& measurements, Layout& layout) {
  const PlanInputs inputs =
      MakePlanInputs(spec, model, AsInputs(layout.workers), measurements);
  const CostTable table(inputs.problem);
  const std::vector<int>& holders = layout.worker_of;
  layout.shares.clear();
  for (size_t first = 0, last = 0; first < holders.size(); first = last) {
    const LayerRange layers = layout.stages[first];
    while (last < holders.size() && layout.stages[last] == layers) ++last;
    for (const double share :
         SharesFor(table, layers,
                   {holders.begin() + first, holders.begin() + last})) {
      layout.shares.push_back(share);
    }
  }
}

// Puts the job's own cuts on the workers that it names.  Without given shares,
// replicas of an inference job share by speed; in training that would change
// the order of sums.
absl::StatusOr<Layout> ByName(const JobSpec& spec,
                              const ModelDescription& model,
                              const std::vector<PlannerWorker>& workers,
                              const Measurements* measurements) {
  const std::vector<std::string>& names = spec.pipeline.workers;
  PACELINE_ASSIGN_OR_RETURN(StageCut cut, ChooseCut(spec.pipeline, model));
  Layout layout;
  layout.shares = spec.pipeline.shares;
  for (size_t stage = 0; stage < cut.stages.size(); ++stage) {
    const int32_t replicas = stage < spec.pipeline.replicas.size()
                                 ? spec.pipeline.replicas[stage]
                                 : 1;
    layout.stages.insert(layout.stages.end(), replicas, cut.stages[stage]);
  }
  if (names.size() != layout.stages.size()) {
    return InvalidArgument("pipeline.workers names ",
                           Counted(names.size(), "worker"), " for ",
                           Counted(layout.stages.size(), "stage"),
                           ", replicas counted: give one for each");
  }
  const bool by_speed = layout.shares.empty() && IsInference(spec) &&
                        !spec.pipeline.replicas.empty();
  if (layout.shares.empty()) layout.shares.assign(names.size(), 1);
  std::map<std::string, int> index;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(workers, name, &PlannerWorker::name);
    if (found == workers.end()) {
      return FailedPrecondition(
          "the job's stages go to worker ", name,
          ", which is not there: start it, or change pipeline.workers");
    }
    const auto [at, is_new] =
        index.emplace(name, static_cast<int>(layout.workers.size()));
    if (is_new) layout.workers.push_back(*found);
    layout.worker_of.push_back(at->second);
  }
  layout.why = "cuts, on the workers named";
  if (by_speed && measurements != nullptr) {
    ShareOut(spec, model, *measurements, layout);
  }
  return layout;
}

bool IsInterleaved(const JobSpec& spec) {
  return ScheduleTraitsOf(spec.pipeline.schedule).deals;
}

// The search takes time with the square of the workers, so with more workers
// than this the planner uses only the fastest.
constexpr size_t kMostPlanned = 64;

// Returns the `count` workers that take least time for the whole model, and
// after them the others, both in the order given.  Links do not count.
std::vector<PlannerWorker> Fastest(const JobSpec& spec,
                                   const ModelDescription& model,
                                   const std::vector<PlannerWorker>& workers,
                                   const Measurements& measurements,
                                   size_t count) {
  Measurements without_links;
  without_links.profiles = measurements.profiles;
  std::vector<std::pair<double, size_t>> order;  // seconds, index
  // All workers at once would fill a table of all pairs.
  for (size_t first = 0; first < workers.size(); first += kMostPlanned) {
    const size_t last = std::min(first + kMostPlanned, workers.size());
    const std::vector<PlannerWorker> some(workers.begin() + first,
                                          workers.begin() + last);
    const PlanInputs inputs =
        MakePlanInputs(spec, model, AsInputs(some), without_links);
    for (const Device& device : inputs.problem.devices) {
      order.emplace_back(std::accumulate(device.layer_seconds.begin(),
                                         device.layer_seconds.end(), 0.0),
                         order.size());
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> taken(workers.size(), false);
  for (size_t i = 0; i < count; ++i) taken[order[i].second] = true;
  std::vector<PlannerWorker> fastest;
  for (const bool among : {true, false}) {
    for (size_t d = 0; d < workers.size(); ++d) {
      if (taken[d] == among) fastest.push_back(workers[d]);
    }
  }
  return fastest;
}

// Deals stages out in turn.  `measurements` null: cut equally.
absl::StatusOr<Layout> Deal(const JobSpec& spec, const ModelDescription& model,
                            const std::vector<PlannerWorker>& workers,
                            const Measurements* measurements) {
  const PipelineSpec& pipeline = spec.pipeline;
  const int layers = static_cast<int>(model.layers.size());
  PACELINE_ASSIGN_OR_RETURN(StageCut cut, ChooseCut(pipeline, model));
  const bool choose = pipeline.stages == 0 && pipeline.cuts.empty();
  PACELINE_ASSIGN_OR_RETURN(
      const Dealing dealing,
      DealStages({.stages = choose ? 0 : static_cast<int>(cut.stages.size()),
                  .workers = static_cast<int>(workers.size()),
                  .layers = layers,
                  .micro_batches =
                      static_cast<int>(MicroBatchesOfAStep(spec.train))}));
  Layout layout;
  layout.pool = workers;
  if (measurements != nullptr && pipeline.cuts.empty() &&
      dealing.workers < std::ssize(workers)) {
    layout.pool = Fastest(spec, model, workers, *measurements, dealing.workers);
  }
  layout.workers.assign(layout.pool.begin(),
                        layout.pool.begin() + dealing.workers);
  for (int stage = 0; stage < dealing.stages; ++stage) {
    layout.worker_of.push_back(stage % dealing.workers);
  }
  if (!pipeline.cuts.empty()) {
    layout.stages = std::move(cut.stages);
    layout.why = "cuts, dealt out in turn";
    return layout;
  }
  if (measurements == nullptr) {
    PACELINE_ASSIGN_OR_RETURN(layout.stages,
                              CutEqually(layers, dealing.stages));
    layout.why = "equal, dealt out in turn";
    return layout;
  }
  const PlanInputs inputs =
      MakePlanInputs(spec, model, AsInputs(layout.workers), *measurements);
  layout.stages = CutForDealing(inputs.problem, dealing.stages);
  layout.why = absl::StrCat("shortest longest stage, dealt out in turn (",
                            inputs.source, ")");
  return layout;
}

// In a stream the pipeline never drains between batches, and every micro-batch
// makes an update.
void PlanAStream(PlanInputs& inputs) {
  inputs.problem.micro_batches = 0;
  for (size_t d = 0; d < inputs.facts.size(); ++d) {
    const DeviceFacts& facts = inputs.facts[d];
    std::vector<double>& seconds = inputs.problem.devices[d].layer_seconds;
    for (size_t i = 0; i < seconds.size(); ++i) {
      seconds[i] += facts.update_seconds[i] / facts.cpu_share;
    }
  }
}

absl::StatusOr<Layout> Solve(const JobSpec& spec, const ModelDescription& model,
                             const std::vector<PlannerWorker>& workers,
                             const Measurements& measurements) {
  PlanInputs inputs =
      MakePlanInputs(spec, model, AsInputs(workers), measurements);
  if (ScheduleTraitsOf(spec.pipeline.schedule).asynchronous) {
    PlanAStream(inputs);
  }
  const int layers = static_cast<int>(model.layers.size());
  const int stages = spec.pipeline.stages;
  // With fewer workers than stages the policy plans one stage for each worker.
  inputs.problem.stages =
      std::min({stages, static_cast<int>(workers.size()), layers});
  inputs.problem.replicas = MayGiveReplicas(spec, model, std::ssize(workers));
  PACELINE_ASSIGN_OR_RETURN(
      const PlanAnswer answer,
      SolvePlan(spec.pipeline.policy, inputs.problem,
                {.predicted = inputs.predicted.has_value()}));
  Layout layout;
  layout.why = absl::StrCat(PresentPolicy(spec.pipeline.policy), " (",
                            absl::StripSuffix(answer.why, "."), "; ",
                            inputs.source, ")");
  layout.exact = answer.exact;
  for (const PlacedStage& stage : answer.placement) {
    for (size_t i = 0; i < stage.devices.size(); ++i) {
      layout.stages.push_back(stage.layers);
      layout.worker_of.push_back(static_cast<int>(layout.workers.size()));
      layout.shares.push_back(stage.shares[i]);
      layout.workers.push_back(workers[stage.devices[i]]);
    }
  }
  if (stages <= std::ssize(answer.placement)) return layout;
  SharedStages shared = CutFurther(inputs.problem, answer.placement, stages);
  layout.stages = std::move(shared.stages);
  layout.worker_of = std::move(shared.holder_of);
  layout.shares.clear();
  return layout;
}

// Plans on the fastest workers only, unless replicas are allowed: these can
// make use of all workers.
absl::StatusOr<Layout> SolveOnFastest(const JobSpec& spec,
                                      const ModelDescription& model,
                                      const std::vector<PlannerWorker>& workers,
                                      const Measurements& measurements) {
  const size_t most =
      std::max(kMostPlanned, static_cast<size_t>(spec.pipeline.stages));
  const bool replicas = MayGiveReplicas(spec, model, std::ssize(workers));
  if (workers.size() > most && !replicas) {
    std::vector<PlannerWorker> fastest =
        Fastest(spec, model, workers, measurements, most);
    fastest.resize(most);
    absl::StatusOr<Layout> layout = Solve(spec, model, fastest, measurements);
    if (layout.ok()) {
      absl::StrAppend(&layout->why, " among the fastest ", most, " of ",
                      workers.size(), " workers");
      layout->exact = false;
    }
    // Workers that were left out may have more memory.
    if (!absl::IsResourceExhausted(layout.status())) return layout;
  }
  return Solve(spec, model, workers, measurements);
}

// Returns whether neighbouring stages share a worker that the policy has
// chosen.
bool IsShared(const JobSpec& spec, const ModelDescription& model,
              const std::vector<PlannerWorker>& workers) {
  const PipelineSpec& pipeline = spec.pipeline;
  return pipeline.workers.empty() && pipeline.cuts.empty() &&
         pipeline.policy != "equal" && !IsInterleaved(spec) &&
         !ScheduleTraitsOf(pipeline.schedule).asynchronous &&
         pipeline.stages > static_cast<int>(workers.size()) &&
         pipeline.stages <= static_cast<int>(model.layers.size());
}

// `measurements` null: returns a layout that takes no time to find.
absl::StatusOr<Layout> LayOut(const JobSpec& spec,
                              const ModelDescription& model,
                              const std::vector<PlannerWorker>& workers,
                              const Measurements* measurements) {
  const PipelineSpec& pipeline = spec.pipeline;
  if (!pipeline.workers.empty()) {
    return ByName(spec, model, workers, measurements);
  }
  // Each worker holds the whole model, so the policy has nothing to choose.
  if (IsDataParallel(spec)) measurements = nullptr;
  if (IsInterleaved(spec)) return Deal(spec, model, workers, measurements);
  const int layers = static_cast<int>(model.layers.size());
  const bool few = pipeline.stages > static_cast<int>(workers.size());
  if (measurements != nullptr &&
      (IsShared(spec, model, workers) ||
       (pipeline.cuts.empty() && !few && pipeline.stages <= layers))) {
    return SolveOnFastest(spec, model, workers, *measurements);
  }
  PACELINE_ASSIGN_OR_RETURN(StageCut cut, ChooseCut(pipeline, model));
  return InOrder(std::move(cut), workers);
}

absl::StatusOr<ScheduleBounds> BoundsOf(const JobSpec& spec, int stages,
                                        const std::vector<int>& worker_of) {
  return BoundsOfRun(
      {.name = spec.pipeline.schedule,
       .stages = stages,
       .micro_batches = static_cast<int>(MicroBatchesOfAStep(spec.train)),
       .training = !IsInference(spec),
       .worker_of = worker_of,
       .vertical_sync = spec.pipeline.vertical_sync});
}

int64_t NeedOf(const JobSpec& spec, const ModelDescription& model,
               const Load& load) {
  if (IsDataParallel(spec)) {
    return MemberBytes(spec, model, LeastMembers(spec.aggregation));
  }
  const Bytes bytes = EstimateBytes(model, spec.train, load.ranges, load.keeps,
                                    PrecisionOf(spec.precision));
  const bool reads_data = load.ranges.front().first == 0;
  return reads_data ? (bytes + DataBytes(spec)).count : bytes.count;
}

absl::Status CheckNeed(const JobSpec& spec, const PlannerWorker& worker,
                       const Load& load, int64_t need_bytes) {
  std::string need =
      absl::StrCat("its ", StagesText(load.stages), " would need");
  std::vector<std::string> remedies = {
      "more workers", "a smaller train.micro_batch",
      "a smaller infer.micro_batch", "other pipeline.cuts"};
  if (IsDataParallel(spec)) {
    need = absl::StrCat("as one of ",
                        Counted(LeastMembers(spec.aggregation), "member"),
                        " with the whole model it would need");
    remedies = {"a smaller train.micro_batch", "more aggregation.shards",
                "aggregation.codec bf16", "a pipeline"};
  }
  return CheckMemory(worker, need_bytes, need,
                     RemediesFor(spec, std::move(remedies)));
}

// Replaces `workers` by workers of the pool that hold the loads, where such
// exist.
void TakeFromPool(const std::vector<int64_t>& need_bytes, Layout& layout) {
  std::vector<double> sizes;
  for (const PlannerWorker& worker : layout.pool) {
    sizes.push_back(static_cast<double>(worker.memory_bytes));
  }
  const std::vector<int> places =
      PlacesFor({need_bytes.begin(), need_bytes.end()}, sizes);
  for (size_t i = 0; i < places.size(); ++i) {
    layout.workers[i] = layout.pool[places[i]];
  }
}

// Makes the plan, with the bytes that its workers need; `used` gets their
// number.
//
// Errors: ResourceExhausted  one of them has less memory than it needs
absl::StatusOr<Plan> Finish(const JobSpec& spec, const ModelDescription& model,
                            Layout layout, size_t& used) {
  std::vector<StageKeeps> keeps(layout.stages.size(), kInferenceKeeps);
  if (Unreplicated(layout.stages).size() == layout.stages.size()) {
    PACELINE_ASSIGN_OR_RETURN(
        const ScheduleBounds bounds,
        BoundsOf(spec, static_cast<int>(layout.stages.size()),
                 layout.worker_of));
    if (!IsInference(spec)) keeps = KeepsOfStages(bounds);
  } else if (!IsInference(spec)) {
    keeps = KeepsOfReplicas(spec, layout.stages);
  }
  const std::vector<Load> loads = LoadsOf(layout, keeps);
  used = loads.size();
  std::vector<int64_t> need_bytes;
  for (const Load& load : loads) {
    need_bytes.push_back(NeedOf(spec, model, load));
  }
  TakeFromPool(need_bytes, layout);
  for (size_t i = 0; i < loads.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(
        CheckNeed(spec, layout.workers[i], loads[i], need_bytes[i]));
  }
  Plan plan;
  plan.exact = layout.exact;
  plan.stages = StagesOf(layout);
  for (size_t i = 0; i < loads.size(); ++i) {
    plan.memory.push_back({layout.workers[i].worker, need_bytes[i]});
  }
  plan.why = Explain(layout, model, loads, need_bytes);
  return plan;
}

absl::Status CheckRequest(const JobSpec& spec, const ModelDescription& model,
                          const std::vector<PlannerWorker>& workers) {
  PACELINE_RETURN_IF_ERROR(ChooseCut(spec.pipeline, model).status());
  if (!workers.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "no workers to place stages on: start one, or wait until one is back");
}

// Returns the plan of a layout that takes no time to find.
absl::StatusOr<Plan> CheapPlan(const JobSpec& spec,
                               const ModelDescription& model,
                               const std::vector<PlannerWorker>& workers,
                               size_t& used) {
  PACELINE_ASSIGN_OR_RETURN(Layout layout,
                            LayOut(spec, model, workers, nullptr));
  return Finish(spec, model, std::move(layout), used);
}

// Returns the policy's plan, or equal stages where the policy's do not fit.
//   used  the number of workers that hold stages in a plan that does not fit
absl::StatusOr<Plan> PlanOn(const JobSpec& spec, const ModelDescription& model,
                            const std::vector<PlannerWorker>& workers,
                            const Measurements& measurements, size_t& used) {
  const absl::StatusOr<Layout> layout =
      LayOut(spec, model, workers, &measurements);
  absl::StatusOr<Plan> plan =
      layout.ok() ? Finish(spec, model, *layout, used) : layout.status();
  if (!absl::IsResourceExhausted(plan.status())) return plan;
  // When equal stages do not fit either, their error names a worker and the
  // bytes that it lacks.
  size_t by_equal = used;
  absl::StatusOr<Plan> equal = CheapPlan(spec, model, workers, by_equal);
  if (layout.ok() && !equal.ok()) return plan;
  used = by_equal;
  return equal;
}

int64_t SizeOf(const PlannerWorker& worker) {
  return worker.memory_bytes > 0 ? worker.memory_bytes : Bytes::kMost;
}

// Returns whether `workers` together hold the least that all layers take: on
// one worker, with one micro-batch in flight.
bool HaveRoom(const JobSpec& spec, const ModelDescription& model,
              const std::vector<PlannerWorker>& workers) {
  Bytes room;
  for (const PlannerWorker& worker : workers) room += SizeOf(worker);
  const LayerRange all = {0, static_cast<int>(model.layers.size())};
  const StageKeeps least = IsInference(spec) ? kInferenceKeeps : StageKeeps{1};
  return NeedOf(spec, model, {{0}, {all}, {least}}) <= room.count;
}

// Drops the workers with the least memory, of equal ones the last; adds their
// names to `dropped`.
void KeepLargest(size_t count, std::vector<PlannerWorker>& workers,
                 std::vector<std::string>& dropped) {
  while (workers.size() > count) {
    const auto least = std::min_element(
        workers.rbegin(), workers.rend(),
        [](const auto& a, const auto& b) { return SizeOf(a) < SizeOf(b); });
    dropped.push_back(least->name);
    workers.erase(std::next(least).base());
  }
}

// "worker small has 24.1 MiB (...) of memory, its stage 1 would need 35.0 MiB".
std::string WithoutAdvice(const absl::Status& refusal) {
  return std::string(
      refusal.message().substr(0, refusal.message().find(": use ")));
}

// Returns `refusal`, and the plan that would fit if the job did not say how to
// cut.
absl::Status WithWhatFits(const absl::Status& refusal, JobSpec spec,
                          const ModelDescription& model,
                          const std::vector<PlannerWorker>& workers,
                          const Measurements& measurements) {
  PipelineSpec& pipeline = spec.pipeline;
  if (!absl::IsResourceExhausted(refusal) || IsDataParallel(spec) ||
      (pipeline.stages == 0 && pipeline.cuts.empty())) {
    return refusal;
  }
  pipeline.stages = 0;
  pipeline.cuts.clear();
  pipeline.workers.clear();
  pipeline.replicas.clear();
  pipeline.shares.clear();
  const absl::StatusOr<Plan> plan =
      MakePlan(spec, model, workers, measurements);
  if (!plan.ok()) return refusal;
  std::vector<LayerRange> ranges;
  for (const StageOfPlan& stage : plan->stages) ranges.push_back(stage.layers);
  return ResourceExhausted(
      refusal.message(),
      "; without pipeline.stages, cuts and workers this would fit: ",
      Counted(Unreplicated(ranges).size(), "stage"), " of ",
      LayerCountsText(Unreplicated(ranges)), " layers");
}

}  // namespace

std::vector<StageKeeps> KeepsOfReplicas(const JobSpec& spec,
                                        const std::vector<LayerRange>& stages) {
  const auto all = static_cast<int>(MicroBatchesOfAStep(spec.train));
  std::vector<StageKeeps> keeps;
  for (const LayerRange& range : stages) {
    const auto last = std::find(stages.rbegin(), stages.rend(), range);
    const auto later = static_cast<int>(last - stages.rbegin());
    const auto replicas =
        static_cast<int>(std::count(stages.begin(), stages.end(), range));
    const bool keeps_all = ScheduleTraitsOf(spec.pipeline.schedule).keeps_all;
    const int warm = (later + replicas - 1) / replicas;
    keeps.push_back(
        {.micro_batches = keeps_all ? all : std::min(all, warm + 1)});
  }
  return keeps;
}

std::string WhyNoReplicas(const JobSpec& spec, const ModelDescription& model,
                          int64_t workers) {
  const int64_t micro_batches = MicroBatchesOfAStep(spec.train);
  if (micro_batches < workers) {
    return absl::StrCat("a step has ", Counted(micro_batches, "micro-batch"),
                        " for ", Counted(workers, "worker"));
  }
  if (ScheduleTraitsOf(spec.pipeline.schedule).only_trains) {
    return absl::StrCat("the schedule ", spec.pipeline.schedule,
                        " gives no stage several workers: 1f1b and gpipe do");
  }
  const auto shared = SharedParameters(model);
  if (!shared.empty()) {
    return absl::StrCat("layers share ", shared.front().name,
                        ": a policy gives their stages one worker each");
  }
  if (spec.model.name == kScriptModel && HasBuffers(model)) {
    return "the script moves buffers of its own, on which replicas would not "
           "agree";
  }
  return "";
}

absl::StatusOr<Plan> MakePlan(const JobSpec& spec,
                              const ModelDescription& model,
                              const std::vector<PlannerWorker>& workers,
                              const Measurements& measurements) {
  PACELINE_RETURN_IF_ERROR(CheckRequest(spec, model, workers));
  std::vector<PlannerWorker> left = workers;
  std::vector<std::string> dropped;
  absl::Status refusal;
  while (true) {
    size_t used = left.size();
    absl::StatusOr<Plan> plan = PlanOn(spec, model, left, measurements, used);
    if (plan.ok() && !dropped.empty()) {
      absl::StrAppend(&plan->why, "; planned without ", FewNames(dropped), ": ",
                      WithoutAdvice(refusal));
      plan->exact = false;
    }
    if (plan.ok()) return plan;
    refusal.Update(plan.status());
    // A smaller number of workers may divide the micro-batches.
    if (!absl::IsResourceExhausted(IsInterleaved(spec) ? refusal
                                                       : plan.status()) ||
        !spec.pipeline.workers.empty() || left.size() == 1 ||
        !HaveRoom(spec, model, left)) {
      break;
    }
    // No choice of this many workers fits, or an inexact search has missed it.
    // Try fewer workers, which share the stages.  Each try takes a search, so
    // one try drops an eighth of the workers.
    const size_t less = std::max<size_t>(1, used / 8);
    KeepLargest(left.size() > used ? used : used - less, left, dropped);
  }
  return WithWhatFits(refusal, spec, model, workers, measurements);
}

absl::Status CheckPlannable(const JobSpec& spec, const ModelDescription& model,
                            const std::vector<PlannerWorker>& workers,
                            const Measurements& measurements) {
  PACELINE_RETURN_IF_ERROR(CheckRequest(spec, model, workers));
  size_t used = 0;
  const absl::Status cheap = CheapPlan(spec, model, workers, used).status();
  if (!absl::IsResourceExhausted(cheap)) return cheap;
  // Unequal stages may fit.
  return MakePlan(spec, model, workers, measurements).status();
}

}  // namespace paceline
