// The tests that every simulated world has.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/core/world/runs.h"

namespace paceline::world {

// A mistake on purpose, and the schedules within which it must be found.
template <typename Flaw>
struct PlantedFlaw {
  Flaw flaw;
  uint64_t schedules;
  // The first one's seed: where few find it, near one that does.
  uint64_t first = 1;
};
// For ctest's list of names.
template <typename Flaw>
void PrintTo(const PlantedFlaw<Flaw>& planted, std::ostream* out) {
  *out << "flaw " << static_cast<int>(planted.flaw);
}

template <typename Flaw, typename WorldOptions, typename WorldResult>
void ExpectCaught(const PlantedFlaw<Flaw>& planted,
                  WorldResult (*run)(const WorldOptions&, Coverage*)) {
  WorldOptions options;
  options.flaw = planted.flaw;
  EXPECT_NE(
      RunSeeds(options, planted.first, planted.schedules, 2, run).first_broken,
      "");
}

template <typename WorldOptions, typename WorldResult>
void ExpectRight(uint64_t seed,
                 WorldResult (*run)(const WorldOptions&, Coverage*)) {
  WorldOptions options;
  options.seed = seed;
  EXPECT_EQ(run(options, nullptr).violation, "");
}

// Coverage changes nothing.
template <typename WorldOptions, typename WorldResult>
void ExpectTheSameWhoeverWatches(WorldResult (*run)(const WorldOptions&,
                                                    Coverage*)) {
  WorldOptions options;
  options.seed = 7;
  Coverage coverage = WorldResult::NewCoverage();

  const WorldResult first = run(options, nullptr);
  const WorldResult again = run(options, &coverage);

  for (const auto& [name, value, least] : WorldResult::Counts()) {
    EXPECT_EQ(first.*value, again.*value) << name;
  }
}

}  // namespace paceline::world
