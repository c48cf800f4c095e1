// Many schedules of faults against core/round, or one once more, or the faults
// of a job's file: --help.  Exits 1 when an invariant was broken, and prints
// the seed.
#include <cstdio>
#include <string>

#include "client/files/job_file.h"
#include "tests/core/round/world/world.h"
#include "tests/core/world/program.h"

namespace paceline::round_world {
namespace {

void PrintTally(uint64_t seed, const WorldResult& result) {
  absl::PrintF(
      "seed %d: %d rounds, %d void, %d views, %d attempts\n"
      "  %-12s %8s %8s %8s %10s %10s\n",
      seed, result.rounds, result.voids, result.views, result.attempts,
      "worker", "parts", "lies", "refused", "last step", "processes");
  for (const WorkerTally& worker : result.workers) {
    absl::PrintF("  %-12s %8d %8d %8d %10d %10d%s\n", worker.name, worker.parts,
                 worker.lies, worker.refused, worker.last_step,
                 worker.processes, worker.lives ? "" : ", dead");
  }
}

absl::StatusOr<JobScript> ReadScript(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadJobFile(path);
  if (!text.ok()) return text.status();
  const absl::StatusOr<ParsedJob> job = ParseJobFile({path, *text, {}});
  if (!job.ok()) return job.status();
  return ScriptOf(job->spec);
}

int RunScript(const world::Arguments& arguments, WorldOptions options,
              const std::string& path) {
  const absl::StatusOr<JobScript> script = ReadScript(path);
  if (!script.ok()) {
    absl::FPrintF(stderr, "%s\n", script.status().message());
    return world::kUsageError;
  }
  options.script = *script;
  for (uint64_t i = 0; i < arguments.schedules; ++i) {
    options.seed = arguments.first + i;
    const WorldResult result = RunWorld(options, nullptr);
    PrintTally(options.seed, result);
    if (result.violation.empty()) continue;
    absl::PrintF("seed %d: %s\n", options.seed, result.violation);
    return 1;
  }
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Many schedules of faults against core/round, one of them once more, or "
      "the faults of a job's file.");
  std::string faults;
  app.add_option("--faults", faults,
                 "a job's file: not what seeds draw, but its `faults:`, with "
                 "its members, shards, min_parts and deadline; one schedule, "
                 "unless --schedules is given");
  world::Arguments arguments;
  const std::optional<int> ends = world::ParseArguments(
      app, argc, argv, static_cast<int>(RoundFlaw::kAdoptOlderView) + 1,
      arguments);
  if (ends.has_value()) return *ends;
  WorldOptions options;
  options.trace = arguments.trace;
  options.flaw = static_cast<RoundFlaw>(arguments.flaw);
  if (faults.empty()) return world::RunAndPrint(arguments, options, RunWorld);
  if (app.count("--schedules") == 0) arguments.schedules = 1;
  return RunScript(arguments, options, faults);
}

}  // namespace
}  // namespace paceline::round_world

int main(int argc, char** argv) {
  return paceline::round_world::Main(argc, argv);
}
