// `paceline plan`.
#pragma once

#include <vector>

#include "client/commands/command.h"
#include "client/commands/plan/plan_question.h"
#include "client/files/profile_file.h"
#include "client/render/console.h"
#include "core/base/clock.h"

namespace paceline {

// Asks the question's policy, or with options.compare all of them, prints, and
// writes the plan (the best of all) to options.save, unless that is empty.
//
// Ends with kExitUsage for a question that is wrong, kExitUnplaceable when
// there is no device or nothing fits; a comparison only when no policy has an
// answer.
ExitCode PlanCommand(Console& console, const Clock& clock,
                     const PlanQuestion& question, const PlanOptions& options);

// A plan beside its devices as one group.
struct PlanBesideGroup {
  std::string configuration;      // replicas of each stage: "13-2-1"
  double bottleneck_seconds = 0;  // a micro-batch
  double group_seconds = 0;  // the same, of all devices in data parallelism
  double one_device_seconds = 0;
  // For a simulation; the pipedream cost model has a layer a stage.
  PlanProblem problem = {};
  Placement placement = {};
};

// All layers on each of the problem's devices.
Placement GroupPlacement(const PlanProblem& problem);

// The answer for `source`, by either cost model; `options` are checked.
// Errors: InvalidArgument    a question that is wrong
//         ResourceExhausted  nothing fits the memory
absl::StatusOr<PlanBesideGroup> PlanForStudy(const ProfileSource& source,
                                             const PlanOptions& options,
                                             const Clock& clock);

// `paceline plan --cost-model pipedream`: what PipeDream's released optimizer
// would answer, its faults mended.

// Ends with kExitUsage for machines or a profile that are wrong,
// kExitUnplaceable when nothing fits the memory.
ExitCode PipedreamPlanCommand(Console& console, const Clock& clock,
                              const ProfileSource& source,
                              const PlanOptions& options);

// A chain of layers as the graph that PipeDream plans for.
GraphProfile ChainGraph(const std::vector<LayerCost>& layers);

}  // namespace paceline
