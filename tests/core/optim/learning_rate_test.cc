#include <utility>
#include <vector>

#include "core/job/spec/job_spec.h"
#include "core/optim/optimizer.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

struct Case {
  LearningRateSpec spec;
  int64_t total_steps;
  std::vector<std::pair<int64_t, double>> rates;  // by step
};

TEST(LearningRate, IsWhatTheScheduleAndTheWarmUpSay) {
  const Case cases[] = {
      {{.base = 0.8, .schedule = "constant"}, 100, {{0, 0.8}, {99, 0.8}}},
      // The last step of the warm-up has the base.
      {{.base = 0.8, .schedule = "constant", .warmup_steps = 4},
       100,
       {{0, 0.2}, {1, 0.4}, {3, 0.8}, {4, 0.8}}},
      {{.base = 0.8, .schedule = "cosine", .minimum = 0.2},
       100,
       {{0, 0.8}, {50, 0.5}, {100, 0.2}, {1000, 0.2}}},
      // Counted from the end of the warm-up.
      {{.base = 0.8, .schedule = "cosine", .warmup_steps = 20},
       120,
       {{19, 0.8}, {20, 0.8}, {70, 0.4}}},
      // A warm-up that is as long as the job.
      {{.base = 0.8, .schedule = "cosine", .warmup_steps = 10},
       10,
       {{9, 0.8}, {10, 0.8}}},
      {{.base = 0.8,
        .schedule = "step",
        .warmup_steps = 2,
        .step_every = 10,
        .gamma = 0.5},
       100,
       {{2, 0.8}, {11, 0.8}, {12, 0.4}, {32, 0.1}}}};
  for (const Case& each : cases) {
    for (const auto& [step, rate] : each.rates) {
      EXPECT_NEAR(LearningRate(each.spec, step, each.total_steps), rate, 1e-12)
          << each.spec.schedule << " " << step;
    }
  }
}

}  // namespace
}  // namespace paceline
