#include "client/planning/plan_render.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/table.h"
#include "client/text.h"
#include "core/predict/curve_error.h"

namespace paceline {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;
// A terminal is for looking; -o json has them all.
constexpr size_t kMostNames = 8;

double MemoryOf(const PlacedStage& stage, const PlacementCost& cost) {
  double most = 0;
  for (const int device : stage.devices) {
    most = std::max(most, cost.memory_bytes[device]);
  }
  return most;
}

std::vector<std::string> WorkersOf(const PlanProblem& problem,
                                   const PlacedStage& stage) {
  std::vector<std::string> names;
  for (const int device : stage.devices) {
    names.push_back(problem.devices[device].name);
  }
  return names;
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
  Document::List stages;
  for (size_t s = 0; s < answer.placement.size(); ++s) {
    const PlacedStage& stage = answer.placement[s];
    Document::List shares;
    for (const double share : stage.shares) shares.emplace_back(share);
    stages.push_back(
        Document::Map{{"first_layer", stage.layers.first},
                      {"last_layer", stage.layers.last},
                      {"workers", TextList(WorkersOf(problem, stage))},
                      {"shares", std::move(shares)},
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
  if (times->assumed) {
    return Document::Map{{"interval_level", Document()},
                         {"low_factor", Document()},
                         {"high_factor", Document()}};
  }
  return Document::Map{{"interval_level", kIntervalLevel},
                       {"low_factor", times->low_factor},
                       {"high_factor", times->high_factor}};
}

// ", proved optimal", and for what.
std::string ProvedText(const PlanQuestion& question, const PlanAnswer& answer) {
  if (!answer.exact) return "";
  const std::optional<PredictedTimes>& times = question.inputs.predicted;
  if (!times.has_value()) return ", proved optimal";
  return absl::StrCat(", proved optimal for predicted layer times only (",
                      IntervalText(*times), ")");
}

// What follows `policy`.
Document::Map AnswerMap(const PlanQuestion& question,
                        const PlanAnswer& answer) {
  const PlanProblem& problem = question.inputs.problem;
  Document::List transfers;
  for (const double seconds : answer.cost.transfer_seconds) {
    transfers.emplace_back(seconds);
  }
  return {{"bottleneck_seconds", answer.cost.bottleneck_seconds},
          {"step_seconds", answer.cost.step_seconds},
          {"lower_bound_seconds", answer.lower_bound_seconds},
          {"gap", answer.gap},
          {"exact", Document(answer.exact)},
          {"predicted", PredictedDocument(question.inputs.predicted)},
          {"stages", StagesDocument(problem, answer)},
          {"transfer_seconds", std::move(transfers)},
          {"left_out", TextList(NamesLeftOut(problem, answer.placement))},
          {"samples_per_second", SamplesPerSecond(question, answer.cost)},
          {"why", answer.why}};
}

// What every policy was asked.
void AddQuestion(const PlanQuestion& question, Document::Map& map) {
  const PlanProblem& problem = question.inputs.problem;
  map.emplace_back("source", question.inputs.source);
  map.emplace_back("measured", Document(question.inputs.measured));
  map.emplace_back("model", TextOrNull(question.model));
  map.emplace_back("schedule", question.schedule);
  map.emplace_back("micro_batches", problem.micro_batches);
  map.emplace_back("training", Document(problem.training));
}

void Append(Document::Map from, Document::Map& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()),
            std::make_move_iterator(from.end()));
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
  Table table({{"stage", kRight},
               {"layers"},
               {"from"},
               {"to"},
               {"workers"},
               {"shares"},
               {"time", kRight},
               {"memory", kRight}});
  for (size_t s = 0; s < answer.placement.size(); ++s) {
    const PlacedStage& stage = answer.placement[s];
    table.AddRow({absl::StrCat(s),
                  absl::StrCat(stage.layers.first, "-", stage.layers.last - 1),
                  problem.layers[stage.layers.first].name,
                  problem.layers[stage.layers.last - 1].name,
                  Few(WorkersOf(problem, stage)), SharesText(stage),
                  HumanSeconds(answer.cost.stage_seconds[s]),
                  HumanBytes(MemoryOf(stage, answer.cost))});
  }
  return table.Render();
}

std::string StreamText(const PlanProblem& problem) {
  const char* what = problem.training ? "training" : "inference";
  if (problem.micro_batches == 0) {
    return absl::StrCat("an endless stream, ", what);
  }
  return absl::StrCat(
      problem.micro_batches,
      problem.micro_batches == 1 ? " micro-batch, " : " micro-batches, ", what);
}

// In a column; what the times are worth is said below the table.
std::string OptimalText(const PlanQuestion& question,
                        const PlanAnswer& answer) {
  if (!answer.exact) return "";
  return question.inputs.predicted.has_value() ? "as predicted" : "yes";
}

// "3 on 2 workers: some hold several"; nothing where none does.
std::string SharedText(const PlanQuestion& question, size_t stages) {
  const size_t workers = question.inputs.problem.devices.size();
  if (stages <= workers) return "";
  return absl::StrCat(stages, " on ", workers,
                      workers == 1 ? " worker, which holds them all"
                                   : " workers: some hold several");
}

std::string StagesOf(const PlanAnswer& answer) {
  return absl::StrJoin(answer.placement, "-",
                       [](std::string* out, const PlacedStage& stage) {
                         absl::StrAppend(out, stage.devices.size());
                       });
}

}  // namespace

std::string GapText(double gap) {
  if (!std::isfinite(gap)) return "-";
  return absl::StrFormat("%.1f %%", 100 * gap);
}

Document ToDocument(const PlanQuestion& question, const PolicyRun& run) {
  Document::Map map = {{"policy", run.policy}};
  Append(AnswerMap(question, *run.answer), map);
  map.emplace_back("planning_seconds", run.planning_seconds);
  AddQuestion(question, map);
  return map;
}

Document::List ToDocuments(const PlanQuestion& question,
                           const std::vector<PolicyRun>& runs) {
  Document::List list;
  for (const PolicyRun& run : runs) {
    Document::Map map = {{"policy", run.policy}};
    if (run.answer.has_value()) {
      Append(AnswerMap(question, *run.answer), map);
    }
    map.emplace_back("planning_seconds", run.planning_seconds);
    map.emplace_back("refused", TextOrNull(std::string(run.refused.message())));
    AddQuestion(question, map);
    list.emplace_back(std::move(map));
  }
  return list;
}

std::string RenderPlan(const PlanQuestion& question, const PolicyRun& run) {
  const PlanProblem& problem = question.inputs.problem;
  const PlanAnswer& answer = *run.answer;
  const bool endless = problem.micro_batches == 0;
  return absl::StrCat(
      StagesTable(problem, answer), "\n",
      RenderFacts(
          {{"policy", absl::StrCat(run.policy, ProvedText(question, answer))},
           {"stages", SharedText(question, answer.placement.size())},
           {endless ? "micro-batch" : "step",
            absl::StrCat(HumanSeconds(answer.cost.step_seconds), " (",
                         StreamText(problem), ", ", question.schedule, ")")},
           {"bottleneck", HumanSeconds(answer.cost.bottleneck_seconds)},
           {"lower bound",
            absl::StrCat(HumanSeconds(answer.lower_bound_seconds), ", gap ",
                         GapText(answer.gap))},
           {"left out", Few(NamesLeftOut(problem, answer.placement))},
           {"why", answer.why},
           {"from", question.inputs.source}}));
}

std::string RenderComparison(const PlanQuestion& question,
                             const std::vector<PolicyRun>& runs) {
  Table table({{"policy"},
               {"step", kRight},
               {"bottleneck", kRight},
               {"gap", kRight},
               {"optimal"},
               {"stages", kRight},
               {"replicas"},
               {"planned in", kRight},
               {"why not"}});
  for (const PolicyRun& run : runs) {
    const std::string took = HumanSeconds(run.planning_seconds);
    if (!run.answer.has_value()) {
      table.AddRow({run.policy, "-", "-", "-", "", "-", "", took,
                    std::string(run.refused.message())});
      continue;
    }
    const PlanAnswer& answer = *run.answer;
    table.AddRow({run.policy, HumanSeconds(answer.cost.step_seconds),
                  HumanSeconds(answer.cost.bottleneck_seconds),
                  GapText(answer.gap), OptimalText(question, answer),
                  absl::StrCat(answer.placement.size()), StagesOf(answer), took,
                  ""});
  }
  return absl::StrCat(
      table.Render(), "\n",
      RenderFacts({{"step", StreamText(question.inputs.problem)},
                   {"stages", SharedText(question, question.shared_stages)},
                   {"from", question.inputs.source}}));
}

}  // namespace paceline
