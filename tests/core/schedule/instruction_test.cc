#include "core/schedule/instruction.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(InstructionText, WritesStageOperationAndMicroBatch) {
  EXPECT_EQ(ToText(Instruction{0, Op::kForward, 1}), "0F1");
  EXPECT_EQ(ToText(Instruction{2, Op::kBackward, 0}), "2B0");
  EXPECT_EQ(ToText(Instruction{1, Op::kRecvF, 3}), "1RECV_F3");
  EXPECT_EQ(ToText(Instruction{11, Op::kSendB, 120}), "11SEND_B120");
  EXPECT_EQ(ToText(Instruction{0, Op::kStep, 0}), "0STEP");
  EXPECT_EQ(ToText(Instruction{3, Op::kBackwardInput, 2}), "3I2");
  EXPECT_EQ(ToText(Instruction{3, Op::kBackwardWeight, 2}), "3W2");
  EXPECT_EQ(ToText(Instruction{1, Op::kUpdate, 7}), "1UPDATE7");
}

TEST(InstructionText, WritesAListWithBlanks) {
  EXPECT_EQ(ToText(InstructionList{{0, Op::kLoad, 0}, {0, Op::kStep, 0}}),
            "0LOAD0 0STEP");
}

}  // namespace
}  // namespace paceline
