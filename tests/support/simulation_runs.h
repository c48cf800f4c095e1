// Many simulated schedules, on all cores.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline {

// Runs `run` for `count` seeds from `first` on and adds what it returns to the
// totals; no more once one has broken something.
//   run  of a seed and of a Coverage; called on any thread
//   Totals  has Add(result, seed), a Coverage `coverage`, and `first_broken`,
//           which is empty as long as nothing is broken
template <typename Totals, typename Run>
Totals RunSeeds(uint64_t first, uint64_t count, unsigned threads,
                const Run& run) {
  std::atomic<uint64_t> next = 0;
  std::mutex mutex;
  Totals totals;
  const auto work = [&] {
    decltype(totals.coverage) coverage;
    for (uint64_t index = next++; index < count; index = next++) {
      const uint64_t seed = first + index;
      const auto result = run(seed, &coverage);
      const std::lock_guard<std::mutex> lock(mutex);
      totals.Add(result, seed);
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

}  // namespace paceline
