// Many schedules of faults against core/round, or one once more, or the faults
// of a job's file: --help.  Exits 1 when an invariant was broken, and prints
// the seed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "client/files/job_file.h"
#include "tests/core/round/simulation_runs.h"

namespace paceline::round_world {
namespace {

constexpr char kUsage[] =
    R"(usage: round_simulation [--first SEED] [--schedules N] [--threads N]
                        [--coverage] [--flaw NUMBER]
       round_simulation --seed SEED [--trace] [--flaw NUMBER]
       round_simulation --faults JOB.yaml [--schedules N] [--seed SEED]
                        [--trace]

  --schedules N    so many, with seeds from --first on (default: 1000)
  --threads N      at a time (default: one for each core)
  --coverage       what came up, as tables; fails where something never did
  --seed SEED      this one schedule
  --trace          what happens in it, line by line
  --flaw NUMBER    with this mistake in the core: tests/core/round/flaw.h
  --faults JOB     not what seeds draw, but the `faults:` of a job's file, with
                   its members, shards, min_parts and deadline
)";

struct Arguments {
  WorldOptions world;
  uint64_t first = 1;
  uint64_t schedules = 1000;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  bool coverage = false;
  std::string faults;
};

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

void PrintNumbers(const RunNumbers& n, double seconds) {
  std::printf(
      "%lld schedules of %d to %d members\n"
      "%lld rounds, at least %lld in each; %lld void ones beside them\n"
      "%lld faults, at least %lld in each; %lld views, %lld attempts\n"
      "%lld events in %.0f s: %.0f events/s\n",
      static_cast<long long>(n.schedules), n.fewest_members, n.most_members,
      static_cast<long long>(n.rounds), static_cast<long long>(n.fewest_rounds),
      static_cast<long long>(n.voids), static_cast<long long>(n.faults),
      static_cast<long long>(n.fewest_faults), static_cast<long long>(n.views),
      static_cast<long long>(n.attempts), static_cast<long long>(n.events),
      seconds, static_cast<double>(n.events) / seconds);
}

int RunSeeds(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  const Totals totals =
      RunSchedules(arguments.world, arguments.first, arguments.schedules,
                   arguments.threads, [begin](uint64_t done) {
                     std::fprintf(stderr, "%llu schedules, %.0f s\n",
                                  static_cast<unsigned long long>(done),
                                  SecondsSince(begin));
                   });
  const double seconds = SecondsSince(begin);
  std::vector<std::string> problems;
  if (arguments.coverage) {
    std::printf("%s\n", totals.coverage.Text().c_str());
    problems = totals.coverage.Problems(totals.numbers.schedules);
    for (const std::string& problem : problems) {
      std::printf("%s\n", problem.c_str());
    }
  }
  const RunNumbers& numbers = totals.numbers;
  PrintNumbers(numbers, seconds);
  std::printf("%s%sbroken %lld\n", numbers.first_broken.c_str(),
              numbers.first_broken.empty() ? "" : "\n",
              static_cast<long long>(numbers.broken));
  const bool enough = numbers.fewest_rounds >= arguments.world.rounds &&
                      numbers.fewest_faults >= arguments.world.faults;
  return numbers.broken == 0 && enough && problems.empty() ? 0 : 1;
}

void PrintTally(uint64_t seed, const WorldResult& result) {
  std::printf(
      "seed %llu: %lld rounds, %lld void, %lld views, %lld attempts\n"
      "  %-12s %8s %8s %8s %10s %10s\n",
      static_cast<unsigned long long>(seed),
      static_cast<long long>(result.rounds),
      static_cast<long long>(result.voids),
      static_cast<long long>(result.views),
      static_cast<long long>(result.attempts), "worker", "parts", "lies",
      "refused", "last step", "processes");
  for (const WorkerTally& worker : result.workers) {
    std::printf("  %-12s %8lld %8lld %8lld %10lld %10d%s\n",
                worker.name.c_str(), static_cast<long long>(worker.parts),
                static_cast<long long>(worker.lies),
                static_cast<long long>(worker.refused),
                static_cast<long long>(worker.last_step), worker.processes,
                worker.lives ? "" : ", dead");
  }
}

int RunScript(const Arguments& arguments) {
  const absl::StatusOr<std::string> text = ReadJobFile(arguments.faults);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", std::string(text.status().message()).c_str());
    return 2;
  }
  const absl::StatusOr<ParsedJob> job =
      ParseJobFile({arguments.faults, *text, {}});
  const absl::StatusOr<JobScript> script =
      job.ok() ? ScriptOf(job->spec) : absl::StatusOr<JobScript>(job.status());
  if (!script.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(script.status().message()).c_str());
    return 2;
  }
  WorldOptions options = arguments.world;
  options.script = *script;
  for (uint64_t i = 0; i < arguments.schedules; ++i) {
    options.seed = arguments.first + i;
    const WorldResult result = RunWorld(options, nullptr);
    PrintTally(options.seed, result);
    if (result.violation.empty()) continue;
    std::printf("seed %llu: %s\n",
                static_cast<unsigned long long>(options.seed),
                result.violation.c_str());
    return 1;
  }
  return 0;
}

// False: an argument that is none.
bool Parse(int argc, char** argv, Arguments& arguments) {
  bool counted = false;
  bool good = true;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) {
      return std::strcmp(argv[i], name) == 0 && i + 1 < argc;
    };
    const auto number = [&] {
      uint64_t value = 0;
      if (absl::SimpleAtoi(argv[++i], &value)) return value;
      std::fprintf(stderr, "%s wants a number, not '%s'\n", argv[i - 1],
                   argv[i]);
      good = false;
      return value;
    };
    if (std::strcmp(argv[i], "--trace") == 0) {
      arguments.world.trace = true;
    } else if (std::strcmp(argv[i], "--coverage") == 0) {
      arguments.coverage = true;
    } else if (is("--seed")) {
      arguments.first = number();
      arguments.schedules = 1;
      counted = true;
    } else if (is("--first")) {
      arguments.first = number();
    } else if (is("--schedules")) {
      arguments.schedules = number();
      counted = true;
    } else if (is("--threads")) {
      arguments.threads =
          static_cast<unsigned>(std::clamp<uint64_t>(number(), 1, 256));
    } else if (is("--flaw")) {
      const uint64_t flaw = number();
      if (flaw > static_cast<uint64_t>(RoundFlaw::kAdoptOlderView)) {
        std::fprintf(stderr, "tests/core/round/flaw.h has no flaw %llu\n",
                     static_cast<unsigned long long>(flaw));
        return false;
      }
      arguments.world.flaw = static_cast<RoundFlaw>(flaw);
    } else if (is("--faults")) {
      arguments.faults = argv[++i];
    } else {
      std::fprintf(stderr, "unknown argument '%s'\n", argv[i]);
      return false;
    }
  }
  if (!arguments.faults.empty() && !counted) arguments.schedules = 1;
  if (arguments.world.trace && arguments.schedules > 1) {
    std::fprintf(stderr, "--trace is of one schedule: add --seed\n");
    return false;
  }
  return good;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::printf("%s", kUsage);
    return 0;
  }
  if (!Parse(argc, argv, arguments)) {
    std::fprintf(stderr, "%s", kUsage);
    return 2;
  }
  return arguments.faults.empty() ? RunSeeds(arguments) : RunScript(arguments);
}

}  // namespace
}  // namespace paceline::round_world

int main(int argc, char** argv) {
  return paceline::round_world::Main(argc, argv);
}
