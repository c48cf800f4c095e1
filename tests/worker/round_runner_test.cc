// Whole members of a round group in one process: whatever happens, all who
// live end with the same bytes.
#include "worker/round_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/training_group.h"

namespace paceline {
namespace {

double Distance(const std::vector<NamedTensor>& a,
                const std::vector<NamedTensor>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = a[i].tensor.As<float>();
    const auto y = b[i].tensor.As<float>();
    for (size_t j = 0; j < x.size(); ++j) {
      most = std::max<double>(most, std::abs(x[j] - y[j]));
    }
  }
  return most;
}

TEST(RoundRunner, MembersEndWithTheSameBytesAndNearOneProcess) {
  TrainingGroup one(TrainingJob(), {1});
  one.Begin();
  one.ExpectAllDoneAndEqual();
  for (const std::vector<double>& shares :
       {std::vector<double>{1, 1, 1}, {3, 1, 2}}) {
    TrainingGroup group(TrainingJob(), shares);
    group.Begin();
    group.ExpectAllDoneAndEqual();

    EXPECT_LT(Distance(group.trainer(0).Weights(), one.trainer(0).Weights()),
              1e-5);
  }
}

}  // namespace
}  // namespace paceline
