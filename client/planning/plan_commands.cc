#include "client/planning/plan_commands.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/command.h"
#include "client/text.h"
#include "core/base/status_macros.h"
#include "core/plan/cut.h"
#include "core/plan/plan.h"
#include "core/plan/shared_plan.h"

namespace paceline {
namespace {

constexpr char kCuts[] = "cuts";  // where a policy's name stands

// The job's own cuts, one device a stage in the order given.
absl::StatusOr<PlanAnswer> AnswerOfCuts(const PlanQuestion& question) {
  const PlanProblem& problem = question.inputs.problem;
  PACELINE_RETURN_IF_ERROR(CheckProblem(problem));
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<LayerRange> ranges,
      CutAt(static_cast<int>(problem.layers.size()), question.cuts));
  constexpr char kWhy[] =
      "the job's own pipeline.cuts decide; --policy dp asks a policy";
  const int stages = static_cast<int>(ranges.size());
  const int workers = static_cast<int>(problem.devices.size());
  if (stages > workers) {
    return AnswerForShared(problem, {ranges, SpreadStages(stages, workers)},
                           kWhy);
  }
  Placement placement;
  for (int s = 0; s < stages; ++s) placement.push_back({ranges[s], {s}, {1}});
  PACELINE_ASSIGN_OR_RETURN(PlanAnswer answer, AnswerFor(problem, placement));
  answer.why = kWhy;
  return answer;
}

absl::StatusOr<PlanAnswer> AnswerOfPolicy(const std::string& policy,
                                          const PlanQuestion& question,
                                          const PlanOptions& options) {
  const PlanInputs& inputs = question.inputs;
  const PolicyOptions asked = {.seed = options.seed,
                               .levels = options.levels,
                               .predicted = inputs.predicted.has_value()};
  return question.shared_stages > 0 ? SolveShared(policy, inputs.problem,
                                                  question.shared_stages, asked)
                                    : SolvePlan(policy, inputs.problem, asked);
}

PolicyRun Run(const std::string& policy, const PlanQuestion& question,
              const PlanOptions& options, const Clock& clock) {
  PolicyRun run;
  run.policy = policy;
  const Instant begin = clock.Now();
  absl::StatusOr<PlanAnswer> answer =
      policy == kCuts ? AnswerOfCuts(question)
                      : AnswerOfPolicy(policy, question, options);
  run.planning_seconds = absl::ToDoubleSeconds(clock.Now() - begin);
  run.refused = answer.status();
  if (answer.ok()) run.answer = *std::move(answer);
  return run;
}

absl::Status Save(const PlanQuestion& question, const PolicyRun& run,
                  PlanSink* sink) {
  if (sink == nullptr) return absl::OkStatus();
  return sink->Save({.problem = question.inputs.problem,
                     .placement = run.answer->placement,
                     .schedule = question.schedule,
                     .model = question.model,
                     .micro_batch = question.micro_batch,
                     .facts = question.inputs.facts,
                     .policy = run.policy,
                     .why = run.answer->why,
                     .source = question.inputs.source,
                     .predicted = question.inputs.predicted});
}

ExitCode Refused(Console& console, const absl::Status& status) {
  ReportError(console, status);
  return SubmitExitCodeFor(status);
}

ExitCode Compare(Console& console, const Clock& clock,
                 const PlanQuestion& question, const PlanOptions& options,
                 PlanSink* sink) {
  std::vector<std::string> policies = PolicyNames();
  if (!question.cuts.empty()) policies.emplace_back(kCuts);
  std::vector<PolicyRun> runs;
  const PolicyRun* best = nullptr;
  runs.reserve(policies.size());
  for (const std::string& policy : policies) {
    runs.push_back(Run(policy, question, options, clock));
    const PolicyRun& run = runs.back();
    if (run.answer.has_value() &&
        (best == nullptr ||
         run.answer->cost.step_seconds < best->answer->cost.step_seconds)) {
      best = &run;
    }
  }
  if (best == nullptr) {
    // What the exact policy says of it is the truth.
    for (const PolicyRun& run : runs) {
      if (run.policy == "dp") return Refused(console, run.refused);
    }
    return Refused(console, runs.front().refused);
  }
  if (const absl::Status saved = Save(question, *best, sink); !saved.ok()) {
    return ReportError(console, saved);
  }
  if (console.table()) {
    console.Print(RenderComparison(question, runs));
  } else {
    console.PrintList("policies", ToDocuments(question, runs));
  }
  return kExitOk;
}

}  // namespace

ExitCode PlanCommand(Console& console, const Clock& clock,
                     const PlanQuestion& question, const PlanOptions& options,
                     PlanSink* sink) {
  if (options.compare) {
    return Compare(console, clock, question, options, sink);
  }
  const PolicyRun run = Run(question.cuts.empty() ? question.policy : kCuts,
                            question, options, clock);
  if (!run.answer.has_value()) return Refused(console, run.refused);
  if (const absl::Status saved = Save(question, run, sink); !saved.ok()) {
    return ReportError(console, saved);
  }
  if (console.table()) {
    console.Print(RenderPlan(question, run));
  } else {
    console.Print(ToDocument(question, run));
  }
  return kExitOk;
}

}  // namespace paceline
