// The part of the command line that profiles, plans, predicts and simulates.
// With ../options, the only place that sees CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include "client/bench/bench.h"
#include "client/commands/plan_question.h"
#include "client/commands/predict.h"
#include "client/commands/profile.h"
#include "client/commands/simulate.h"

namespace paceline {

// Adds an option with a value, which the help calls `type`.
template <typename T>
CLI::Option* AddValue(CLI::App* app, const char* name, T& value,
                      const char* type, const char* help) {
  return app->add_option(name, value, help)->type_name(type);
}

// Each adds its options to the subcommand `app`; `options` outlives it.
void AddProfileOptions(CLI::App* app, ProfileOptions& options);
void AddPlanOptions(CLI::App* app, PlanOptions& options);
void AddPredictModelOptions(CLI::App* app, PredictModelOptions& options);
void AddSimulateOptions(CLI::App* simulate, SimulateFlags& flags,
                        std::string& plan_file);

// The command line of `paceline bench infer` and `bench train`.
void AddBenchOptions(CLI::App* app, bool train, BenchOptions& options);

}  // namespace paceline
