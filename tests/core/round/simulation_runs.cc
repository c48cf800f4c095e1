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

}  // namespace

void Totals::Add(const WorldResult& result, uint64_t seed) {
  ++schedules;
  events += result.events;
  rounds += result.rounds;
  voids += result.voids;
  views += result.views;
  attempts += result.attempts;
  faults += result.faults;
  fewest_rounds = std::min(fewest_rounds, result.rounds);
  fewest_faults = std::min<int64_t>(fewest_faults, result.faults);
  fewest_members = std::min(fewest_members, result.members);
  most_members = std::max(most_members, result.members);
  if (result.violation.empty()) return;
  ++broken;
  if (seed >= broken_seed) return;
  broken_seed = seed;
  first_broken = absl::StrCat("seed ", seed, ": ", result.violation);
}

void Totals::Add(const Totals& other) {
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
  coverage.Add(other.coverage);
  if (other.broken_seed >= broken_seed) return;
  broken_seed = other.broken_seed;
  first_broken = other.first_broken;
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
    for (uint64_t index = next++; index < count; index = next++) {
      each.seed = first + index;
      mine.Add(RunWorld(each, &mine.coverage), each.seed);
      if (mine.broken > 0) next = count;
      if (progress && (index + 1) % kProgressEvery == 0) progress(index + 1);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    totals.Add(mine);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  return totals;
}

}  // namespace paceline::round_world
