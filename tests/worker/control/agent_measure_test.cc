// Tests the measurements of an agent, and how it leaves one.
#include <filesystem>
#include <string>
#include <vector>

#include "core/data/data_sets.h"
#include "core/os/files.h"
#include "core/rpc/convert/job_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "tests/worker/control/agent_fixture.h"
#include "tests/worker/control/await_beat.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class FakeProber final : public Prober {
 public:
  absl::StatusOr<LinkMeasurement> ProbeLink(
      const std::string& self, const v1::MeasureLink& target,
      const CancelToken& cancel) override {
    if (blocks) {
      const absl::Status why = cancel.Pause(kLongest);
      cancelled.Notify();
      return why;
    }
    return LinkMeasurement{self, target.name(), 1e8, 1e-3, 0};
  }
  absl::StatusOr<FrameCost> MeasureFrames(const CancelToken&) override {
    return FrameCost{1e-4, 1e-9, 2e-4};
  }

  bool blocks = false;
  absl::Notification cancelled;
};

class MeasuringAgentTest : public AgentTest {
 protected:
  MeasuringAgentTest() { prober_used_ = &prober_; }

  v1::MeasureOrder LinkOrder(int64_t id) {
    v1::MeasureOrder order;
    order.set_id(id);
    order.mutable_link()->set_name("b");
    order.mutable_link()->set_address("b:1");
    return order;
  }
  v1::MeasureOrder LayersOrder() {
    v1::MeasureOrder order;
    order.set_id(1);
    *order.mutable_layers()->mutable_spec() = ToProto(Order(1).spec);
    order.mutable_layers()->set_cpu_capability("avx2");
    return order;
  }
  v1::MeasureOrder ScriptOrder() {
    v1::MeasureOrder order = LayersOrder();
    v1::ModelSpec& model =
        *order.mutable_layers()->mutable_spec()->mutable_model();
    model.set_name(kScriptModel);
    model.set_file("/net.pt");
    return order;
  }
  static v1::MeasureOrder FilesOrder(const std::vector<std::string>& paths) {
    v1::MeasureOrder order;
    order.set_id(1);
    order.mutable_files()->mutable_paths()->Add(paths.begin(), paths.end());
    return order;
  }
  v1::Measurement Measure(const v1::MeasureOrder& order) {
    agent().OnMeasure(order);
    const v1::Heartbeat beat = AwaitBeat(
        agent(),
        [](const v1::Heartbeat& beat) { return beat.has_measurement(); });
    EXPECT_TRUE(beat.has_measurement());
    return beat.measurement();
  }

  FakeProber prober_;
};

TEST_F(MeasuringAgentTest, AnswersUntilTheOrderIsWithdrawn) {
  const v1::Measurement answer = Measure(LinkOrder(7));

  EXPECT_EQ(answer.id(), 7);
  EXPECT_TRUE(answer.error_code() == 0) << answer.error_message();
  ASSERT_THAT(answer.links(), SizeIs(1));
  EXPECT_EQ(answer.links(0).from(), "w");
  EXPECT_TRUE(Beat().has_measurement());
  agent().OnMeasure(std::nullopt);
  EXPECT_FALSE(Beat().has_measurement());
}

TEST_F(MeasuringAgentTest, MeasuresTheLayersOfASpec) {
  v1::MeasureOrder order = LayersOrder();
  order.mutable_layers()->mutable_spec()->set_threads(2);

  const v1::Measurement answer = Measure(order);

  ASSERT_TRUE(answer.error_code() == 0) << answer.error_message();
  ASSERT_TRUE(answer.has_profile());
  EXPECT_EQ(answer.profile().device(), "w");
  EXPECT_EQ(answer.profile().micro_batch(), 4);
  EXPECT_EQ(answer.profile().threads(), 2);
  EXPECT_EQ(answer.profile().frame_seconds(), 1e-4);
  EXPECT_GT(answer.profile().runs(), 0);
  EXPECT_EQ(factory_.threads_, 2);
}

TEST_F(MeasuringAgentTest, LooksIntoAScriptThatNobodyHasLookedInto) {
  const v1::Measurement answer = Measure(ScriptOrder());

  ASSERT_TRUE(answer.error_code() == 0) << answer.error_message();
  EXPECT_FALSE(answer.has_profile());
  ASSERT_TRUE(answer.has_script());
  EXPECT_EQ(answer.script().sha256(), "hash of /net.pt");
}

TEST_F(MeasuringAgentTest, NamesTheFilesThatItCannotRead) {
  const v1::Measurement answer = Measure(FilesOrder({"/", "/no/such/file"}));

  EXPECT_TRUE(answer.error_code() == 0) << answer.error_message();
  ASSERT_THAT(answer.missing(), SizeIs(1));
  EXPECT_EQ(answer.missing(0).path(), "/no/such/file");
  EXPECT_EQ(answer.missing(0).why(), "No such file or directory");
}

TEST_F(MeasuringAgentTest,
       SaysOfAFileThatJobsMayNotReadNotEvenWhetherItIsThere) {
  LimitReads(ReadAccess{.folders = {"/usr/share/datasets"}});

  const v1::Measurement answer =
      Measure(FilesOrder({"/etc/passwd", "/no/such/file"}));
  LimitReads(std::nullopt);

  ASSERT_THAT(answer.missing(), SizeIs(2));
  EXPECT_THAT(answer.missing(0).why(),
              testing::AllOf(testing::StartsWith("jobs may not read it"),
                             HasSubstr("--data-dir")));
  EXPECT_EQ(answer.missing(1).why(), answer.missing(0).why());
}

class LookingAgentTest : public MeasuringAgentTest {
 protected:
  LookingAgentTest() {
    folder_.Write("texts.txt", "0\ta\n1\tbcdefghij\n0\tc\n1\td\n");
    order_ = FilesOrder({folder_.Path("texts.txt")});
    spec().mutable_model()->set_name("bert");
    spec().mutable_model()->set_depth(1);
    spec().mutable_model()->set_weights("/good");
    v1::DataSpec& data = *spec().mutable_data();
    data.set_name("text-labels");
    data.set_path(folder_.Path("texts.txt"));
    data.set_block(4);
    data.set_test_fraction(0.25);
  }

  v1::JobSpec& spec() { return *order_.mutable_files()->mutable_spec(); }

  const TempFolder folder_;
  v1::MeasureOrder order_;
};

TEST_F(LookingAgentTest, OpensWhatTheJobWouldOpenAndSaysWhatItFound) {
  const v1::Measurement answer = Measure(order_);

  EXPECT_TRUE(answer.error_code() == 0) << answer.error_message();
  EXPECT_THAT(answer.missing(), SizeIs(0));
  EXPECT_THAT(answer.notes(),
              ElementsAre(HasSubstr("model.dropout 0.5"),
                          HasSubstr("1 of 4 lines are not used")));
}

TEST_F(LookingAgentTest, SaysWhatDoesNotFitTheJob) {
  spec().mutable_model()->set_weights("/bad");
  folder_.Write("texts.txt", "0\ta\n7\tb\n");

  const v1::Measurement answer = Measure(order_);

  ASSERT_THAT(answer.missing(), SizeIs(2));
  EXPECT_EQ(answer.missing(0).path(), "/bad");
  EXPECT_THAT(answer.missing(1).why(), HasSubstr("line 2 has label 7"));
}

// Labels that were changed between stop and resume were not noticed.
TEST_F(LookingAgentTest, SaysThatTheDataIsNotWhatItWas) {
  order_.mutable_files()->mutable_inputs()->set_contents(7);

  const v1::Measurement answer = Measure(order_);

  ASSERT_THAT(answer.missing(), SizeIs(1));
  EXPECT_THAT(answer.missing(0).why(),
              AllOf(HasSubstr("data.path"), HasSubstr("0000000000000007"),
                    HasSubstr("--accept-changed-data")));
}

// A worker read tens of gigabytes while a job waited for it.
TEST_F(LookingAgentTest, LeavesLargeFilesToTheJob) {
  std::filesystem::resize_file(spec().data().path(), 300 << 20);

  const v1::Measurement answer = Measure(order_);

  EXPECT_THAT(answer.missing(), SizeIs(0)) << "its zeros are no lines";
  EXPECT_THAT(answer.notes(),
              testing::Contains(AllOf(HasSubstr("texts.txt: has 300.0 MiB"),
                                      HasSubstr("when the job begins"))));
}

TEST_F(LookingAgentTest, OpensNothingMoreOnceItIsCancelled) {
  spec().mutable_model()->set_weights("/bad");
  CancelToken cancel;
  cancel.Cancel(absl::CancelledError("the standing order has changed"));

  const v1::Measurement answer = CarryOut(
      order_, {"w", "", "", 0, nullptr, factory_, fake_clock_}, cancel);

  EXPECT_EQ(static_cast<absl::StatusCode>(answer.error_code()),
            absl::StatusCode::kCancelled);
  EXPECT_THAT(answer.missing(), SizeIs(0));
}

TEST_F(LookingAgentTest, OpensNothingOfAJobThatCannotBe) {
  spec().mutable_train()->set_batch(0);
  order_.mutable_files()->add_paths("/no/such/file");

  const v1::Measurement answer = Measure(order_);

  ASSERT_THAT(answer.missing(), SizeIs(1));
  EXPECT_EQ(answer.missing(0).why(), "No such file or directory");
}

TEST_F(MeasuringAgentTest, DoesNotMeasureASpecThatCannotBe) {
  v1::MeasureOrder order = LayersOrder();
  order.mutable_layers()->mutable_spec()->mutable_train()->set_micro_batch(0);

  const v1::Measurement answer = Measure(order);

  EXPECT_EQ(static_cast<absl::StatusCode>(answer.error_code()),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(answer.error_message(),
              HasSubstr("order: train.micro_batch: must be from 1"));
}

TEST_F(MeasuringAgentTest, StartsAnewForAnotherCapabilityBeforeItMeasures) {
  v1::MeasureOrder order = LayersOrder();
  order.mutable_layers()->set_cpu_capability("default");

  agent().OnMeasure(order);
  restarted_.WaitForNotification();

  EXPECT_EQ(restart_at_, "default");
}

TEST_F(MeasuringAgentTest, StartsAnewWhenAScriptThatWasWithdrawnDoesNotEnd) {
  clock_used_ = &fake_clock_;
  SteadyNotification ends;
  factory_.script_ends_ = &ends;
  agent().OnMeasure(ScriptOrder());
  factory_.script_begun_.WaitForNotification();
  fake_clock_.Advance(absl::Hours(1));  // as long as it is wanted

  agent().OnMeasure(std::nullopt);
  fake_clock_.Advance(absl::Seconds(59));
  agent().Heartbeat();
  EXPECT_FALSE(restarted_.HasBeenNotified());
  fake_clock_.Advance(absl::Seconds(1));
  agent().Heartbeat();
  agent().Heartbeat();  // says it once: Notify() twice is fatal

  EXPECT_TRUE(restarted_.HasBeenNotified());
  EXPECT_EQ(restart_at_, "avx2");
  ends.Notify();
  agent_.reset();
}

TEST_F(MeasuringAgentTest, LetsARunThatCameAfterAMeasurementTakeItsTime) {
  clock_used_ = &fake_clock_;
  prober_.blocks = true;
  factory_.upload_blocks_ = true;
  agent().OnMeasure(LinkOrder(7));
  Run(Order(1), v1::RunState::PHASE_RUNNING);

  agent().OnMeasure(std::nullopt);
  fake_clock_.Advance(absl::Hours(1));
  agent().Heartbeat();

  EXPECT_FALSE(restarted_.HasBeenNotified());
}

TEST_F(MeasuringAgentTest, LeavesAMeasurementForARun) {
  prober_.blocks = true;
  agent().OnMeasure(LinkOrder(7));

  agent().OnMeasure(std::nullopt);
  RunToItsEnd(Order(1));
  EXPECT_FALSE(Beat().has_measurement());
}

TEST_F(MeasuringAgentTest, SaysThatItCannotMeasureWithoutAProber) {
  prober_used_ = nullptr;
  EXPECT_EQ(static_cast<absl::StatusCode>(Measure(LinkOrder(7)).error_code()),
            absl::StatusCode::kUnimplemented);
}

TEST_F(MeasuringAgentTest, EndsWhileItMeasures) {
  prober_.blocks = true;
  agent().OnMeasure(LinkOrder(7));

  agent_.reset();
}

}  // namespace
}  // namespace paceline
