#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

JobSpec ParallelSpec() {
  JobSpec spec = SpecOf(1);
  spec.train.micro_batch = 4;
  spec.aggregation.mode = "rolling";
  return spec;
}

TEST(SubmitFaults, OfAWorkerThatIsNotAttachedAreRefused) {
  Mesh mesh;
  mesh.Attach("w1", 1);
  mesh.Attach("pi-two", 2);
  JobSpec spec = ParallelSpec();
  spec.faults = {{.worker = "pi-twp", .kind = "kill"}};

  mesh.Submit(spec);

  EXPECT_TRUE(absl::IsInvalidArgument(mesh.submit_error()));
  EXPECT_THAT(std::string(mesh.submit_error().message()),
              HasSubstr("faults[0].worker: unknown worker 'pi-twp': none of "
                        "that name is attached now; did you mean 'pi-two'?"));
}

TEST(SubmitFaults, OfAttachedWorkersAreTaken) {
  Mesh mesh;
  mesh.Attach("w1", 1);
  JobSpec spec = ParallelSpec();
  spec.faults = {{.worker = "w1", .kind = "nan"}};

  mesh.Submit(spec);

  EXPECT_TRUE(mesh.submit_error().ok()) << mesh.submit_error();
}

}  // namespace
}  // namespace paceline
