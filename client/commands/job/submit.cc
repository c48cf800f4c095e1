#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/commands/job/job.h"
#include "client/render/report.h"
#include "client/values/document.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/batch.h"
#include "core/job/aggregation.h"
#include "core/job/job_check.h"
#include "core/job/job_model.h"
#include "core/model/description.h"
#include "core/optim/optimizer.h"
#include "core/plan/inputs.h"
#include "core/plan/measurement.h"
#include "core/plan/memory.h"
#include "core/plan/plan.h"
#include "core/rpc/convert/job_convert.h"
#include "core/schedule/route.h"
#include "core/schedule/schedule.h"
#include "core/simulate/estimate.h"

namespace paceline {

namespace {

constexpr double kShortSeconds = 10;  // where whole seconds say too little

struct StageEstimate {
  v1::StagePlacement placement;
  std::string first_layer;  // names
  std::string last_layer;   // the last one inside
  int64_t parameters = 0;
  int64_t trained = 0;  // of these parameters
  int64_t parameter_bytes = 0;
  int64_t memory_bytes = 0;  // parameters, gradients, optimizer, activations
  double forward_flops = 0;  // a sample
};

struct JobEstimate {
  int layers = 0;
  int64_t parameters = 0;
  int64_t trained = 0;  // of these; 0: inference
  int64_t parameter_bytes = 0;
  std::vector<StageEstimate> stages;
  bool chosen = true;  // false: how many stages is decided once there are
                       // workers; these are as for one
  std::optional<v1::RunEstimate> run;  // nothing while there is no worker
  // Only a data-parallel job has shards; 0: none, or not known before there are
  // workers.
  int32_t shards = 0;
  std::string shards_why = {};  // of the mesh's choice
};

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

// Index of each stage's worker, counted in the order of the stages.  A stage
// that no worker holds yet counts as on a worker of its own.
std::vector<int> WorkerOf(const Placements& stages) {
  std::map<int64_t, int> seen;
  std::vector<int> worker_of;
  for (const v1::StagePlacement& stage : stages) {
    const int64_t alone = -1 - std::ssize(worker_of);
    const int64_t holder = stage.worker_id() < 0 ? alone : stage.worker_id();
    const auto next = static_cast<int>(seen.size());
    worker_of.push_back(seen.emplace(holder, next).first->second);
  }
  return worker_of;
}

absl::StatusOr<std::vector<StageKeeps>> KeepsOf(const JobSpec& spec,
                                                const Placements& stages) {
  if (IsInference(spec) || IsDataParallel(spec)) {
    return std::vector<StageKeeps>(stages.size(), kInferenceKeeps);
  }
  std::vector<LayerRange> ranges;
  for (const v1::StagePlacement& stage : stages) {
    ranges.push_back({stage.first_layer(), stage.last_layer()});
  }
  if (std::adjacent_find(ranges.begin(), ranges.end()) != ranges.end()) {
    return KeepsOfReplicas(spec, ranges);
  }
  PACELINE_ASSIGN_OR_RETURN(
      const ScheduleBounds bounds,
      BoundsOfRun(
          {.name = spec.pipeline.schedule,
           .stages = stages.size(),
           .micro_batches = static_cast<int>(MicroBatchesOfAStep(spec.train)),
           .worker_of = WorkerOf(stages),
           .vertical_sync = spec.pipeline.vertical_sync}));
  return KeepsOfStages(bounds);
}

StageEstimate StageEstimateOf(const JobSpec& spec,
                              const ModelDescription& model,
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
    stage.trained += TrainableElements(layer);
    stage.parameter_bytes += layer.parameter_bytes;
    stage.forward_flops += layer.forward_flops;
  }
  stage.memory_bytes = EstimateBytes(
      model, spec.train, {{placement.first_layer(), placement.last_layer()}},
      {keeps}, PrecisionOf(spec.precision));
  if (placement.first_layer() == 0) stage.memory_bytes += DataBytes(spec);
  return stage;
}

// stages: as the coordinator would place them; empty while it has no worker:
// then the cuts are made here, and no worker holds the stages.
// Errors: InvalidArgument  the spec is wrong
absl::StatusOr<JobEstimate> EstimateJob(
    const JobSpec& spec, const v1::SubmitJobResponse& submission) {
  Placements stages = submission.stages();
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model, DescribeModel(spec));
  const int layers = static_cast<int>(model.layers.size());
  JobEstimate estimate;
  estimate.chosen = !stages.empty() || spec.pipeline.stages > 0 ||
                    !spec.pipeline.cuts.empty() || IsDataParallel(spec);
  if (submission.has_estimate()) estimate.run = submission.estimate();
  if (stages.empty()) {
    PACELINE_ASSIGN_OR_RETURN(stages, CutLocally(spec, layers));
  }
  for (const v1::StagePlacement& stage : stages) {
    if (stage.first_layer() < 0 || stage.first_layer() >= stage.last_layer() ||
        stage.last_layer() > layers) {
      return InvalidArgument(
          "the coordinator placed layers ", stage.first_layer(), " to ",
          stage.last_layer(), " of a model that has ", layers,
          " here: are client and coordinator of the same version?");
    }
  }
  PACELINE_ASSIGN_OR_RETURN(const std::vector<StageKeeps> keeps,
                            KeepsOf(spec, stages));
  estimate.layers = layers;
  const int64_t members = MembersOf(spec, stages);
  if (IsDataParallel(spec) && (members > 0 || spec.aggregation.shards > 0)) {
    estimate.shards = ShardsOf(spec, model, members);
    if (estimate.run.has_value() && estimate.run->shards() > 0) {
      estimate.shards = estimate.run->shards();
      estimate.shards_why = estimate.run->shards_why();
    }
  }
  for (int s = 0; s < stages.size(); ++s) {
    estimate.stages.push_back(
        StageEstimateOf(spec, model, stages[s], keeps[s]));
    if (IsDataParallel(spec)) {
      JobSpec settled = spec;
      settled.aggregation.shards = estimate.shards;
      estimate.stages.back().memory_bytes =
          MemberBytes(settled, model, std::max<int64_t>(1, members));
    }
    if (s > 0 && stages[s].stage() == stages[s - 1].stage())
      continue;  // a replica
    estimate.parameters += estimate.stages.back().parameters;
    if (!IsInference(spec)) estimate.trained += estimate.stages.back().trained;
    estimate.parameter_bytes += estimate.stages.back().parameter_bytes;
  }
  return estimate;
}

Document ToDocument(const JobEstimate& estimate) {
  Document stages = Document::array();
  for (const StageEstimate& stage : estimate.stages) {
    const v1::StagePlacement& placement = stage.placement;
    const bool placed = placement.worker_id() >= 0;
    stages.push_back(
        FieldsDocument(placement, "stage first_layer last_layer share"));
    stages.back().update(
        {{"worker_id", NullUnless(placed, placement.worker_id())},
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
      {"trained_parameters", estimate.trained},
      {"parameter_bytes", estimate.parameter_bytes},
      {"shards", OrNull(estimate.shards)},
      {"shards_why", OrNull(estimate.shards_why)},
      {"stages", std::move(stages)},
      {"stages_chosen", Document(estimate.chosen)},
      {"estimate",
       estimate.run.has_value() ? MessageDocument(*estimate.run) : Document()}};
}

// Lines for people: what a step takes, or all of inference, samples a second,
// bubbles, where the times come from, and all of it when the number of steps is
// known.
std::vector<std::pair<std::string, std::string>> RunFacts(
    const v1::RunEstimate& run, const JobSpec& spec) {
  const int64_t steps = spec.train.steps;
  const auto text = [](double seconds) {
    return seconds < kShortSeconds ? HumanSeconds(seconds)
                                   : HumanDuration(absl::Seconds(seconds));
  };
  return {
      {IsInference(spec) ? "expected time" : "expected step",
       run.step_seconds() > 0 ? text(run.step_seconds()) : ""},
      {steps == 1 ? "its step" : absl::StrCat("all ", steps, " steps"),
       steps > 0 ? text(run.step_seconds() * static_cast<double>(steps)) : ""},
      {"samples/s", HumanRate(run.samples_per_second())},
      {"bubbles", absl::StrFormat("%.1f %%", 100 * run.bubble_share())},
      {"bound by", run.bound()},
      {"from", run.source()}};
}

std::string RenderEstimate(const JobEstimate& estimate, const JobSpec& spec) {
  Table table({">stage", "worker", ">share", "layers", "from", "to",
               ">parameters", ">memory", ">flop/sample"});
  Placements placed;
  for (const StageEstimate& stage : estimate.stages) {
    *placed.Add() = stage.placement;
  }
  for (int s = 0; s < placed.size(); ++s) {
    const StageEstimate& stage = estimate.stages[s];
    const v1::StagePlacement& placement = stage.placement;
    table.AddRow(
        placement.stage(),
        placement.worker_id() < 0 ? "-" : placement.worker_name(),
        absl::StrFormat("%.0f %%", 100 * ShareOf(placed, s)),
        absl::StrCat(placement.first_layer(), "-", placement.last_layer() - 1),
        stage.first_layer, stage.last_layer, HumanCount(stage.parameters),
        HumanBytes(stage.memory_bytes), HumanCount(stage.forward_flops));
  }
  const std::string run =
      estimate.run ? RenderFacts(RunFacts(*estimate.run, spec)) : "";
  return absl::StrCat(
      table.Render(),
      estimate.chosen ? ""
                      : "How many stages is decided once there are workers; "
                        "this is one.\n",
      "\n", run, Counted(estimate.layers, "layer"), ", ",
      HumanCount(estimate.parameters), " parameters, ",
      IsInference(spec) || estimate.trained == estimate.parameters
          ? ""
          : absl::StrCat(HumanCount(estimate.trained), " of them train, "),
      HumanBytes(estimate.parameter_bytes),
      estimate.shards > 0
          ? absl::StrCat(", ", ShardsText(estimate.shards, estimate.shards_why))
          : "",
      "\n");
}

// A plan for a mesh knows its devices; that of a profile file or of simulated
// machines may have made them up.
bool IsOfAMesh(const PlanFile& plan) { return !plan.facts.empty(); }

absl::Status HasReplicas(const std::string& name, const PlanFile& plan,
                         size_t stage) {
  const std::vector<std::string> workers =
      WorkersOf(plan.problem, plan.placement[stage]);
  return InvalidArgument(
      "--plan ", name, ": stage ", stage, " has ", workers.size(),
      " replicas (", Printable(absl::StrJoin(workers, ", ")),
      "), but was not made for a mesh, whose workers would hold them; make the "
      "plan again with 'paceline plan ... --no-replicas'");
}

// With a plan's cuts a job is another one than that which was checked.
// known: what was wrong before.
absl::Status CheckCuts(const std::string& name,
                       const std::vector<SpecProblem>& known,
                       const JobSpec& spec) {
  for (const SpecProblem& problem : CheckJobSpec(spec)) {
    if (absl::c_any_of(known, [&](const SpecProblem& old) {
          return old.path == problem.path && old.why == problem.why;
        })) {
      continue;
    }
    return InvalidArgument("--plan ", name, " has cuts [",
                           absl::StrJoin(spec.pipeline.cuts, ", "),
                           "]: ", problem.path, " ", problem.why);
  }
  return absl::OkStatus();
}

// Says which shared layers a fresh plan of the job would count and this plan
// does not; empty where there are none.
absl::StatusOr<std::string> UncountedTies(const std::string& name,
                                          const PlanFile& plan,
                                          const JobSpec& spec) {
  PACELINE_ASSIGN_OR_RETURN(const ModelDescription model, DescribeModel(spec));
  if (plan.problem.layers.size() != model.layers.size()) {
    return InvalidArgument("--plan ", name, " is of ",
                           Counted(plan.problem.layers.size(), "layer"),
                           ", the job's model has ", model.layers.size(),
                           ": make one with 'paceline plan -f'");
  }
  std::string text;
  if (IsInference(spec)) return text;
  for (const TieCost& tie : TiesOf(model)) {
    if (absl::c_linear_search(plan.problem.ties, tie)) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", "--plan ", name,
                    " does not count what layers ", tie.owner, " and ",
                    tie.user,
                    " send each other, as they share parameters: "
                    "plan again to have that counted");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> FollowPlan(const std::string& name,
                                       const PlanFile& plan, JobSpec& spec) {
  const std::string model =
      ModelKey(spec.model, spec.data.shape, spec.data.classes);
  if (plan.model != model) {
    return InvalidArgument(
        "--plan ", name, " is of ",
        plan.model.empty() ? "no model of Paceline" : Printable(plan.model),
        ", the job is of ", model, ": make one with 'paceline plan -f'");
  }
  if (!spec.pipeline.cuts.empty()) {
    return InvalidArgument(
        "--plan ", name,
        " cuts the model, and so does the job's pipeline.cuts: leave one out");
  }
  std::vector<int32_t> cuts;
  std::vector<std::string> workers;
  std::vector<int32_t> replicas;
  std::vector<double> shares;
  for (size_t s = 0; s < plan.placement.size(); ++s) {
    const PlacedStage& stage = plan.placement[s];
    if (stage.devices.size() > 1 && !IsOfAMesh(plan)) {
      return HasReplicas(name, plan, s);
    }
    if (s > 0) cuts.push_back(stage.layers.first);
    replicas.push_back(static_cast<int32_t>(stage.devices.size()));
    absl::c_move(WorkersOf(plan.problem, stage), std::back_inserter(workers));
    shares.insert(shares.end(), stage.shares.begin(), stage.shares.end());
  }
  const bool shared = workers.size() > plan.placement.size();
  const std::vector<SpecProblem> known = CheckJobSpec(spec);
  spec.pipeline.cuts = std::move(cuts);
  spec.pipeline.stages = static_cast<int32_t>(plan.placement.size());
  PACELINE_RETURN_IF_ERROR(CheckCuts(name, known, spec));
  PACELINE_ASSIGN_OR_RETURN(const std::string ties,
                            UncountedTies(name, plan, spec));
  if (!IsOfAMesh(plan)) {
    return absl::StrCat(ties, ties.empty() ? "" : "; ", "--plan ", name,
                        " was not made for a mesh: the job follows only the "
                        "cuts, and stages go to the workers in the order of "
                        "'node list'");
  }
  spec.pipeline.workers = std::move(workers);
  if (shared) {
    spec.pipeline.replicas = std::move(replicas);
    spec.pipeline.shares = std::move(shares);
  }
  return ties;
}

std::vector<std::string> KeysOfAPlan(const std::vector<std::string>& sets) {
  std::vector<std::string> decided;
  for (const std::string& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    if (key == "pipeline.stages" || key == "pipeline.policy") {
      decided.push_back(key);
    }
  }
  return decided;
}

SimulatedPlan SimulationOf(const PlanFile& plan) {
  SimulatedPlan simulated;
  simulated.placement = plan.placement;
  if (plan.facts.empty()) {
    simulated.problem = plan.problem;
    simulated.options.schedule = plan.schedule;
    simulated.options.micro_batch_samples = plan.micro_batch;
    return simulated;
  }
  JobSpec spec;
  spec.pipeline.schedule = plan.schedule;
  spec.train.micro_batch = plan.micro_batch;
  PlanInputs inputs = plan;
  simulated.options = OptionsFor(spec, plan.placement, inputs);
  simulated.problem = std::move(inputs.problem);
  simulated.planned = plan.problem;
  return simulated;
}

absl::StatusOr<ParsedJob> JobAgain(ControlClient& client,
                                   const std::string& word,
                                   const std::vector<std::string>& sets) {
  PACELINE_ASSIGN_OR_RETURN(const int64_t id, ResolveJob(client, word));
  PACELINE_ASSIGN_OR_RETURN(v1::Job job, client.GetJob(id, 0, 0));
  job.mutable_spec()->mutable_model()->clear_script();
  return ChangeJob(FromProto(job.spec()), sets);
}

std::vector<std::string> ResumeNotes(const v1::Job& before, const JobSpec& now,
                                     int64_t step,
                                     const std::vector<std::string>& sets) {
  std::vector<std::string> notes;
  for (const std::string& set : sets) {
    const std::string key = set.substr(0, set.find('='));
    if (key == "model.weights" || key == "model.init" ||
        key == "model.reset_head") {
      notes.push_back(absl::StrCat(
          "--set ", key,
          " has no effect: the job goes on with its checkpoint's weights"));
    }
  }
  if (step == 0 && !before.checkpoints().empty()) {
    step = before.checkpoints().rbegin()->cut().step();
  }
  const TrainSpec old = FromProto(before.spec()).train;
  const int64_t was = before.steps();
  const int64_t is = StepsBeside(old, was, now.train);
  if (step == 0 || was == 0 || is == 0) return notes;
  const double before_rate = LearningRate(old.learning_rate, step, was);
  const double rate = LearningRate(now.train.learning_rate, step, is);
  if (std::abs(rate - before_rate) <= 1e-6 * std::abs(before_rate)) {
    return notes;
  }
  const bool stretched = old.learning_rate.schedule == "cosine" &&
                         now.train.learning_rate.schedule == "cosine" &&
                         is != was;
  notes.push_back(absl::StrFormat(
      "the learning rate after step %d is %.4g, where job %d has %.4g%s", step,
      rate, before.id(), before_rate,
      stretched ? absl::StrCat(": its cosine now ends at step ", is,
                               " and not at ", was)
                : ""));
  return notes;
}

namespace {

// A restarting coordinator is back by then; and with the time of the last try
// it is still less than the five seconds a caller may have to wait for "no".
constexpr absl::Duration kSubmitPatience = absl::Seconds(2);
constexpr absl::Duration kSubmitPeriod = absl::Milliseconds(400);

absl::StatusOr<v1::SubmitJobResponse> SubmitPatiently(
    const CommandContext& context, const v1::SubmitJobRequest& request) {
  const Instant begin = context.clock.Now();
  for (;;) {
    absl::StatusOr<v1::SubmitJobResponse> submission =
        context.client.SubmitJob(request);
    const bool again =
        absl::IsUnavailable(submission.status()) &&
        context.clock.Now() - begin + kSubmitPeriod <= kSubmitPatience;
    if (!again) return submission;
    if (context.pauser.Sleep(kSubmitPeriod)) {
      return Cancelled("interrupted; nothing is known to be submitted");
    }
  }
}

// Notes where the members that are known do not meet an assumption of the rule.
void NoteAggregation(Console& console, const JobSpec& spec,
                     const v1::SubmitJobResponse& submission) {
  if (!IsDataParallel(spec)) return;
  const int64_t members = MembersOf(spec, submission.stages());
  if (members < 1) return;
  console.NoteEach("note: ", AggregationNotes(spec, members));
}

Outcome PrintDryRun(const CommandContext& context, const SubmitOptions& options,
                    const v1::SubmitJobResponse& submission) {
  PACELINE_ASSIGN_OR_RETURN(const JobEstimate estimate,
                            EstimateJob(options.spec, submission));
  Document document = ToDocument(estimate);
  document["warnings"] = options.warnings;
  context.console.Print(RenderEstimate(estimate, options.spec), document);
  return kExitOk;
}

// Says of a replica that its share gives it no micro-batch of a step.
std::string IdleText(const JobSpec& spec, const Placements& stages, int i) {
  if (IsInference(spec) || IsDataParallel(spec)) return "";
  std::vector<double> shares;
  int replica = 0;
  for (int j = 0; j < stages.size(); ++j) {
    if (stages[j].stage() != stages[i].stage()) continue;
    if (j == i) replica = static_cast<int>(shares.size());
    shares.push_back(stages[j].share());
  }
  const int64_t next = MakeRouteTable(shares).NextOf(replica, 0);
  return next < MicroBatchesOfAStep(spec.train)
             ? ""
             : ", which leaves it without one in a step";
}

// One line for a stage, "stage 1: w2, layers 4-7": where it goes; for each of
// its replicas with what part of it.  Then in how many shards members add up.
void NotePlan(Console& console, const JobSpec& spec,
              const v1::SubmitJobResponse& submission) {
  for (int i = 0; i < submission.stages_size(); ++i) {
    const v1::StagePlacement& stage = submission.stages(i);
    console.Note(Printable(
        absl::StrCat("  stage ", stage.stage(), ": ", stage.worker_name(),
                     ", layers ", stage.first_layer(), "-",
                     stage.last_layer() - 1, ShareText(submission.stages(), i),
                     IdleText(spec, submission.stages(), i))));
  }
  const auto estimate = EstimateJob(spec, submission);
  if (estimate.ok() && estimate->shards > 0) {
    console.Note("  ",
                 ShardsText(estimate->shards, Printable(estimate->shards_why)));
  }
}

void NoteSubmitted(Console& console, const JobSpec& spec,
                   const v1::SubmitJobResponse& submission) {
  const int stages = submission.stages().empty()
                         ? StageCount(spec.pipeline)
                         : submission.stages().rbegin()->stage() + 1;
  console.Note("job ", submission.id(),
               " is submitted: ", Printable(spec.model.name), " on ",
               Printable(spec.data.name), ", ", StagesText(stages), ", ",
               Printable(ScheduleText(spec)));
  NotePlan(console, spec, submission);
  if (!submission.has_estimate()) return;
  for (const auto& [key, value] : RunFacts(submission.estimate(), spec)) {
    if (value.empty()) continue;
    console.Note("  ", key, ": ", Printable(value));
  }
}

Outcome PrintDetached(const CommandContext& context,
                      const SubmitOptions& options,
                      const v1::SubmitJobResponse& submission) {
  const int64_t id = submission.id();
  NotePlan(context.console, options.spec, submission);
  if (context.console.table()) {
    context.console.Print(absl::StrCat("job ", id, ": submitted\n"));
  } else {
    PACELINE_ASSIGN_OR_RETURN(const auto job,
                              context.client.GetJob(id, kCurvePoints, 0));
    Document document = paceline::ToDocument(job, /*with_curve=*/true);
    document["warnings"] = options.warnings;
    context.console.Print(document);
  }
  context.console.Note("watch it: ", context.program, " job wait ", id);
  return kExitOk;
}

}  // namespace

Outcome SubmitCommand(const CommandContext& context,
                      const SubmitOptions& options) {
  Console& console = context.console;
  console.NoteEach("paceline: warning: ", options.warnings);
  v1::SubmitJobRequest request;
  *request.mutable_spec() = ToProto(options.spec);
  request.set_request_id(options.request_id);
  request.set_dry_run(options.dry_run);
  if (options.resume.has_value()) *request.mutable_resume() = *options.resume;
  const auto submission = SubmitPatiently(context, request);
  if (!submission.ok()) return ReportSubmitError(console, submission.status());
  console.NoteEach("note: ", submission->notes());
  NoteAggregation(console, options.spec, *submission);
  if (options.dry_run) return PrintDryRun(context, options, *submission);
  if (options.detach) return PrintDetached(context, options, *submission);
  NoteSubmitted(console, options.spec, *submission);
  return WaitJobCommand(
      context, submission->id(),
      {.timeout = options.timeout, .extra = {{"warnings", options.warnings}}});
}

}  // namespace paceline
