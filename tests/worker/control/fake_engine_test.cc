#include "tests/support/pipeline/fake_engine.h"

#include "tests/support/pipeline/parallel_engine_suite.h"
#include "tests/support/pipeline/stage_engine_suite.h"

namespace paceline {
namespace {

absl::StatusOr<std::unique_ptr<StageEngine>> MakeFake(
    const EngineOptions& options) {
  return std::make_unique<FakeEngine>(options);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(FakeEngine, StageEngineSuite,
                         ::testing::Values(MakeFake));
INSTANTIATE_TEST_SUITE_P(FakeEngine, ParallelEngineSuite,
                         ::testing::Values(MakeFake));

}  // namespace paceline
