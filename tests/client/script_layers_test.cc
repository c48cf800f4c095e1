#include "client/planning/script_layers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/measure_fakes.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

JobSpec Script() {
  JobSpec spec;
  spec.model.name = kScriptModel;
  spec.model.file = "/net.pt";
  return spec;
}

ProfileProgress Waiting() {
  ProfileProgress progress;
  progress.waiting = {"layers on w1: waits for worker w1: its job"};
  return progress;
}

ProfileProgress Found() {
  ProfileProgress progress;
  progress.script.emplace();
  progress.script->sha256 = "abc";
  progress.script->layers.resize(2);
  return progress;
}

struct ScriptBed : CommandBed {
  absl::Status FillIn(JobSpec* spec) {
    return FillInScript(console, pauser, clock, timeout, measure, spec);
  }
  FakeMeasureClient measure;
  std::optional<absl::Duration> timeout;
};

TEST(FillInScript, AsksAWorkerAndWaitsForIt) {
  ScriptBed bed;
  bed.measure.progress = {Waiting(), Waiting(), Found()};
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(spec.model.script.layers, SizeIs(2));
  ASSERT_THAT(bed.measure.ordered, SizeIs(1));
  EXPECT_EQ(bed.measure.ordered[0].spec.model.file, "/net.pt");
  EXPECT_FALSE(bed.measure.ordered[0].links);
  EXPECT_THAT(bed.err.str(),
              HasSubstr("looking into /net.pt: layers on w1: waits for worker "
                        "w1: its job"));
}

TEST(FillInScript, AsksNobodyForModelsThatAreKnown) {
  ScriptBed bed;
  JobSpec lenet = LenetSpec(4);
  JobSpec known = Script();
  known.model.script = *Found().script;

  EXPECT_TRUE(bed.FillIn(&lenet).ok());
  EXPECT_TRUE(bed.FillIn(&known).ok());
  EXPECT_THAT(bed.measure.ordered, IsEmpty());
}

TEST(FillInScript, SaysWhyTheFileWillNotDo) {
  ScriptBed bed;
  ProfileProgress failed;
  failed.failed = {"layers on w1: /net.pt: it was traced"};
  bed.measure.progress = {Waiting(), failed};
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("it was traced"));
}

TEST(FillInScript, WaitsNoLongerThanTheTimeout) {
  ScriptBed bed;
  bed.measure.progress = {Waiting()};
  bed.timeout = absl::Seconds(2);
  const Instant begin = bed.clock.Now();
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("gave up after 2s (--timeout), looking into /net.pt: "
                        "layers on w1: waits for worker w1"));
  EXPECT_EQ(bed.clock.Now() - begin, absl::Seconds(2));
}

TEST(FillInScript, EndsWhenSomebodyInterrupts) {
  ScriptBed bed;
  bed.measure.progress = {Waiting()};
  bed.pauser.leave_at = 2;
  JobSpec spec = Script();

  EXPECT_TRUE(absl::IsCancelled(bed.FillIn(&spec)));
}

}  // namespace
}  // namespace paceline
