// The command line of `paceline bench`.
#pragma once

#include <CLI/CLI.hpp>

#include "client/bench/bench_commands.h"

namespace paceline {

void AddBenchInferOptions(CLI::App* app, BenchOptions& options);
void AddBenchTrainOptions(CLI::App* app, BenchOptions& options);

}  // namespace paceline
