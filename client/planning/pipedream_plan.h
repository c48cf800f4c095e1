// `paceline plan --cost-model pipedream`: what PipeDream's released optimizer
// would answer, its faults mended.
#pragma once

#include "client/console.h"
#include "client/exit_code.h"
#include "client/planning/plan_options.h"
#include "client/planning/profile_source.h"
#include "core/base/clock.h"

namespace paceline {

// Ends with kExitUsage for machines or a profile that are wrong,
// kExitUnplaceable when nothing fits the memory.
ExitCode PipedreamPlanCommand(Console& console, const Clock& clock,
                              const ProfileSource& source,
                              const PlanOptions& options);

// A chain of layers as the graph that PipeDream plans for.
GraphProfile ChainGraph(const std::vector<LayerCost>& layers);

}  // namespace paceline
