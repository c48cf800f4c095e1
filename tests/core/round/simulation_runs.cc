#include "tests/core/round/simulation_runs.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace paceline::round_world {
namespace {

constexpr uint64_t kProgressEvery = 50'000;

RunNumbers NumbersOf(uint64_t seed, const WorldResult& result) {
  RunNumbers one;
  one.schedules = 1;
  one.events = result.events;
  one.rounds = one.fewest_rounds = result.rounds;
  one.voids = result.voids;
  one.views = result.views;
  one.attempts = result.attempts;
  one.faults = one.fewest_faults = result.faults;
  one.fewest_members = one.most_members = result.members;
  if (!result.violation.empty()) {
    one.broken = 1;
    one.broken_seed = seed;
    one.first_broken = absl::StrCat("seed ", seed, ": ", result.violation);
  }
  return one;
}

}  // namespace

void RunNumbers::Add(const RunNumbers& other) {
  schedules += other.schedules;
  events += other.events;
  rounds += other.rounds;
  voids += other.voids;
  views += other.views;
  attempts += other.attempts;
  faults += other.faults;
  fewest_rounds = std::min(fewest_rounds, other.fewest_rounds);
  fewest_faults = std::min(fewest_faults, other.fewest_faults);
  fewest_members = std::min(fewest_members, other.fewest_members);
  most_members = std::max(most_members, other.most_members);
  broken += other.broken;
  if (other.broken_seed < broken_seed) {
    broken_seed = other.broken_seed;
    first_broken = other.first_broken;
  }
}

Totals RunSchedules(const WorldOptions& options, uint64_t first, uint64_t count,
                    unsigned threads,
                    const std::function<void(uint64_t done)>& progress) {
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Totals totals;
  const auto work = [&] {
    Totals mine;
    WorldOptions each = options;
    for (;;) {
      const uint64_t index = next++;
      if (index >= count) break;
      each.seed = first + index;
      const WorldResult result = RunWorld(each, &mine.coverage);
      mine.numbers.Add(NumbersOf(each.seed, result));
      if (mine.numbers.broken > 0) next = count;
      if (progress && (index + 1) % kProgressEvery == 0) progress(index + 1);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    totals.numbers.Add(mine.numbers);
    totals.coverage.Add(mine.coverage);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return totals;
}

}  // namespace paceline::round_world
