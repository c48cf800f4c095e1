#include "tests/core/recover/simulation_runs.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace paceline::recover_world {

void Totals::Add(const WorldResult& result, uint64_t seed) {
  ++schedules;
  events += result.events;
  steps += result.steps;
  attempts += result.attempts;
  faults += result.faults;
  floors += result.floors;
  ++ends[static_cast<int>(result.end)];
  if (result.violation.empty() || seed >= broken_seed) return;
  broken_seed = seed;
  first_broken = absl::StrCat("seed ", seed, ": ", result.violation);
}

void Totals::Add(const Totals& other) {
  schedules += other.schedules;
  events += other.events;
  steps += other.steps;
  attempts += other.attempts;
  faults += other.faults;
  floors += other.floors;
  for (int i = 0; i < kJobPhases; ++i) ends[i] += other.ends[i];
  coverage.Add(other.coverage);
  if (other.broken_seed >= broken_seed) return;
  broken_seed = other.broken_seed;
  first_broken = other.first_broken;
}

Totals RunSchedules(const WorldOptions& options, uint64_t first, uint64_t count,
                    unsigned threads) {
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Totals totals;
  const auto work = [&] {
    Totals mine;
    WorldOptions each = options;
    for (uint64_t index = next++; index < count; index = next++) {
      each.seed = first + index;
      mine.Add(RunWorld(each, &mine.coverage), each.seed);
      if (!mine.first_broken.empty()) next = count;
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

}  // namespace paceline::recover_world
