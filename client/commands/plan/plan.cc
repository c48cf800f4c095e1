#include "client/commands/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/files/whole_file.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/job/aggregation.h"
#include "core/plan/machines.h"
#include "core/plan/memory.h"
#include "core/plan/pipedream/optimizer.h"
#include "core/plan/pipedream/state_space.h"
#include "core/plan/plan.h"
#include "core/predict/time_predictor.h"

namespace paceline {
namespace {

// Where the name of a policy stands.
constexpr char kCuts[] = "cuts";
constexpr char kGroup[] = "group";

// A terminal is for looking; -o json has them all.
constexpr size_t kMostNames = 8;

// How a job could be trained.
struct TrainingWay {
  std::string name;
  double step_seconds = 0;  // 0: it cannot be
  std::string why;
};

// The answer of one policy, and how long it took.
struct PolicyRun {
  std::string policy;
  absl::StatusOr<PlanAnswer> answer;
  double planning_seconds = 0;
  std::vector<TrainingWay> ways;  // the answer's beside others, where asked
  double expected_seconds = 0;    // of a step, simulated; 0: not asked for
};

double MemoryOf(const PlacedStage& stage, const PlacementCost& cost) {
  double most = 0;
  for (const int device : stage.devices) {
    most = std::max(most, cost.memory_bytes[device]);
  }
  return most;
}

std::vector<std::string> NamesLeftOut(const PlanProblem& problem,
                                      const Placement& placement) {
  std::vector<bool> used(problem.devices.size());
  for (const PlacedStage& stage : placement) {
    for (const int device : stage.devices) used[device] = true;
  }
  std::vector<std::string> names;
  for (size_t d = 0; d < used.size(); ++d) {
    if (!used[d]) names.push_back(problem.devices[d].name);
  }
  return names;
}

std::string Few(const std::vector<std::string>& names) {
  if (names.size() <= kMostNames) return absl::StrJoin(names, " ");
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + kMostNames, " "), " and ",
      names.size() - kMostNames, " more");
}

Document StagesDocument(const PlanProblem& problem, const PlanAnswer& answer) {
  Document stages = Document::array();
  for (size_t s = 0; s < answer.placement.size(); ++s) {
    const PlacedStage& stage = answer.placement[s];
    stages.push_back(Document{{"first_layer", stage.layers.first},
                              {"last_layer", stage.layers.last},
                              {"workers", WorkersOf(problem, stage)},
                              {"shares", stage.shares},
                              {"replicas", stage.devices.size()},
                              {"seconds", answer.cost.stage_seconds[s]},
                              {"memory_bytes", MemoryOf(stage, answer.cost)}});
  }
  return stages;
}

Document SamplesPerSecond(const PlanQuestion& question,
                          const PlacementCost& cost) {
  if (question.micro_batch <= 0 || !(cost.step_seconds > 0)) return {};
  const auto micro_batches = static_cast<double>(
      std::max<int64_t>(question.inputs.problem.micro_batches, 1));
  return micro_batches * static_cast<double>(question.micro_batch) /
         cost.step_seconds;
}

// null: all layer times are measured, or those of a profile.
Document PredictedDocument(const std::optional<PredictedTimes>& times) {
  if (!times.has_value()) return {};
  const bool known = !times->assumed;
  return Document{{"interval_level", NullUnless(known, kIntervalLevel)},
                  {"low_factor", NullUnless(known, times->low_factor)},
                  {"high_factor", NullUnless(known, times->high_factor)}};
}

// ", proved optimal", and for what.
std::string ProvedText(const PlanQuestion& question, const PlanAnswer& answer) {
  if (!answer.exact) return "";
  const std::optional<PredictedTimes>& times = question.inputs.predicted;
  if (!times.has_value()) return ", proved optimal";
  return absl::StrCat(", proved optimal for predicted layer times only (",
                      IntervalText(*times), ")");
}

std::string SharesText(const PlacedStage& stage) {
  if (stage.shares.size() < 2) return "";
  const size_t shown = std::min(stage.shares.size(), kMostNames);
  return absl::StrJoin(stage.shares.begin(), stage.shares.begin() + shown, " ",
                       [](std::string* out, double share) {
                         absl::StrAppendFormat(out, "%.0f%%", 100 * share);
                       });
}

std::string StagesTable(const PlanProblem& problem, const PlanAnswer& answer) {
  Table table({">stage", "layers", "from", "to", "workers", "shares", ">time",
               ">memory"});
  for (size_t s = 0; s < answer.placement.size(); ++s) {
    const PlacedStage& stage = answer.placement[s];
    table.AddRow(s,
                 absl::StrCat(stage.layers.first, "-", stage.layers.last - 1),
                 problem.layers[stage.layers.first].name,
                 problem.layers[stage.layers.last - 1].name,
                 Few(WorkersOf(problem, stage)), SharesText(stage),
                 HumanSeconds(answer.cost.stage_seconds[s]),
                 HumanBytes(MemoryOf(stage, answer.cost)));
  }
  return table.Render();
}

std::string StreamText(const PlanProblem& problem) {
  const char* what = problem.training ? "training" : "inference";
  if (problem.micro_batches == 0) {
    return absl::StrCat("an endless stream, ", what);
  }
  return absl::StrCat(Counted(problem.micro_batches, "micro-batch"), ", ",
                      what);
}

// In a column; what the times are worth is said below the table.
std::string HowProved(const PlanQuestion& question, const PlanAnswer& answer) {
  if (!answer.exact) return "";
  return question.inputs.predicted.has_value() ? "as predicted" : "yes";
}

// "3 on 2 workers: some hold several"; nothing where none does.
std::string SharedText(size_t stages, size_t workers) {
  if (stages <= workers) return "";
  return absl::StrCat(stages, " on ", workers,
                      workers == 1 ? " worker, which holds them all"
                                   : " workers: some hold several");
}

std::string StagesOf(const PlanAnswer& answer) {
  return Joined(answer.placement, "-",
                [](const PlacedStage& stage) { return stage.devices.size(); });
}

// "3.2 %"; "-" where the bound says nothing.
std::string GapText(double gap) {
  if (!std::isfinite(gap)) return "-";
  return absl::StrFormat("%.1f %%", 100 * gap);
}

// --- One worker, a pipeline, a group, or a pipeline with replicas
// ----------------------------------------

// 0: none of them can be.
double LeastSeconds(const std::vector<TrainingWay>& ways) {
  double least = 0;
  for (const TrainingWay& way : ways) {
    if (way.step_seconds > 0 && (least == 0 || way.step_seconds < least)) {
      least = way.step_seconds;
    }
  }
  return least;
}

bool IsReplicated(const Placement& placement) {
  return absl::c_any_of(placement, [](const PlacedStage& stage) {
    return stage.devices.size() > 1;
  });
}

// The job's policy, asked where stages may have replicas, and where not.
absl::StatusOr<PlanAnswer> AnswerWithReplicas(const PlanQuestion& question,
                                              bool replicas) {
  PlanProblem problem = question.inputs.problem;
  problem.replicas = replicas;
  return SolvePlan(question.policy, problem,
                   {.predicted = question.inputs.predicted.has_value()});
}

std::vector<EstimateStage> StagesOfRun(const Placement& placement) {
  std::vector<EstimateStage> stages;
  for (const PlacedStage& stage : placement) {
    for (size_t r = 0; r < stage.devices.size(); ++r) {
      stages.push_back({stage.layers, stage.devices[r], stage.shares[r]});
    }
  }
  return stages;
}

// The step of the job as `stages` of the mesh's workers.
absl::StatusOr<TrainingWay> WayOfStages(
    const MeshJob& job, const std::vector<EstimateStage>& stages,
    const std::string& why) {
  std::vector<InputWorker> workers;
  for (const MemberInput& each : job.workers) workers.push_back(each.worker);
  PACELINE_ASSIGN_OR_RETURN(
      const RunEstimate run,
      EstimateRun(job.spec, job.model, stages, workers, job.measurements));
  return TrainingWay{
      "", run.step_seconds,
      absl::StrFormat("%s, bubbles %.0f %%", why, 100 * run.bubble_share)};
}

// The whole model on each member of a group that trains the job, or would.
// Errors: InvalidArgument    no group can train it
//         ResourceExhausted  no worker has the memory of a member
absl::StatusOr<PlanAnswer> AnswerOfGroup(const PlanProblem& problem,
                                         const MeshJob& job) {
  JobSpec spec = job.spec;
  spec.pipeline = PipelineSpec();
  if (!HasRounds(spec)) {
    spec.aggregation.mode = "rolling";
    spec.aggregation.members = static_cast<int32_t>(job.workers.size());
  }
  SpecProblems problems;
  CheckAggregation(spec, &job.model, problems);
  if (const auto wrong = problems.Take(); !wrong.empty()) {
    return InvalidArgument(wrong[0].path, ": ", wrong[0].why);
  }
  const LayerRange all = {0, static_cast<int>(problem.layers.size())};
  const AggregationSpec& asked = spec.aggregation;
  std::vector<MemberInput> members;
  for (size_t m = 0; m < job.workers.size(); ++m) {
    const auto named = absl::c_find(asked.workers, job.workers[m].worker.name) -
                       asked.workers.begin();
    if (!asked.workers.empty() && named == std::ssize(asked.workers)) continue;
    members.push_back(job.workers[m]);
    // Members with samples of their own get as many as the others.
    members.back().share =
        spec.data.distribution != "iid" ? 1
        : !asked.shares.empty()
            ? asked.shares[named]
            : 1 / LayerSeconds(problem, all, static_cast<int>(m));
  }
  const auto wanted = static_cast<size_t>(asked.members);
  if (asked.workers.empty() && wanted > 0 && wanted < members.size()) {
    absl::c_stable_sort(members, [](const auto& a, const auto& b) {
      return a.share > b.share;
    });
    members.resize(wanted);
  }
  const int64_t need =
      MemberBytes(spec, job.model, std::max<int64_t>(1, std::ssize(members)));
  std::erase_if(members, [need](const MemberInput& member) {
    return member.worker.memory_bytes > 0 && member.worker.memory_bytes < need;
  });
  if (members.empty()) {
    return ResourceExhausted(
        "no worker that the job may have has the memory of a member, ",
        BytesText(need));
  }
  PACELINE_ASSIGN_OR_RETURN(
      const RunEstimate run,
      EstimateGroup(spec, job.model, members, job.measurements));
  PlanAnswer answer;
  answer.gap = HUGE_VAL;  // nothing bounds it
  answer.placement = {{all, {}, {}}};
  answer.cost.memory_bytes.assign(problem.devices.size(), 0);
  double sum = 0;
  for (const MemberInput& member : members) sum += member.share;
  for (const MemberInput& member : members) {
    const auto device =
        absl::c_find_if(problem.devices,
                        [&member](const Device& each) {
                          return each.name == member.worker.name;
                        }) -
        problem.devices.begin();
    answer.placement[0].devices.push_back(static_cast<int>(device));
    answer.placement[0].shares.push_back(member.share / sum);
    answer.cost.memory_bytes[device] = static_cast<double>(need);
  }
  answer.cost.stage_seconds = {*absl::c_max_element(run.stage_seconds)};
  answer.cost.bottleneck_seconds = answer.cost.stage_seconds[0];
  answer.cost.step_seconds = run.step_seconds;
  answer.why =
      absl::StrFormat("%s, shards: %d, %.0f %% of a step is not compute; %s",
                      Counted(members.size(), "member"), run.shards,
                      100 * run.bubble_share, run.bound);
  return answer;
}

absl::StatusOr<TrainingWay> WayOfGroup(const PlanProblem& problem,
                                       const MeshJob& job) {
  PACELINE_ASSIGN_OR_RETURN(const PlanAnswer group,
                            AnswerOfGroup(problem, job));
  return TrainingWay{"", group.cost.step_seconds,
                     group.why.substr(0, group.why.find("; "))};
}

// Without replicas, even where the job allows them.
absl::StatusOr<TrainingWay> WayOfStagesAlone(const PlanQuestion& question,
                                             PlanAnswer answer) {
  if (IsReplicated(answer.placement)) {
    PACELINE_ASSIGN_OR_RETURN(answer, AnswerWithReplicas(question, false));
  }
  return WayOfStages(*question.job, StagesOfRun(answer.placement),
                     Counted(answer.placement.size(), "stage"));
}

absl::StatusOr<TrainingWay> WayOfBoth(const PlanQuestion& question,
                                      PlanAnswer answer) {
  const MeshJob& job = *question.job;
  std::string cannot =
      WhyNoReplicas(job.spec, job.model, std::ssize(job.workers));
  if (question.shared_stages > 0) cannot = "there are more stages than workers";
  if (!cannot.empty()) return FailedPrecondition(cannot);
  if (!IsReplicated(answer.placement)) {
    PACELINE_ASSIGN_OR_RETURN(answer, AnswerWithReplicas(question, true));
  }
  if (!IsReplicated(answer.placement)) {
    return FailedPrecondition("no stage is worth several workers");
  }
  return WayOfStages(job, StagesOfRun(answer.placement),
                     absl::StrCat(Counted(answer.placement.size(), "stage"),
                                  ", ", StagesOf(answer), " replicas"));
}

std::vector<TrainingWay> WaysOf(const PlanQuestion& question,
                                const PlanAnswer& answer) {
  const MeshJob& job = *question.job;
  const PlanProblem& problem = question.inputs.problem;
  const LayerRange all = {0, static_cast<int>(problem.layers.size())};
  int fastest = 0;
  for (int d = 1; d < static_cast<int>(problem.devices.size()); ++d) {
    if (LayerSeconds(problem, all, d) < LayerSeconds(problem, all, fastest)) {
      fastest = d;
    }
  }
  std::vector<TrainingWay> ways;
  const auto add = [&](const char* name, absl::StatusOr<TrainingWay> way) {
    ways.push_back(
        way.ok() ? *std::move(way)
                 : TrainingWay{"", 0, std::string(way.status().message())});
    ways.back().name = name;
  };
  add("one worker", WayOfStages(job, {{all, fastest}},
                                absl::StrCat("the fastest, ",
                                             problem.devices[fastest].name)));
  add("pipeline", WayOfStagesAlone(question, answer));
  add("group", WayOfGroup(problem, job));
  add("both", WayOfBoth(question, answer));
  TrainingWay& both = ways.back();
  if (both.step_seconds > 0 && both.step_seconds == LeastSeconds(ways) &&
      job.spec.pipeline.replicate != "allowed") {
    absl::StrAppend(&both.why, "; pipeline.replicate=allowed",
                    job.spec.pipeline.cuts.empty() ? "" : " without cuts",
                    " asks for it");
  }
  return ways;
}

std::string RenderWays(const std::vector<TrainingWay>& ways) {
  if (ways.empty()) return "";
  const double least = LeastSeconds(ways);
  Table table({"trained by", ">step", ">of the fastest", "why"});
  for (const TrainingWay& way : ways) {
    const bool can = way.step_seconds > 0;
    table.AddRow(way.name, can ? HumanSeconds(way.step_seconds) : "-",
                 can ? absl::StrFormat("%.2f", way.step_seconds / least) : "-",
                 Printable(way.why));
  }
  return absl::StrCat("\n", table.Render());
}

Document WaysDocument(const std::vector<TrainingWay>& ways) {
  return ListOf(ways, [](const TrainingWay& way) {
    return Document{{"name", way.name},
                    {"step_seconds", OrNull(way.step_seconds)},
                    {"why", way.why}};
  });
}

// `with_refused` adds why there is no answer.
Document ToDocument(const PlanQuestion& question, const PolicyRun& run,
                    bool with_refused) {
  const PlanProblem& problem = question.inputs.problem;
  Document document = {{"policy", run.policy}};
  if (run.answer.ok()) {
    const PlanAnswer& answer = *run.answer;
    document.update(
        {{"bottleneck_seconds", answer.cost.bottleneck_seconds},
         {"step_seconds", answer.cost.step_seconds},
         {"expected_step_seconds", OrNull(run.expected_seconds)},
         {"lower_bound_seconds", answer.lower_bound_seconds},
         {"gap", answer.gap},
         {"exact", answer.exact},
         {"predicted", PredictedDocument(question.inputs.predicted)},
         {"stages", StagesDocument(problem, answer)},
         {"transfer_seconds", answer.cost.transfer_seconds},
         {"left_out", NamesLeftOut(problem, answer.placement)},
         {"samples_per_second", SamplesPerSecond(question, answer.cost)},
         {"ways", WaysDocument(run.ways)},
         {"why", answer.why}});
  }
  document["planning_seconds"] = run.planning_seconds;
  if (with_refused) {
    document["refused"] = OrNull(std::string(run.answer.status().message()));
  }
  document.update(
      {{"source", question.inputs.source},
       {"measured", question.inputs.measured},
       {"model", OrNull(question.model)},
       {"schedule",
        run.policy == kGroup ? Document() : Document(question.schedule)},
       {"micro_batches", problem.micro_batches},
       {"training", problem.training}});
  return document;
}

std::string RenderPlan(const PlanQuestion& question, const PolicyRun& run) {
  const PlanProblem& problem = question.inputs.problem;
  const PlanAnswer& answer = *run.answer;
  const bool endless = problem.micro_batches == 0;
  const bool group = run.policy == kGroup;
  const std::vector<std::string> left_out =
      NamesLeftOut(problem, answer.placement);
  return absl::StrCat(
      StagesTable(problem, answer), "\n",
      RenderFacts(
          {{"policy", absl::StrCat(run.policy, ProvedText(question, answer))},
           {"stages", SharedText(answer.placement.size(),
                                 problem.devices.size() - left_out.size())},
           {endless ? "micro-batch" : "step",
            absl::StrCat(HumanSeconds(run.expected_seconds > 0
                                          ? run.expected_seconds
                                          : answer.cost.step_seconds),
                         " (", StreamText(problem), ", ",
                         group ? "data parallel" : question.schedule, ")")},
           {"by formula",
            run.expected_seconds > 0 && !group
                ? absl::StrCat(HumanSeconds(answer.cost.step_seconds),
                               ", by which policies choose")
                : ""},
           {"bottleneck",
            absl::StrCat(HumanSeconds(answer.cost.bottleneck_seconds),
                         " a micro-batch")},
           {"lower bound",
            group ? ""
                  : absl::StrCat(HumanSeconds(answer.lower_bound_seconds),
                                 " by formula, gap ", GapText(answer.gap))},
           {"left out", Few(left_out)},
           {"why", answer.why},
           {"from", question.inputs.source}}),
      RenderWays(run.ways));
}

// One line a policy.
std::string RenderComparison(const PlanQuestion& question,
                             const std::vector<PolicyRun>& runs) {
  Table table({"policy", ">step", ">bottleneck", ">gap", "proved", ">stages",
               "replicas", ">planned in", "why not"});
  for (const PolicyRun& run : runs) {
    const std::string took = HumanSeconds(run.planning_seconds);
    if (!run.answer.ok()) {
      table.AddRow(run.policy, "-", "-", "-", "", "-", "", took,
                   run.answer.status().message());
      continue;
    }
    const PlanAnswer& answer = *run.answer;
    table.AddRow(run.policy, HumanSeconds(answer.cost.step_seconds),
                 HumanSeconds(answer.cost.bottleneck_seconds),
                 GapText(answer.gap), HowProved(question, answer),
                 answer.placement.size(), StagesOf(answer), took, "");
  }
  return absl::StrCat(
      table.Render(), "\n",
      RenderFacts(
          {{"step",
            absl::StrCat(StreamText(question.inputs.problem), "; by formula")},
           {"stages", SharedText(question.shared_stages,
                                 question.inputs.problem.devices.size())},
           {"from", question.inputs.source}}));
}

absl::StatusOr<PlanAnswer> AnswerOfPolicy(const std::string& policy,
                                          const PlanQuestion& question,
                                          const PlanOptions& options) {
  if (policy == kCuts) return AnswerOfJob("", question, options);
  if (question.as_job || question.shared_stages > 0) {
    return AnswerOfJob(policy, question, options);
  }
  return SolvePlan(policy, question.inputs.problem,
                   {.seed = options.seed,
                    .predicted = question.inputs.predicted.has_value()});
}

PolicyRun Run(const std::string& policy, const PlanQuestion& question,
              const PlanOptions& options, const Clock& clock) {
  PolicyRun run;
  run.policy = policy;
  const Instant begin = clock.Now();
  run.answer = AnswerOfPolicy(policy, question, options);
  run.planning_seconds = absl::ToDoubleSeconds(clock.Now() - begin);
  return run;
}

absl::Status Save(const PlanQuestion& question, const PolicyRun& run,
                  const std::string& file) {
  if (file.empty()) return absl::OkStatus();
  return WriteWholeFile(
      file, PlanFileText({question.inputs, run.answer->placement,
                          question.schedule, question.model,
                          question.micro_batch, run.policy, run.answer->why}));
}

Outcome Compare(Console& console, const Clock& clock,
                const PlanQuestion& question, const PlanOptions& options) {
  std::vector<std::string> names = PolicyNames();
  if (question.own_cuts) names.emplace_back(kCuts);
  std::vector<PolicyRun> runs;
  const PolicyRun* best = nullptr;
  runs.reserve(names.size());
  for (const std::string& policy : names) {
    runs.push_back(Run(policy, question, options, clock));
    const PolicyRun& run = runs.back();
    if (run.answer.ok() &&
        (best == nullptr ||
         run.answer->cost.step_seconds < best->answer->cost.step_seconds)) {
      best = &run;
    }
  }
  if (best == nullptr) {
    const auto exact = absl::c_find_if(runs, [](const PolicyRun& run) {
      return run.policy == "optimal";  // its answer is the truth
    });
    return ReportSubmitError(console, exact->answer.status());
  }
  PACELINE_RETURN_IF_ERROR(Save(question, *best, options.save));
  console.PrintList(RenderComparison(question, runs), "policies",
                    ListOf(runs, [&](const PolicyRun& run) {
                      return ToDocument(question, run, /*with_refused=*/true);
                    }));
  return kExitOk;
}

}  // namespace

std::vector<std::string> WorkersOf(const PlanProblem& problem,
                                   const PlacedStage& stage) {
  std::vector<std::string> names;
  for (const int device : stage.devices) {
    names.push_back(problem.devices[device].name);
  }
  return names;
}

Outcome PlanCommand(Console& console, const Clock& clock,
                    const PlanQuestion& question, const PlanOptions& options) {
  if (options.compare) return Compare(console, clock, question, options);
  PolicyRun run = Run(question.own_cuts ? kCuts : question.policy, question,
                      options, clock);
  const bool has_ways = question.job.has_value() &&
                        question.inputs.problem.training &&
                        !options.micro_batches.has_value();
  if (has_ways && run.answer.ok()) {
    run.ways = WaysOf(question, *run.answer);
  }
  if (!run.ways.empty()) {
    const bool both = IsReplicated(run.answer->placement);
    run.expected_seconds = run.ways[both ? 3 : 1].step_seconds;
  }
  if (question.job.has_value() && IsDataParallel(question.job->spec)) {
    run.policy = kGroup;
    run.answer = AnswerOfGroup(question.inputs.problem, *question.job);
    if (run.answer.ok()) run.expected_seconds = run.answer->cost.step_seconds;
  }
  if (!run.answer.ok()) {
    return ReportSubmitError(console, run.answer.status());
  }
  PACELINE_RETURN_IF_ERROR(Save(question, run, options.save));
  console.Print(RenderPlan(question, run),
                ToDocument(question, run, /*with_refused=*/false));
  return kExitOk;
}

// --- PipeDream's cost model -------------------------------------------------

namespace {

struct Solved {
  GraphProfile graph;
  Machines machines;
  PipedreamAnswer answer;
  double gap = 0;
  double planning_seconds = 0;
};

GraphProfile GraphOf(const ProfileSource& source) {
  if (source.graph.has_value()) return *source.graph;
  return ChainGraph(source.plan.has_value()
                        ? source.plan->problem.layers
                        : LayersOf(source.profiles.front()));
}

absl::StatusOr<Solved> Solve(const ProfileSource& source,
                             const PlanOptions& options, const Clock& clock) {
  Solved solved;
  solved.graph = GraphOf(source);
  PACELINE_ASSIGN_OR_RETURN(
      solved.machines,
      ParseMachines(options.machines, options.bandwidth, options.memory));
  const Instant begin = clock.Now();
  PACELINE_ASSIGN_OR_RETURN(const StateSpace space, StatesOf(solved.graph));
  PACELINE_ASSIGN_OR_RETURN(
      solved.answer,
      PlanPipedream(solved.graph, space,
                    {.machines = solved.machines,
                     .replicas = !options.no_replicas,
                     .count_transfers = options.count_transfers}));
  solved.planning_seconds = absl::ToDoubleSeconds(clock.Now() - begin);
  const double bound = solved.answer.lower_bound_seconds;
  solved.gap = bound > 0
                   ? std::max(0.0, solved.answer.bottleneck_seconds / bound - 1)
                   : HUGE_VAL;
  return solved;
}

// As PutMachines names devices.
std::string DeviceName(const Machines& machines, int device) {
  if (machines.levels() == 1) return absl::StrCat(device);
  return absl::StrCat(device / machines.sizes[0], ".",
                      device % machines.sizes[0]);
}

Document StagesDocument(const Solved& solved) {
  const PipedreamAnswer& answer = solved.answer;
  return ListOf(answer.stages, [&](const PipedreamStage& stage) {
    std::vector<std::string> workers, nodes;
    for (const int device : stage.devices) {
      workers.push_back(DeviceName(solved.machines, device));
    }
    for (int n = stage.nodes.first; n < stage.nodes.last; ++n) {
      nodes.push_back(solved.graph.nodes[answer.node_order[n]].id);
    }
    const auto replicas = static_cast<double>(stage.devices.size());
    return Document{
        {"first_layer", stage.nodes.first},
        {"last_layer", stage.nodes.last},
        {"workers", std::move(workers)},
        {"shares", std::vector<double>(stage.devices.size(), 1 / replicas)},
        {"replicas", stage.devices.size()},
        {"seconds", stage.seconds},
        {"memory_bytes", stage.memory_bytes},
        {"transfer_seconds", stage.transfer_seconds},
        {"versions", stage.versions},
        {"nodes", std::move(nodes)}};
  });
}

std::string SourceText(const ProfileSource& source, const Solved& solved) {
  return absl::StrCat(source.name, ": ",
                      Counted(solved.graph.nodes.size(), "node"));
}

Document ToDocument(const ProfileSource& source, const PlanOptions& options,
                    const Solved& solved) {
  const PipedreamAnswer& answer = solved.answer;
  return Document{{"policy", "pipedream"},
                  {"bottleneck_seconds", answer.bottleneck_seconds},
                  {"step_seconds", answer.bottleneck_seconds},
                  {"lower_bound_seconds", answer.lower_bound_seconds},
                  {"gap", solved.gap},
                  {"exact", Document(true)},
                  {"replication", answer.shape},
                  {"one_machine_seconds", answer.one_machine_seconds},
                  {"speed_up", answer.speed_up},
                  {"data_parallel_seconds", answer.data_parallel_seconds},
                  {"devices_used", answer.devices_used},
                  {"transfers_counted", Document(options.count_transfers)},
                  {"stages", StagesDocument(solved)},
                  {"why", answer.why},
                  {"planning_seconds", solved.planning_seconds},
                  {"source", SourceText(source, solved)}};
}

std::string Render(const ProfileSource& source, const Solved& solved) {
  const PipedreamAnswer& answer = solved.answer;
  Table table({">stage", ">nodes", "from", "to", ">replicas", ">time",
               ">transfers", ">versions", ">memory"});
  for (size_t s = 0; s < answer.stages.size(); ++s) {
    const PipedreamStage& stage = answer.stages[s];
    const auto node = [&](int at) -> const ProfileNode& {
      return solved.graph.nodes[answer.node_order[at]];
    };
    table.AddRow(s, stage.nodes.last - stage.nodes.first,
                 node(stage.nodes.first).id, node(stage.nodes.last - 1).id,
                 stage.devices.size(), HumanSeconds(stage.seconds),
                 HumanSeconds(stage.transfer_seconds), stage.versions,
                 HumanBytes(stage.memory_bytes));
  }
  return absl::StrCat(
      table.Render(), "\n",
      RenderFacts(
          {{"cost model",
            "pipedream (Narayanan et al. 2019), an endless stream"},
           {"replicas", answer.shape},
           {"bottleneck", absl::StrCat(HumanSeconds(answer.bottleneck_seconds),
                                       " a mini-batch, ",
                                       absl::StrFormat("%.2f", answer.speed_up),
                                       " x one device")},
           {"lower bound",
            absl::StrCat(HumanSeconds(answer.lower_bound_seconds), ", gap ",
                         GapText(solved.gap))},
           {"data parallel", HumanSeconds(answer.data_parallel_seconds)},
           {"why", answer.why},
           {"from", SourceText(source, solved)}}));
}

}  // namespace

GraphProfile ChainGraph(const std::vector<LayerCost>& layers) {
  GraphProfile graph;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCost& layer = layers[i];
    graph.nodes.push_back(
        {.id = layer.name.empty() ? absl::StrCat("layer", i) : layer.name,
         .description = "",
         .forward_seconds = layer.forward_seconds,
         .backward_seconds = layer.backward_seconds,
         .output_bytes = layer.output_bytes,
         .parameter_bytes = layer.parameter_bytes,
         .line = 0});
    if (i > 0) {
      graph.edges.emplace_back(static_cast<int>(i) - 1, static_cast<int>(i));
    }
  }
  return graph;
}

Placement GroupPlacement(const PlanProblem& problem) {
  const auto devices = static_cast<int>(problem.devices.size());
  PlacedStage all = {{0, static_cast<int>(problem.layers.size())}, {}, {}};
  for (int d = 0; d < devices; ++d) {
    all.devices.push_back(d);
    all.shares.push_back(1.0 / devices);
  }
  return {all};
}

namespace {

// A stage of the answer as a layer.
LayerCost LayerOf(const Solved& solved, const PipedreamStage& stage) {
  const GraphProfile& graph = solved.graph;
  std::vector<bool> done(graph.nodes.size());
  LayerCost layer;
  for (int n = 0; n < stage.nodes.last; ++n) {
    const int node = solved.answer.node_order[n];
    done[node] = true;
    if (n < stage.nodes.first) continue;
    layer.forward_seconds += graph.nodes[node].forward_seconds;
    layer.backward_seconds += graph.nodes[node].backward_seconds;
    layer.parameter_bytes += graph.nodes[node].parameter_bytes;
  }
  std::set<int> needed;
  for (const auto& [from, to] : graph.edges) {
    if (done[from] && !done[to]) needed.insert(from);
  }
  for (const int node : needed) {
    layer.output_bytes += graph.nodes[node].output_bytes;
  }
  return layer;
}

PlanBesideGroup BesideGroup(const Solved& solved) {
  const PipedreamAnswer& answer = solved.answer;
  PlanBesideGroup plan = {.configuration = answer.shape,
                          .bottleneck_seconds = answer.bottleneck_seconds,
                          .group_seconds = answer.data_parallel_seconds,
                          .one_device_seconds = answer.one_machine_seconds};
  PutMachines(solved.machines, plan.problem);
  for (const PipedreamStage& stage : answer.stages) {
    const auto layer = static_cast<int>(plan.problem.layers.size());
    plan.problem.layers.push_back(LayerOf(solved, stage));
    const size_t replicas = stage.devices.size();
    plan.placement.push_back(
        {{layer, layer + 1},
         stage.devices,
         std::vector<double>(replicas, 1.0 / static_cast<double>(replicas))});
  }
  return plan;
}

}  // namespace

absl::StatusOr<PlanBesideGroup> PlanForStudy(const ProfileSource& source,
                                             const PlanOptions& options,
                                             const Clock& clock) {
  if (options.cost_model == "pipedream") {
    PACELINE_ASSIGN_OR_RETURN(const Solved solved,
                              Solve(source, options, clock));
    return BesideGroup(solved);
  }
  PACELINE_ASSIGN_OR_RETURN(const PlanQuestion question,
                            AskForProfile(source, options));
  const PlanProblem& problem = question.inputs.problem;
  PACELINE_ASSIGN_OR_RETURN(const PlanAnswer answer,
                            AnswerOfPolicy(question.policy, question, options));
  PACELINE_ASSIGN_OR_RETURN(const PlacementCost group,
                            CostOf(problem, GroupPlacement(problem)));
  const LayerRange all = {0, static_cast<int>(problem.layers.size())};
  return PlanBesideGroup{StagesOf(answer),
                         answer.cost.bottleneck_seconds,
                         group.bottleneck_seconds,
                         LayerSeconds(problem, all, 0),
                         problem,
                         answer.placement};
}

Outcome PipedreamPlanCommand(Console& console, const Clock& clock,
                             const ProfileSource& source,
                             const PlanOptions& options) {
  const auto solved = Solve(source, options, clock);
  if (!solved.ok()) return ReportSubmitError(console, solved.status());
  console.Print(Render(source, *solved), ToDocument(source, options, *solved));
  return kExitOk;
}

}  // namespace paceline
