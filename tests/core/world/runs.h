// Many simulated schedules, on all cores, and what they sum up to.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/core/world/coverage.h"

namespace paceline::world {

// Every world is told this; a world's own options derive from it.
struct Options {
  uint64_t seed = 1;
  bool trace = false;  // to stdout
};

// One schedule; a world's own result derives from it.
struct Result {
  std::string violation;  // empty: none
  int64_t events = 0;
  int64_t faults = 0;  // that had an effect
};

// A number of a world's result that is summed up over schedules.
template <typename WorldResult>
struct Count {
  const char* name;
  int64_t WorldResult::*value;
  int64_t least = 0;  // in every schedule
};

// Sums over all schedules that were run.
//   WorldResult  has Counts(), a list of Count<WorldResult>, and NewCoverage()
template <typename WorldResult>
struct Totals {
  int64_t schedules = 0;
  int64_t broken = 0;
  WorldResult sum, fewest, most;  // of each number on its own
  std::string first_broken;       // "seed 17: ..."; of the lowest seed
  uint64_t broken_seed = UINT64_MAX;
  Coverage coverage = WorldResult::NewCoverage();

  void Add(const WorldResult& result, uint64_t seed) {
    const bool is_first = schedules++ == 0;
    for (const auto& [name, value, least] : WorldResult::Counts()) {
      const int64_t each = result.*value;
      sum.*value += each;
      fewest.*value = is_first ? each : std::min(fewest.*value, each);
      most.*value = is_first ? each : std::max(most.*value, each);
    }
    if (result.violation.empty()) return;
    ++broken;
    if (seed >= broken_seed) return;
    broken_seed = seed;
    first_broken = absl::StrCat("seed ", seed, ": ", result.violation);
  }
};

// The schedules of `count` seeds from `first` on; no more once one has broken
// something.  What is found does not depend on `threads`, unless something
// breaks.
//   run       (const WorldOptions&, Coverage*); called on any thread
//   progress  called every 50,000 schedules, on any thread; may be null
template <typename WorldOptions, typename WorldResult>
Totals<WorldResult> RunSeeds(
    const WorldOptions& options, uint64_t first, uint64_t count,
    unsigned threads, WorldResult (*run)(const WorldOptions&, Coverage*),
    const std::function<void(uint64_t done)>& progress = nullptr) {
  constexpr uint64_t kProgressEvery = 50'000;
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Totals<WorldResult> totals;
  const auto work = [&] {
    Coverage coverage = WorldResult::NewCoverage();
    for (uint64_t index = next++; index < count; index = next++) {
      WorldOptions each = options;
      each.seed = first + index;
      const WorldResult result = run(each, &coverage);
      if (progress && (index + 1) % kProgressEvery == 0) progress(index + 1);
      const std::lock_guard<std::mutex> lock(mutex);
      totals.Add(result, each.seed);
      if (!totals.first_broken.empty()) next = count;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    totals.coverage.Add(coverage);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return totals;
}

}  // namespace paceline::world
