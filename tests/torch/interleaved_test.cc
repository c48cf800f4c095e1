// Several stages a worker: with bf16 and activations computed once more, the
// same bytes as one stage.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/pipeline_harness.h"
#include "tests/torch/stream_request.h"

namespace paceline {
namespace {

PipelineRequest Request(const std::string& model, std::vector<int> worker_of,
                        const std::string& schedule) {
  PipelineRequest request = StreamRequest(model, std::move(worker_of));
  request.spec.pipeline.schedule = schedule;
  request.spec.train.micro_batch = 6;  // four of them: a multiple of workers
  request.spec.train.epochs = 1;
  return request;
}

class Interleaved : public ::testing::TestWithParam<const char*> {};

TEST_P(Interleaved, Bf16AndCheckpointsEndWithTheBytesOfOneStage) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* word : {"none", "stage", "every-2"}) {
      PipelineRequest one = Request(GetParam(), {0}, "gpipe");
      one.spec.precision = precision;
      PipelineRequest cut =
          Request(GetParam(), {0, 1, 0, 1}, "interleaved-1f1b");
      cut.spec.precision = precision;
      cut.spec.train.activation_checkpointing = word;

      const auto expected = RunPipeline(one);
      const auto actual = RunPipeline(cut);

      ASSERT_TRUE(expected.ok()) << expected.status();
      ASSERT_TRUE(actual.ok()) << actual.status();
      EXPECT_EQ(actual->weights, expected->weights) << precision << " " << word;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Interleaved,
                         ::testing::Values("lenet", "resnet18"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace paceline
