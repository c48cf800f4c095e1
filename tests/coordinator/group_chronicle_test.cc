#include "coordinator/group_chronicle.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

std::string Name(WorkerId worker) { return absl::StrCat("w", worker.value); }

RoundRecord Skipped(int64_t step, int64_t worker, const std::string& reason) {
  RoundRecord record;
  record.step = step;
  record.server = WorkerId{1};
  record.skipped = {{WorkerId{worker}, reason}};
  return record;
}

TEST(GroupChronicle, SaysNothingOfARoundInWhichAllWasWell) {
  GroupChronicle chronicle;
  RoundRecord record;
  record.step = 3;
  record.contributors = 5;

  EXPECT_FALSE(chronicle.OnRecord(record, Name).has_value());
  EXPECT_EQ(chronicle.Summary(), "");
}

TEST(GroupChronicle, NamesWhoWasSkippedAndWhyByReason) {
  GroupChronicle chronicle;
  RoundRecord record = Skipped(16, 3, "late");
  record.skipped.push_back({WorkerId{2}, "not-finite"});
  record.skipped.push_back({WorkerId{4}, "late"});

  const auto event = chronicle.OnRecord(record, Name);

  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, "skipped");
  EXPECT_EQ(event->text,
            "step 17: parts of w3, w4 skipped (late), part of w2 skipped "
            "(not-finite)");
}

TEST(GroupChronicle, TellsTheStepsOfANewAttemptAnew) {
  GroupChronicle chronicle;
  const RoundRecord record = Skipped(3, 2, "late");
  ASSERT_TRUE(chronicle.OnRecord(record, Name).has_value());
  EXPECT_FALSE(chronicle.OnRecord(record, Name).has_value());

  chronicle.ForgetEvaluations(-1);

  EXPECT_TRUE(chronicle.OnRecord(record, Name).has_value());
}

TEST(GroupChronicle, TellsATakeoverOnceHoweverManyMembersReportIt) {
  GroupChronicle chronicle;
  RoundRecord record = Skipped(16, 2, "lost");
  record.server = WorkerId{3};
  record.lost_server = WorkerId{2};
  record.takeover_seconds = 0.0412;
  const auto first = chronicle.OnRecord(record, Name);
  record.takeover_seconds = 0.0437;
  const auto second = chronicle.OnRecord(record, Name);

  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->text,
            "step 17: server w2 lost, w3 took over in 41 ms, part of w2 "
            "skipped (lost)");
  EXPECT_FALSE(second.has_value());
}

// The kind is printed before it, so the text says void where the kind does not.
TEST(GroupChronicle, SaysWhyARoundWasVoid) {
  GroupChronicle chronicle;
  RoundRecord record = Skipped(16, 2, "late");
  record.is_void = true;
  const auto only = chronicle.OnRecord(record, Name);
  record.step = 17;
  record.server = WorkerId{3};
  record.lost_server = WorkerId{2};
  const auto after_a_loss = chronicle.OnRecord(record, Name);

  ASSERT_TRUE(only.has_value() && after_a_loss.has_value());
  EXPECT_EQ(only->kind, "void");
  EXPECT_EQ(
      only->text,
      "step 17: no update, for too few usable parts or none that the rule "
      "could use, part of w2 skipped (late)");
  EXPECT_EQ(after_a_loss->kind, "takeover");
  EXPECT_THAT(after_a_loss->text, HasSubstr("void: no update, for too few"));
}

TEST(GroupChronicle, CountsWhatItNoLongerTells) {
  GroupChronicle chronicle;
  int told = 0;
  std::string last;
  for (int64_t step = 0; step < 250; ++step) {
    const auto event = chronicle.OnRecord(Skipped(step, 2, "late"), Name);
    if (!event.has_value()) continue;
    ++told;
    last = event->text;
  }
  RoundRecord round;
  round.step = 300;
  round.is_void = true;
  const auto other_kind = chronicle.OnRecord(round, Name);

  EXPECT_EQ(told, 100);
  EXPECT_THAT(last, HasSubstr("step 100: part of w2 skipped (late); later ones "
                              "of this are only counted"));
  EXPECT_TRUE(other_kind.has_value());
  EXPECT_EQ(chronicle.Summary(), "rounds: 1 void, parts skipped: 250 late");
}

TEST(GroupChronicle, OneThatHandsNothingInSilencesNobodyElse) {
  GroupChronicle chronicle;
  for (int64_t step = 0; step < 150; ++step) {
    chronicle.OnRecord(Skipped(step, 2, "empty"), Name);
  }

  EXPECT_TRUE(chronicle.OnRecord(Skipped(150, 3, "empty"), Name).has_value());
  EXPECT_TRUE(chronicle.OnRecord(Skipped(151, 2, "late"), Name).has_value());
  EXPECT_FALSE(chronicle.OnRecord(Skipped(152, 2, "empty"), Name).has_value());
}

// A rule that leaves parts out in every round does its work.
TEST(GroupChronicle, OnlyCountsWhomTheRuleLeftOut) {
  GroupChronicle chronicle;
  for (int64_t step = 0; step < 5; ++step) {
    const RoundRecord record = Skipped(step, step < 2 ? 2 : 4, "outvoted");
    EXPECT_FALSE(chronicle.OnRecord(record, Name).has_value());
    EXPECT_FALSE(chronicle.OnRecord(record, Name).has_value()) << "again";
  }
  RoundRecord both = Skipped(5, 3, "late");
  both.skipped.push_back({WorkerId{4}, "outvoted"});

  const auto event = chronicle.OnRecord(both, Name);

  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->text, "step 6: part of w3 skipped (late)");
  EXPECT_EQ(chronicle.Summary(),
            "rounds: parts skipped: 1 late, outvoted: w4 4, w2 2");
}

TEST(GroupChronicle, TellsAThousandOfAKindAtMost) {
  GroupChronicle chronicle;
  int told = 0;
  for (int64_t step = 0; step < 2000; ++step) {
    // Of another member each time.
    told += chronicle.OnRecord(Skipped(step, step, "late"), Name).has_value();
  }
  EXPECT_EQ(told, 1000);
}

TEST(GroupChronicle, MergesEvaluationsByTheirSamplesWhateverTheirOrder) {
  GroupChronicle one;
  one.OnEvaluation(WorkerId{1}, {10, 2, 0.5, 100});
  const auto first = one.OnEvaluation(WorkerId{2}, {10, 1, 0.9, 300});
  GroupChronicle other;
  other.OnEvaluation(WorkerId{2}, {10, 1, 0.9, 300});
  const auto second = other.OnEvaluation(WorkerId{1}, {10, 2, 0.5, 100});

  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->samples, 400);
  EXPECT_DOUBLE_EQ(first->loss, 1.25);
  EXPECT_DOUBLE_EQ(first->accuracy, 0.8);
  EXPECT_EQ(first->loss, second->loss);
}

TEST(GroupChronicle, TakesAnEvaluationThatComesAgainOnce) {
  GroupChronicle chronicle;
  chronicle.OnEvaluation(WorkerId{1}, {10, 2, 0.5, 100});

  const auto again = chronicle.OnEvaluation(WorkerId{1}, {10, 2, 0.5, 100});

  EXPECT_EQ(again->samples, 100);
}

TEST(GroupChronicle, MemberWithoutTestSamplesAddsNothing) {
  GroupChronicle chronicle;

  EXPECT_FALSE(chronicle.OnEvaluation(WorkerId{1}, {10, 0, 0, 0}).has_value());
}

// Else a part of it would replace the whole.
TEST(GroupChronicle, LeavesEvaluationsAloneThatAnEarlierCoordinatorStored) {
  GroupChronicle chronicle;
  chronicle.ForgetEvaluations(10);

  EXPECT_FALSE(chronicle.OnEvaluation(WorkerId{1}, {10, 2, 1, 5}).has_value());
  EXPECT_TRUE(chronicle.OnEvaluation(WorkerId{1}, {20, 2, 1, 5}).has_value());
}

TEST(GroupChronicle, NewAttemptEvaluatesTheSameStepsAnew) {
  GroupChronicle chronicle;
  chronicle.OnEvaluation(WorkerId{1}, {10, 2, 0.5, 100});
  chronicle.ForgetEvaluations(-1);

  const auto anew = chronicle.OnEvaluation(WorkerId{2}, {10, 1, 1, 50});

  EXPECT_EQ(anew->samples, 50);
}

}  // namespace
}  // namespace paceline
