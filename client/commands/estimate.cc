#include "client/commands/estimate.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "core/base/status_macros.h"
#include "core/model/aggregation.h"
#include "core/model/description.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

constexpr double kShortSeconds = 10;  // where whole seconds say too little

absl::StatusOr<Placements> CutLocally(const JobSpec& spec, int layers) {
  const PipelineSpec& pipeline = spec.pipeline;
  const std::vector<int> cuts(pipeline.cuts.begin(), pipeline.cuts.end());
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<LayerRange> ranges,
      cuts.empty() ? CutEqually(layers, std::max(pipeline.stages, 1))
                   : CutAt(layers, cuts));
  Placements stages;
  for (size_t s = 0; s < ranges.size(); ++s) {
    v1::StagePlacement& stage = *stages.Add();
    stage.set_stage(static_cast<int>(s));
    stage.set_first_layer(ranges[s].first);
    stage.set_last_layer(ranges[s].last);
    stage.set_share(1);
    stage.set_worker_id(-1);
  }
  return stages;
}

// Members of a data-parallel job, as far as one knows: those that the
// coordinator chose, or the job names.  0: not known.
int64_t MembersOf(const JobSpec& spec, const Placements& stages) {
  const bool placed = !stages.empty() && stages[0].worker_id() >= 0;
  return placed ? stages.size() : KnownMembers(spec.aggregation);
}

// Index of each stage's worker, counted in the order of the stages; where
// nobody holds a stage yet, it counts as on a worker of its own.
std::vector<int> WorkerOf(const Placements& stages) {
  std::map<int64_t, int> seen;
  std::vector<int> worker_of;
  int next = 0;
  for (const v1::StagePlacement& stage : stages) {
    if (stage.worker_id() < 0) {
      worker_of.push_back(next++);
      continue;
    }
    const auto [entry, is_new] = seen.emplace(stage.worker_id(), next);
    if (is_new) ++next;
    worker_of.push_back(entry->second);
  }
  return worker_of;
}

absl::StatusOr<std::vector<StageKeeps>> KeepsOf(const JobSpec& spec,
                                                const Placements& stages) {
  if (IsInference(spec) || IsDataParallel(spec)) {
    return std::vector<StageKeeps>(stages.size(), kInferenceKeeps);
  }
  ScheduleRequest request;
  request.name = spec.pipeline.schedule;
  request.stages = static_cast<int>(stages.size());
  request.micro_batches = static_cast<int>(
      (spec.train.batch + spec.train.micro_batch - 1) / spec.train.micro_batch);
  request.worker_of = WorkerOf(stages);
  request.vertical_sync = spec.pipeline.vertical_sync;
  PACELINE_ASSIGN_OR_RETURN(const ScheduleBounds bounds, BoundsOfRun(request));
  return KeepsOfStages(bounds);
}

StageEstimate EstimateStage(const JobSpec& spec, const ModelDescription& model,
                            const v1::StagePlacement& placement,
                            const StageKeeps& keeps) {
  StageEstimate stage;
  stage.placement = placement;
  stage.first_layer = model.layers[placement.first_layer()].name;
  stage.last_layer = model.layers[placement.last_layer() - 1].name;
  for (int l = placement.first_layer(); l < placement.last_layer(); ++l) {
    const Layer& layer = model.layers[l];
    for (const Parameter& parameter : layer.parameters) {
      stage.parameters += NumElements(parameter.shape);
    }
    stage.parameter_bytes += layer.parameter_bytes;
    stage.forward_flops += layer.forward_flops;
  }
  stage.memory_bytes = EstimateBytes(
      model, spec.train, {{placement.first_layer(), placement.last_layer()}},
      {keeps}, FindPrecision(spec.precision).value_or(Precision::kF32));
  return stage;
}

}  // namespace

absl::StatusOr<JobEstimate> EstimateJob(const JobSpec& spec, Placements stages,
                                        std::optional<v1::RunEstimate> run) {
  PACELINE_ASSIGN_OR_RETURN(
      const ModelDescription model,
      DescribeModel(spec.model, spec.data.shape, spec.data.classes));
  const int layers = static_cast<int>(model.layers.size());
  JobEstimate estimate;
  estimate.chosen = !stages.empty() || spec.pipeline.stages > 0 ||
                    !spec.pipeline.cuts.empty() || IsDataParallel(spec);
  estimate.run = std::move(run);
  estimate.steps = spec.train.steps;
  if (stages.empty()) {
    PACELINE_ASSIGN_OR_RETURN(stages, CutLocally(spec, layers));
  }
  for (const v1::StagePlacement& stage : stages) {
    if (stage.first_layer() < 0 || stage.first_layer() >= stage.last_layer() ||
        stage.last_layer() > layers) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the coordinator placed layers ", stage.first_layer(), " to ",
          stage.last_layer(), " of a model that has ", layers,
          " here: are client and coordinator of the same version?"));
    }
  }
  PACELINE_ASSIGN_OR_RETURN(const std::vector<StageKeeps> keeps,
                            KeepsOf(spec, stages));
  estimate.layers = layers;
  const int64_t members = MembersOf(spec, stages);
  if (IsDataParallel(spec) && (members > 0 || spec.aggregation.shards > 0)) {
    estimate.shards = ShardsOf(spec, model, members);
  }
  for (int s = 0; s < stages.size(); ++s) {
    estimate.stages.push_back(EstimateStage(spec, model, stages[s], keeps[s]));
    if (IsDataParallel(spec)) {
      estimate.stages.back().memory_bytes =
          MemberBytes(spec, model, std::max<int64_t>(1, members));
    }
    if (s > 0 && stages[s].stage() == stages[s - 1].stage())
      continue;  // a replica
    estimate.parameters += estimate.stages.back().parameters;
    estimate.parameter_bytes += estimate.stages.back().parameter_bytes;
  }
  return estimate;
}

Document ToDocument(const JobEstimate& estimate) {
  Document stages = Document::array();
  for (const StageEstimate& stage : estimate.stages) {
    const v1::StagePlacement& placement = stage.placement;
    const bool placed = placement.worker_id() >= 0;
    stages.push_back(Document{
        {"stage", placement.stage()},
        {"first_layer", placement.first_layer()},
        {"last_layer", placement.last_layer()},
        {"share", placement.share()},
        {"worker_id", placed ? Document(placement.worker_id()) : Document()},
        {"worker", OrNull(placement.worker_name())},
        {"parameters", stage.parameters},
        {"parameter_bytes", stage.parameter_bytes},
        {"memory_bytes", stage.memory_bytes},
        {"forward_flops", stage.forward_flops}});
  }
  return Document{
      {"dry_run", Document(true)},
      {"layers", estimate.layers},
      {"parameters", estimate.parameters},
      {"parameter_bytes", estimate.parameter_bytes},
      {"shards", OrNull(estimate.shards)},
      {"stages", std::move(stages)},
      {"stages_chosen", Document(estimate.chosen)},
      {"estimate",
       estimate.run.has_value() ? MessageDocument(*estimate.run) : Document()}};
}

std::vector<std::pair<std::string, std::string>> RunFacts(
    const v1::RunEstimate& run, int64_t steps) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"expected step", run.step_seconds() > 0
                            ? HumanSeconds(run.step_seconds())
                            : std::string()},
      {"samples/s", HumanRate(run.samples_per_second())},
      {"bubbles", absl::StrFormat("%.1f %%", 100 * run.bubble_share())},
      {"from", run.source()}};
  if (steps > 0) {
    const double all = run.step_seconds() * static_cast<double>(steps);
    facts.insert(facts.begin() + 1,
                 {absl::StrCat("all ", steps, " steps"),
                  all < kShortSeconds ? HumanSeconds(all)
                                      : HumanDuration(absl::Seconds(all))});
  }
  return facts;
}

std::string RenderEstimate(const JobEstimate& estimate) {
  Table table({{"stage", Table::Align::kRight},
               {"worker"},
               {"layers"},
               {"from"},
               {"to"},
               {"parameters", Table::Align::kRight},
               {"memory", Table::Align::kRight},
               {"flop/sample", Table::Align::kRight}});
  for (const StageEstimate& stage : estimate.stages) {
    const v1::StagePlacement& placement = stage.placement;
    table.AddRow(
        {absl::StrCat(placement.stage()),
         placement.worker_id() < 0 ? "-" : placement.worker_name(),
         absl::StrCat(placement.first_layer(), "-", placement.last_layer() - 1),
         stage.first_layer, stage.last_layer,
         HumanCount(static_cast<double>(stage.parameters)),
         HumanBytes(static_cast<double>(stage.memory_bytes)),
         HumanCount(stage.forward_flops)});
  }
  const std::string run =
      estimate.run.has_value()
          ? RenderFacts(RunFacts(*estimate.run, estimate.steps))
          : "";
  return absl::StrCat(
      table.Render(),
      estimate.chosen ? ""
                      : "How many stages is decided once there are workers; "
                        "this is one.\n",
      "\n", run, estimate.layers, " layers, ",
      HumanCount(static_cast<double>(estimate.parameters)), " parameters, ",
      HumanBytes(static_cast<double>(estimate.parameter_bytes)),
      estimate.shards > 0 ? absl::StrCat(", shards: ", estimate.shards) : "",
      "\n");
}

}  // namespace paceline
