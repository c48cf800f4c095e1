#include "core/schedule/instruction.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST(InstructionText, ReadsBackWhatItWrites) {
  for (const Op op : {Op::kLoad, Op::kRecvF, Op::kForward, Op::kSendF,
                      Op::kRecvB, Op::kBackward, Op::kSendB, Op::kStep,
                      Op::kBackwardInput, Op::kBackwardWeight, Op::kUpdate}) {
    const Instruction written{12, op, op == Op::kStep ? 0 : 345};

    const auto read = InstructionFromText(ToText(written));

    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, written) << ToText(written);
  }
}

TEST(InstructionText, ReadsListsSplitByAnyWhiteSpace) {
  const auto list = InstructionsFromText("  0LOAD0 0F0\n0B0\t0STEP ");

  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*list, ElementsAre(Instruction{0, Op::kLoad, 0},
                                 Instruction{0, Op::kForward, 0},
                                 Instruction{0, Op::kBackward, 0},
                                 Instruction{0, Op::kStep, 0}));
  EXPECT_EQ(ToText(*list), "0LOAD0 0F0 0B0 0STEP");
}

TEST(InstructionText, ReadsAnEmptyList) {
  const auto list = InstructionsFromText(" \n");

  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*list, IsEmpty());
}

class BadInstructionText : public ::testing::TestWithParam<std::string> {};

TEST_P(BadInstructionText, IsRefusedByName) {
  const auto read = InstructionFromText(GetParam());

  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.status().message()),
              HasSubstr("'" + GetParam() + "'"));
}

INSTANTIATE_TEST_SUITE_P(Words, BadInstructionText,
                         ::testing::Values("", "F", "0", "F1", "0F", "0G1",
                                           "0f1", "0RECV1", "0RECV_F", "0 F1",
                                           "-1F0", "+1F0", "0F-1", "0F+1",
                                           "00F1", "0F01", "0STEP0", "STEP",
                                           "0F1x", "0UPDATE", "0I",
                                           "99999999999F0", "0F99999999999"));

TEST(InstructionText, NamesTheBadWordOfAList) {
  const auto list = InstructionsFromText("0F0 0FORWARD1 0B0");

  EXPECT_EQ(list.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(list.status().message()), HasSubstr("'0FORWARD1'"));
}

}  // namespace
}  // namespace paceline
