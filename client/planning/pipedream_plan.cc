#include "client/planning/pipedream_plan.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/command.h"
#include "client/planning/plan_render.h"
#include "client/planning/profile_problem.h"
#include "client/table.h"
#include "client/text.h"
#include "core/base/status_macros.h"
#include "core/plan/machines.h"
#include "core/plan/pipedream/model.h"
#include "core/plan/pipedream/state_space.h"

namespace paceline {
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
  Document::List stages;
  for (const PipedreamStage& stage : answer.stages) {
    Document::List workers, shares, nodes;
    for (const int device : stage.devices) {
      workers.emplace_back(DeviceName(solved.machines, device));
      shares.emplace_back(1.0 / static_cast<double>(stage.devices.size()));
    }
    for (int n = stage.nodes.first; n < stage.nodes.last; ++n) {
      nodes.emplace_back(solved.graph.nodes[answer.node_order[n]].id);
    }
    stages.push_back(Document::Map{{"first_layer", stage.nodes.first},
                                   {"last_layer", stage.nodes.last},
                                   {"workers", std::move(workers)},
                                   {"shares", std::move(shares)},
                                   {"replicas", stage.devices.size()},
                                   {"seconds", stage.seconds},
                                   {"memory_bytes", stage.memory_bytes},
                                   {"transfer_seconds", stage.transfer_seconds},
                                   {"versions", stage.versions},
                                   {"nodes", std::move(nodes)}});
  }
  return stages;
}

std::string SourceText(const ProfileSource& source, const Solved& solved) {
  return absl::StrCat(source.name, ": ", solved.graph.nodes.size(), " nodes");
}

Document ToDocument(const ProfileSource& source, const PlanOptions& options,
                    const Solved& solved) {
  const PipedreamAnswer& answer = solved.answer;
  return Document::Map{{"policy", "pipedream"},
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
  constexpr Table::Align kRight = Table::Align::kRight;
  const PipedreamAnswer& answer = solved.answer;
  Table table({{"stage", kRight},
               {"nodes", kRight},
               {"from"},
               {"to"},
               {"replicas", kRight},
               {"time", kRight},
               {"transfers", kRight},
               {"versions", kRight},
               {"memory", kRight}});
  for (size_t s = 0; s < answer.stages.size(); ++s) {
    const PipedreamStage& stage = answer.stages[s];
    const auto node = [&](int at) -> const ProfileNode& {
      return solved.graph.nodes[answer.node_order[at]];
    };
    table.AddRow(
        {absl::StrCat(s), absl::StrCat(stage.nodes.last - stage.nodes.first),
         node(stage.nodes.first).id, node(stage.nodes.last - 1).id,
         absl::StrCat(stage.devices.size()), HumanSeconds(stage.seconds),
         HumanSeconds(stage.transfer_seconds), absl::StrCat(stage.versions),
         HumanBytes(stage.memory_bytes)});
  }
  return absl::StrCat(
      table.Render(), "\n",
      RenderFacts(
          {{"cost model",
            "pipedream (Narayanan et al. 2019), an endless "
            "stream"},
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

ExitCode PipedreamPlanCommand(Console& console, const Clock& clock,
                              const ProfileSource& source,
                              const PlanOptions& options) {
  const auto solved = Solve(source, options, clock);
  if (!solved.ok()) {
    ReportError(console, solved.status());
    return SubmitExitCodeFor(solved.status());
  }
  if (console.table()) {
    console.Print(Render(source, *solved));
  } else {
    console.Print(ToDocument(source, options, *solved));
  }
  return kExitOk;
}

}  // namespace paceline
