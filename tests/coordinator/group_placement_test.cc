#include "coordinator/place/group_placement.h"

#include <list>
#include <string>

#include "coordinator/jobs/job_text.h"
#include "core/plan/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/brain/group_mesh.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Workers w1, w2, ... that are idle.
class GroupPlacement : public testing::Test {
 protected:
  Candidate& Add() {
    Member& member = members_.emplace_back();
    member.id = WorkerId{static_cast<int64_t>(members_.size())};
    member.registration =
        WorkerNamed("w" + std::to_string(member.id.value), member.id.value);
    member.state = MemberState::kLive;
    return candidates_.emplace_back(Candidate{&member, JobId{}});
  }
  PlacementVerdict Decide() {
    return DecidePlacement(spec_, *Describe(spec_), candidates_, measured_);
  }
  // Stores a profile in which each layer of the job's model takes `seconds`.
  void Measure(const std::string& worker, double seconds) {
    measured_.Put(ProfileOf(spec_, worker, seconds));
  }

  JobSpec spec_ = GroupSpec();
  std::list<Member> members_;
  std::vector<Candidate> candidates_;
  StoredMeasurements measured_;
};

TEST_F(GroupPlacement, LeavesBusyAndDrainedWorkersOut) {
  Add().job = JobId{7};
  Add();
  Add().drained = true;

  const PlacementVerdict verdict = Decide();

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  ASSERT_EQ(verdict.plan->stages.size(), 1u);
  EXPECT_EQ(verdict.plan->stages[0].worker, WorkerId{2});
}

TEST_F(GroupPlacement, SaysForWhomItWaits) {
  Add().job = JobId{7};
  Add();
  spec_.aggregation.min_parts = 2;

  const PlacementVerdict verdict = Decide();

  EXPECT_FALSE(verdict.plan.has_value());
  EXPECT_EQ(verdict.why,
            "waits for workers: a round needs 2 members, and 1 worker that can "
            "be one is free; job 7 has others");
  EXPECT_EQ(verdict.waits_for, std::vector<JobId>{JobId{7}});
}

TEST_F(GroupPlacement, NamesThoseOfItsWorkersThatAreNotThere) {
  Add();
  spec_.aggregation.workers = {"w1", "w8", "w9"};
  const char kMissing[] =
      "aggregation.workers names w8, w9, which are not attached";

  const PlacementVerdict begins = Decide();
  ASSERT_TRUE(begins.plan.has_value());
  EXPECT_THAT(PlacementNotes(spec_, &*begins.plan, candidates_),
              Tells(kMissing, "takes in who joins later"));

  spec_.aggregation.min_parts = 2;
  const PlacementVerdict waits = Decide();
  EXPECT_FALSE(waits.plan.has_value());
  EXPECT_THAT(waits.why, HasSubstr(kMissing));

  spec_.aggregation.min_parts = 1;
  spec_.aggregation.workers = {"w1"};
  EXPECT_THAT(PlacementNotes(spec_, &*begins.plan, candidates_),
              Not(Tells("aggregation.workers names")));
}

TEST_F(GroupPlacement, SaysOfItsWorkersWhichAreDrained) {
  Add();
  Add().drained = true;
  spec_.aggregation.workers = {"w1", "w2", "w9"};
  spec_.aggregation.min_parts = 2;

  EXPECT_THAT(Decide().why,
              HasSubstr("aggregation.workers names w9, which is not attached; "
                        "aggregation.workers names w2, which is drained"));
}

// The first two of four cannot be, with what members of two hold.
TEST_F(GroupPlacement, TakesTheNextWorkersForThoseThatLackTheMemory) {
  for (int i = 0; i < 4; ++i) Add();
  const ModelDescription model = *Describe(spec_);
  for (Member& member : members_) {
    if (member.id.value > 2) break;
    member.registration.set_memory_bytes(MemberBytes(spec_, model, 2) - 1);
  }
  spec_.aggregation.members = 2;
  spec_.aggregation.min_parts = 1;

  const PlacementVerdict verdict = Decide();

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  ASSERT_EQ(verdict.plan->stages.size(), 2u);
  EXPECT_EQ(verdict.plan->stages[0].worker, WorkerId{3});
  EXPECT_EQ(verdict.plan->stages[1].worker, WorkerId{4});
}

TEST_F(GroupPlacement, NamesWorkersThatCannotHoldTheModel) {
  Add();
  members_.back().registration.set_memory_bytes(1000);
  Add();
  spec_.aggregation.min_parts = 2;

  const PlacementVerdict verdict = Decide();

  EXPECT_TRUE(verdict.impossible.ok()) << verdict.impossible;
  EXPECT_THAT(verdict.why, HasSubstr("w1"));
}

// Whoever serves holds a part of each: more members need more memory each.
TEST_F(GroupPlacement, LeavesOutWhoseMemoryIsTooSmallForSoManyMembers) {
  const int64_t alone = MemberBytes(spec_, *Describe(spec_), 1);
  Add();
  Add();
  members_.back().registration.set_memory_bytes(alone);
  Add();

  const PlacementVerdict verdict = Decide();

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  ASSERT_EQ(verdict.plan->stages.size(), 2u);
  EXPECT_EQ(verdict.plan->stages[1].worker, WorkerId{3});
  spec_.aggregation.min_parts = 3;
  members_.back().registration.set_memory_bytes(alone);
  EXPECT_THAT(Decide().why, Says("a round needs 3 members", "w2"));
}

TEST_F(GroupPlacement, JoinerNeedsTheMemoryForTheStateItFetches) {
  Add();
  Add();
  const Member& present = members_.front();
  Member& joiner = members_.back();
  const ModelDescription model = *Describe(spec_);
  joiner.registration.set_memory_bytes(JoinerBytes(spec_, model, 2));
  EXPECT_TRUE(CheckRoom(spec_, model, {&present}, joiner).ok());

  joiner.registration.set_memory_bytes(joiner.registration.memory_bytes() - 1);
  const absl::Status refused = CheckRoom(spec_, model, {&present}, joiner);

  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), Says("worker w2 has", "one of 2 members",
                                      "the state that it fetches included"));
}

TEST_F(GroupPlacement, JoinerIsNotTakenInWhereAMemberCouldNotHoldItsPart) {
  Add();
  Add();
  const ModelDescription model = *Describe(spec_);
  const int64_t enough =
      MemberBytes(spec_, model, 2) + GroupStateBytes(spec_, model);
  const auto room = [&](int64_t bytes) {
    members_.front().registration.set_memory_bytes(bytes);
    return CheckRoom(spec_, model, {&members_.front()}, members_.back());
  };

  EXPECT_TRUE(room(enough).ok()) << room(enough);
  const absl::Status refused = room(enough - 1);

  EXPECT_THAT(refused.message(), Says("worker w1 has", "if w2 joined"));
}

TEST_F(GroupPlacement, SharesFollowTheSpeedWhereAllAreMeasured) {
  Add();
  Add();
  Measure("w1", 0.001);
  EXPECT_EQ(Decide().plan->stages[0].share, 1);
  Measure("w2", 0.004);

  const std::vector<StageOfPlan> stages = Decide().plan->stages;

  EXPECT_NEAR(stages[0].share / stages[1].share, 4, 0.01);
}

TEST_F(GroupPlacement, LeavesOutAMemberThatNobodyCanDial) {
  for (int i = 0; i < 3; ++i) Add();
  for (const char* const other : {"w2", "w3"}) {
    measured_.Put(LinkMeasurement{.from = other,
                                  .to = "w1",
                                  .bytes_per_second = kRefusedBytesPerSecond,
                                  .error = "cannot dial w1 (:9): no"});
  }

  const PlacementVerdict verdict = Decide();

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  ASSERT_EQ(verdict.plan->stages.size(), 2u);
  EXPECT_EQ(verdict.plan->stages[0].worker, WorkerId{2});
  spec_.aggregation.min_parts = 3;
  EXPECT_THAT(Decide().why, HasSubstr("worker w2 cannot dial w1"));
}

TEST_F(GroupPlacement, JoinerHasTheCapabilityAndIsNamedIfAnyIs) {
  Add();
  members_.back().registration.set_cpu_capability("avx2");
  const auto check = [&](const std::string& capability) {
    return std::string(
        CheckJoiner(spec_, *Describe(spec_), capability, members_.back(), {})
            .message());
  };

  EXPECT_EQ(check("avx512"),
            "worker w1 has avx2, and the job computes with avx512");
  spec_.aggregation.workers = {"w9"};
  EXPECT_EQ(check("avx2"), "worker w1 is not among aggregation.workers");
}

}  // namespace
}  // namespace paceline
