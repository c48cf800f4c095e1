#include "coordinator/place/plan_watch.h"

#include "core/plan/memory.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/fake_clock.h"

namespace paceline {
namespace {

constexpr MemberId kA{WorkerId{1}, {11}};
constexpr MemberId kB{WorkerId{2}, {12}};
constexpr MemberId kC{WorkerId{3}, {13}};

// Stages on workers 1 and 2, expected to take 0.1 and 0.2 s a micro-batch.
class PlanWatchTest : public ::testing::Test {
 protected:
  PlanWatchTest() {
    for (const MemberId& process : {kA, kB}) {
      v1::JobWorker& worker = *record_.job.add_workers();
      worker.set_id(process.worker.value);
      worker.set_incarnation(process.incarnation.value);
      record_.job.add_stage_times();
    }
    record_.stages = {{{0, 2}, kA.worker}, {{2, 4}, kB.worker}};
    expected_.add_stage_seconds(0.1);
    expected_.add_stage_seconds(0.2);
  }

  void Compute(int64_t micro_batches, double first, double second) {
    const double each[] = {first, second};
    for (int i = 0; i < 2; ++i) {
      v1::StageTime& time = *record_.job.mutable_stage_times(i);
      time.set_micro_batches(time.micro_batches() + micro_batches);
      time.set_seconds(time.seconds() +
                       static_cast<double>(micro_batches) * each[i]);
    }
    record_.job.set_timed_steps(record_.job.timed_steps() + 1);
    record_.job.set_timed_seconds(record_.job.timed_seconds() + 5);
  }

  JobRecord record_;
  v1::RunEstimate expected_;
  PlanWatch watch_;
};

TEST_F(PlanWatchTest, ComparesWhatStagesTookWithWhatWasExpected) {
  EXPECT_EQ(watch_.SlownessOf(kA), 1) << "nothing is known";

  Compute(10, 0.2, 0.2);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));

  EXPECT_DOUBLE_EQ(watch_.SlownessOf(kA), 2);
  EXPECT_DOUBLE_EQ(watch_.SlownessOf(kB), 1);
  EXPECT_DOUBLE_EQ(watch_.step_seconds(), 5);
}

TEST_F(PlanWatchTest, GoesByTheTimeSinceTheLastLook) {
  Compute(1000, 0.1, 0.2);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));

  Compute(7, 0.3, 0.2);
  EXPECT_FALSE(watch_.Measure(record_, expected_, At(5))) << "too few";
  Compute(1, 0.3, 0.2);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));

  EXPECT_NEAR(watch_.SlownessOf(kA), 3, 1e-9);
}

TEST_F(PlanWatchTest, BeginsAfreshWithEveryAttempt) {
  Compute(1000, 0.1, 0.2);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));
  watch_.OnStopped(/*to_move=*/false, At(0));
  for (v1::StageTime& time : *record_.job.mutable_stage_times()) time.Clear();
  record_.job.clear_timed_steps();
  record_.job.clear_timed_seconds();
  watch_.OnRunning(record_, At(1));

  Compute(8, 0.1, 0.8);

  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));
  EXPECT_NEAR(watch_.SlownessOf(kB), 4, 1e-9);
}

TEST_F(PlanWatchTest, FewMicroBatchesSayEnoughWhereTheyTookLong) {
  Compute(2, 0.99, 1);
  EXPECT_FALSE(watch_.Measure(record_, expected_, At(5)));
  Compute(1, 0.99, 1);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));

  EXPECT_NEAR(watch_.SlownessOf(kB), 5, 1e-9);
}

TEST_F(PlanWatchTest, AfterTenSecondsAStageThatComputedNothingIsAsSlowAsItWas) {
  Compute(10, 0.2, 0.2);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));
  Compute(1, 0.1, 0);
  record_.job.mutable_stage_times(1)->set_micro_batches(10);

  EXPECT_FALSE(watch_.Measure(record_, expected_, At(14.9)));
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(15)));

  EXPECT_NEAR(watch_.SlownessOf(kA), 1, 1e-9);
  EXPECT_NEAR(watch_.SlownessOf(kB), 1, 1e-9);
}

// Nobody measures steps of inference.
TEST_F(PlanWatchTest, AStepOfInferenceIsTheTimeBetweenTwoMicroBatches) {
  record_.spec.kind = kInferKind;
  record_.job.set_step(100);
  watch_.OnRunning(record_, At(1000));
  Compute(10, 0.1, 0.2);
  EXPECT_FALSE(watch_.Measure(record_, expected_, At(1005)));
  record_.job.set_step(120);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(1006)));

  EXPECT_NEAR(watch_.step_seconds(), 0.3, 1e-9);
}

// Expected times that all lack say nothing against those who compute.
TEST_F(PlanWatchTest, TakesWhoDidNotComputeForAsSlowAsTheMiddleOne) {
  Compute(10, 0.3, 0.8);
  ASSERT_TRUE(watch_.Measure(record_, expected_, At(5)));

  EXPECT_NEAR(watch_.SlownessOf(kC), 3, 1e-9) << "the faster one of two";
  EXPECT_NEAR(watch_.SlownessOf({kB.worker, {99}}), 3, 1e-9)
      << "another process of the worker";
}

TEST_F(PlanWatchTest, ARestartTakesFromTheStopToTheNextBegin) {
  watch_.OnStopped(/*to_move=*/true, At(10));
  watch_.OnStopped(/*to_move=*/false, At(11));
  watch_.OnRunning(record_, At(12.5));
  EXPECT_EQ(watch_.restart(), absl::Seconds(2.5));

  watch_.OnStopped(/*to_move=*/false, At(20));
  watch_.OnPaused();
  watch_.OnStopped(/*to_move=*/false, At(3600));
  watch_.OnRunning(record_, At(3601));
  EXPECT_EQ(watch_.restart(), absl::Seconds(1)) << "without the pause";
}

TEST_F(PlanWatchTest, LooksEveryFewSeconds) {
  EXPECT_TRUE(watch_.IsDue(At(100)));
  EXPECT_FALSE(watch_.IsDue(At(104.9)));
  EXPECT_TRUE(watch_.IsDue(At(105)));
}

TEST(TransferOf, CountsTheStateThatChangesItsMachineOnTheBusiestWorker) {
  const JobSpec spec = SpecOf(2);
  const ModelDescription model = *Describe(spec);
  ASSERT_EQ(model.layers.size(), 4u);
  Membership membership(MembershipPolicy(), At(0));
  for (const char* const name : {"a", "b", "c"}) {
    v1::Registration worker = WorkerNamed(name, 1);
    if (*name == 'c') worker.set_machine_id("machine-of-b");
    ASSERT_TRUE(membership.OnAttach(worker, StreamId{*name}, At(0)).ok());
  }
  const WorkerId a = membership.members().begin()->first;
  const WorkerId b{a.value + 1};
  const WorkerId c{a.value + 2};
  const auto bytes = [&](int first, int last) {
    return StateBytes(spec, model, {first, last});
  };

  const StateTransfer free =
      TransferOf(spec, model, {{{0, 2}, a}, {{2, 4}, b}},
                 {{{0, 2}, a}, {{2, 4}, c}}, membership, {});
  EXPECT_EQ(free.bytes, 0) << "they share a machine";

  Measurements measured;
  measured.links[{"b", "a"}].bytes_per_second = 1000;
  const StateTransfer some =
      TransferOf(spec, model, {{{0, 1}, a}, {{1, 4}, b}},
                 {{{0, 3}, a}, {{3, 4}, c}}, membership, measured);
  EXPECT_EQ(some.bytes, bytes(1, 3));
  EXPECT_EQ(some.bytes_per_second, 1000);
}

}  // namespace
}  // namespace paceline
