// The part of the command line that profiles, plans, predicts and simulates.
// With
// ../options, the only place that sees CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include "client/planning/plan_options.h"
#include "client/planning/predict_model.h"
#include "client/planning/profile_commands.h"
#include "client/simulate_commands.h"

namespace paceline {

// Each adds its options to the subcommand `app`; `options` outlives it.
void AddProfileOptions(CLI::App* app, ProfileOptions& options);
void AddPlanOptions(CLI::App* app, PlanOptions& options);
void AddPredictModelOptions(CLI::App* app, PredictModelOptions& options);
void AddSimulateOptions(CLI::App* simulate, SimulateFlags& flags,
                        std::string& plan_file);

}  // namespace paceline
