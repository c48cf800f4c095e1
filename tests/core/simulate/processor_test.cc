#include "core/simulate/processor.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(Processor, AFrameInterruptsWorkOnASharedCpu) {
  Processor processor(/*shared=*/true);
  processor.StartWork(CpuPart::kForward, 4, 0);

  EXPECT_DOUBLE_EQ(processor.PushFrame(1, CpuPart::kReceive, 1, 2), 3);

  EXPECT_DOUBLE_EQ(processor.work_due_seconds(), 5);
  processor.PopFrame();
  processor.FinishWork();
  EXPECT_DOUBLE_EQ(processor.busy_seconds(CpuPart::kForward), 4);
  EXPECT_DOUBLE_EQ(processor.busy_seconds(CpuPart::kReceive), 1);
}

TEST(Processor, WorkWaitsForFramesThatAreThere) {
  Processor processor(true);
  processor.PushFrame(1, CpuPart::kSend, 2, 0);
  processor.StartWork(CpuPart::kBackward, 1, 0.5);
  processor.PushFrame(2, CpuPart::kSend, 1, 1);

  EXPECT_DOUBLE_EQ(processor.work_start_seconds(), 3);
  EXPECT_DOUBLE_EQ(processor.work_due_seconds(), 4);
}

TEST(Processor, FramesOfAnotherCoreLeaveWorkAlone) {
  Processor processor(/*shared=*/false);
  processor.StartWork(CpuPart::kForward, 4, 0);

  EXPECT_DOUBLE_EQ(processor.PushFrame(1, CpuPart::kSend, 1, 1), 2);
  EXPECT_DOUBLE_EQ(processor.PushFrame(2, CpuPart::kSend, 1, 1), 3);
  EXPECT_DOUBLE_EQ(processor.work_due_seconds(), 4);
}

TEST(Processor, AFactorStretchesWhatIsLeftOfEverything) {
  Processor processor(true);
  processor.StartWork(CpuPart::kForward, 4, 0);
  processor.PushFrame(1, CpuPart::kReceive, 2, 1);

  processor.SetFactor(2, 2);

  // Of the frame 1 s is left, of the work 3 s.
  EXPECT_DOUBLE_EQ(processor.PopFrame().due_seconds, 4);
  EXPECT_DOUBLE_EQ(processor.work_due_seconds(), 10);
  processor.FinishWork();
  EXPECT_DOUBLE_EQ(processor.busy_seconds(CpuPart::kForward), 1 + 6);
  EXPECT_DOUBLE_EQ(processor.busy_seconds(CpuPart::kReceive), 1 + 2);
}

TEST(Processor, AbandoningCountsWhatWasDone) {
  Processor processor(true);
  processor.StartWork(CpuPart::kForward, 4, 0);
  processor.PushFrame(1, CpuPart::kReceive, 2, 1);
  processor.PushFrame(2, CpuPart::kSend, 2, 1);

  processor.Abandon(3.5);

  EXPECT_DOUBLE_EQ(processor.busy_seconds(CpuPart::kForward), 1);
  EXPECT_DOUBLE_EQ(processor.busy_seconds(CpuPart::kReceive), 2);
  EXPECT_DOUBLE_EQ(processor.busy_seconds(CpuPart::kSend), 0.5);
  EXPECT_FALSE(processor.working());
  EXPECT_FALSE(processor.has_frames());
  processor.StartWork(CpuPart::kForward, 1, 4);
  EXPECT_DOUBLE_EQ(processor.work_due_seconds(), 5);
}

}  // namespace
}  // namespace paceline
