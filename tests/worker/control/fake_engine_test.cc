#include "tests/support/pipeline/parallel_engine_suite.h"
#include "tests/support/pipeline/stage_engine_suite.h"
#include "tests/worker/control/fake_pipeline.h"

namespace paceline {

INSTANTIATE_TEST_SUITE_P(FakeEngine, StageEngineSuite,
                         ::testing::Values(MakeFake));
INSTANTIATE_TEST_SUITE_P(FakeEngine, ParallelEngineSuite,
                         ::testing::Values(MakeFake));

}  // namespace paceline
