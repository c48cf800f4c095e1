#include "client/bench/decided_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Such keys were taken without a word, and written over.
TEST(BenchSets, ThatTheBenchDecidesAreRefusedWithTheFlagToUse) {
  const struct {
    const char* set;
    const char* infer;  // null: it counts
    const char* train;
  } kCases[] = {
      {"kind=train", "bench train", "bench train"},
      {"pipeline.stages=3", "--stages", "--stages"},
      {"pipeline.policy=equal", "--policy", "--policy"},
      {"pipeline.cuts=[1]", "--policy", "--policy"},
      {"pipeline.schedule=gpipe", "bench train", "--schedule"},
      {"infer.micro_batch=8", "--micro-batch", "bench infer"},
      {"infer.samples=8", "--micro-batches", "bench infer"},
      {"infer.outputs=true", "not kept", "bench infer"},
      {"train.micro_batch=8", "--micro-batch", "--micro-batch"},
      {"train.batch=8", "--micro-batches", "--micro-batches"},
      {"train.steps=8", "bench train", "--steps"},
      {"train.optimizer.name=adamw", "bench train", nullptr},
      {"train.seed=8", nullptr, nullptr},
      {"model.depth=6", nullptr, nullptr},
      {"model.name=vit", "--model", "--model"},
      {"pipeline.codec=bf16", nullptr, nullptr},
      {"pipeline.stagesx=8", nullptr, nullptr},
  };
  for (const auto& one : kCases) {
    for (const bool train : {false, true}) {
      const char* const instead = train ? one.train : one.infer;

      const absl::Status status = CheckBenchSets({one.set}, train);

      EXPECT_EQ(status.ok(), instead == nullptr) << one.set << train;
      if (instead == nullptr) continue;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr(one.set), HasSubstr(instead)));
    }
  }
}

TEST(BenchSets, AreAllNamedInOneMessage) {
  const absl::Status status =
      CheckBenchSets({"kind=infer", "model.depth=2", "train.steps=4"}, true);

  EXPECT_THAT(status.message(), AllOf(HasSubstr("--set kind=infer"),
                                      HasSubstr("\n--set train.steps=4")));
}

}  // namespace
}  // namespace paceline
