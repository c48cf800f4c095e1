#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/job_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

std::string Name(WorkerId worker) { return absl::StrCat("w", worker.value); }

void AddSkip(int64_t worker, const std::string& reason,
             v1::RoundRecord& record) {
  v1::RoundRecord::Skip& skip = *record.add_skipped();
  skip.set_worker_id(worker);
  skip.set_reason(reason);
}

v1::RoundRecord Skipped(int64_t step, int64_t worker,
                        const std::string& reason) {
  v1::RoundRecord record;
  record.set_step(step);
  record.set_server(1);
  AddSkip(worker, reason, record);
  return record;
}

TEST(GroupEventLog, SaysNothingOfARoundInWhichAllWasWell) {
  GroupEventLog log;
  v1::RoundRecord record;
  record.set_step(3);
  record.set_contributors(5);

  EXPECT_FALSE(log.OnRecord(record, Name).has_value());
  EXPECT_EQ(log.Summary(), "");
}

TEST(GroupEventLog, NamesWhoWasSkippedAndWhyByReason) {
  GroupEventLog log;
  v1::RoundRecord record = Skipped(16, 3, "late");
  AddSkip(2, "not-finite", record);
  AddSkip(4, "late", record);

  const auto event = log.OnRecord(record, Name);

  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->kind, "skipped");
  EXPECT_EQ(event->text,
            "step 17: parts of w3, w4 skipped (late), part of w2 skipped "
            "(not-finite)");
}

TEST(GroupEventLog, TellsTheStepsOfANewAttemptAnew) {
  GroupEventLog log;
  const v1::RoundRecord record = Skipped(3, 2, "late");
  ASSERT_TRUE(log.OnRecord(record, Name).has_value());
  EXPECT_FALSE(log.OnRecord(record, Name).has_value());

  log.ForgetEvaluations(-1);

  EXPECT_TRUE(log.OnRecord(record, Name).has_value());
}

// The kind is printed before it, so the text says void where the kind does not.
TEST(GroupEventLog, SaysWhyARoundWasVoid) {
  GroupEventLog log;
  v1::RoundRecord record = Skipped(16, 2, "late");
  record.set_is_void(true);
  const auto only = log.OnRecord(record, Name);
  record.set_step(17);
  record.set_server(3);
  record.set_lost_server(2);
  const auto after_a_loss = log.OnRecord(record, Name);

  ASSERT_TRUE(only.has_value() && after_a_loss.has_value());
  EXPECT_EQ(only->kind, "void");
  EXPECT_EQ(
      only->text,
      "step 17: no update, for too few usable parts or none that the rule "
      "could use, part of w2 skipped (late)");
  EXPECT_EQ(after_a_loss->kind, "takeover");
  EXPECT_THAT(after_a_loss->text, HasSubstr("void: no update, for too few"));
}

TEST(GroupEventLog, CountsWhatItNoLongerTells) {
  GroupEventLog log;
  int told = 0;
  std::string last;
  for (int64_t step = 0; step < 250; ++step) {
    const auto event = log.OnRecord(Skipped(step, 2, "late"), Name);
    if (!event.has_value()) continue;
    ++told;
    last = event->text;
  }
  v1::RoundRecord round;
  round.set_step(300);
  round.set_is_void(true);
  const auto other_kind = log.OnRecord(round, Name);

  EXPECT_EQ(told, 100);
  EXPECT_THAT(last, HasSubstr("step 100: part of w2 skipped (late); later ones "
                              "of this are only counted"));
  EXPECT_TRUE(other_kind.has_value());
  EXPECT_EQ(log.Summary(), "rounds: 1 void, parts skipped: 250 late");
}

TEST(GroupEventLog, OneThatHandsNothingInSilencesNobodyElse) {
  GroupEventLog log;
  for (int64_t step = 0; step < 150; ++step) {
    log.OnRecord(Skipped(step, 2, "empty"), Name);
  }

  EXPECT_TRUE(log.OnRecord(Skipped(150, 3, "empty"), Name).has_value());
  EXPECT_TRUE(log.OnRecord(Skipped(151, 2, "late"), Name).has_value());
  EXPECT_FALSE(log.OnRecord(Skipped(152, 2, "empty"), Name).has_value());
}

// A rule that leaves parts out in every round does its work.
TEST(GroupEventLog, OnlyCountsWhomTheRuleLeftOut) {
  GroupEventLog log;
  for (int64_t step = 0; step < 5; ++step) {
    const v1::RoundRecord record = Skipped(step, step < 2 ? 2 : 4, "outvoted");
    EXPECT_FALSE(log.OnRecord(record, Name).has_value());
    EXPECT_FALSE(log.OnRecord(record, Name).has_value()) << "again";
  }
  v1::RoundRecord both = Skipped(5, 3, "late");
  AddSkip(4, "outvoted", both);

  const auto event = log.OnRecord(both, Name);

  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->text, "step 6: part of w3 skipped (late)");
  EXPECT_EQ(log.Summary(),
            "rounds: parts skipped: 1 late, outvoted: w4 4, w2 2");
}

TEST(GroupEventLog, TellsAThousandOfAKindAtMost) {
  GroupEventLog log;
  int told = 0;
  for (int64_t step = 0; step < 2000; ++step) {
    // Each record is of another member.
    told += log.OnRecord(Skipped(step, step, "late"), Name).has_value();
  }
  EXPECT_EQ(told, 1000);
}

v1::EvaluationRecord Part(int64_t step, int64_t samples) {
  v1::EvaluationRecord part;
  part.set_step(step);
  part.set_samples(samples);
  return part;
}

TEST(GroupEventLog, MemberWithoutTestSamplesAddsNothing) {
  GroupEventLog log;

  EXPECT_FALSE(log.OnEvaluation(WorkerId{1}, Part(10, 0)).has_value());
}

// Else a part of it would replace the whole.
TEST(GroupEventLog, LeavesEvaluationsAloneThatAnEarlierCoordinatorStored) {
  GroupEventLog log;
  log.ForgetEvaluations(10);

  EXPECT_FALSE(log.OnEvaluation(WorkerId{1}, Part(10, 5)).has_value());
  EXPECT_TRUE(log.OnEvaluation(WorkerId{1}, Part(20, 5)).has_value());
}

TEST(GroupEventLog, NewAttemptEvaluatesTheSameStepsAnew) {
  GroupEventLog log;
  log.OnEvaluation(WorkerId{1}, Part(10, 100));
  log.ForgetEvaluations(-1);

  const auto anew = log.OnEvaluation(WorkerId{2}, Part(10, 50));

  EXPECT_EQ(anew->samples(), 50);
}

}  // namespace
}  // namespace paceline
