#include "coordinator/jobs/recovery_meter.h"

#include "gtest/gtest.h"

namespace paceline {
namespace {

using P = JobPhase;
using C = JobCause;

Moment MomentAt(double seconds) {
  return {{absl::Seconds(seconds)}, static_cast<int64_t>(1000 * seconds)};
}

// Reached step 46, and goes on from step 40.
void Leave(RecoveryMeter& meter, double seconds) {
  meter.OnTransition({P::kRunning, C::kLoss, P::kLeaving}, 46, {}, "w3 is lost",
                     MomentAt(seconds));
}
void Begin(RecoveryMeter& meter, double left, double chosen, double runs) {
  meter.OnTransition({P::kLeaving, C::kAllLeft, P::kChoosing}, 46, {}, "",
                     MomentAt(left));
  meter.OnTransition({P::kChoosing, C::kStored, P::kStarting}, 40, {1, 40}, "",
                     MomentAt(chosen));
  meter.OnFetched(0.125);
  meter.OnTransition({P::kStarting, C::kAllRun, P::kRunning}, 40, {1, 40}, "",
                     MomentAt(runs));
}

TEST(RecoveryMeter, SplitsTheTimeUntilTheJobIsAsFarAsItWas) {
  RecoveryMeter meter;
  v1::Recovery sum;
  sum.set_recoveries(2);
  sum.set_replayed_steps(10);
  meter.SetDetection(absl::Milliseconds(500));
  Leave(meter, 10);
  Begin(meter, 10.25, 10.5, 11);

  EXPECT_EQ(meter.open()->seconds().leave(), 0.25);
  EXPECT_FALSE(meter.OnStep(45, MomentAt(11.25), sum));
  EXPECT_TRUE(meter.OnStep(46, MomentAt(13), sum));
  EXPECT_FALSE(meter.OnStep(47, MomentAt(14), sum)) << "it is over";
  EXPECT_FALSE(meter.open().has_value());

  EXPECT_EQ(sum.recoveries(), 3);
  EXPECT_EQ(sum.replayed_steps(), 16);
  EXPECT_EQ(sum.why(), "w3 is lost");
  EXPECT_EQ(sum.from_step(), 40);
  EXPECT_EQ(sum.again(), 6);
  EXPECT_EQ(sum.unix_ms(), 10'000);
  EXPECT_EQ(sum.seconds().detect(), 0.5);
  EXPECT_EQ(sum.seconds().leave(), 0.25);
  EXPECT_EQ(sum.seconds().choose(), 0.25);
  EXPECT_EQ(sum.seconds().fetch(), 0.125);
  EXPECT_EQ(sum.seconds().build(), 0.375);
  EXPECT_EQ(sum.seconds().replay(), 2);
  EXPECT_EQ(SecondsOf(sum), 3.5);
}

TEST(RecoveryMeter, ALossMeanwhileProlongsIt) {
  RecoveryMeter meter;
  v1::Recovery sum;
  Leave(meter, 10);
  Begin(meter, 11, 12, 13);
  Leave(meter, 14);
  Begin(meter, 15, 16, 17);

  EXPECT_TRUE(meter.OnStep(46, MomentAt(18), sum));

  EXPECT_EQ(sum.recoveries(), 1);
  EXPECT_EQ(sum.unix_ms(), 10'000);
  EXPECT_EQ(sum.seconds().leave(), 2);
  EXPECT_EQ(sum.again(), 12);
}

TEST(RecoveryMeter, APauseIsInNoPhase) {
  RecoveryMeter meter;
  v1::Recovery sum;
  Leave(meter, 10);
  meter.OnTransition({P::kLeaving, C::kAllLeft, P::kChoosing}, 46, {}, "",
                     MomentAt(10));
  meter.OnTransition({P::kChoosing, C::kNoPlan, P::kPaused}, 46, {}, "",
                     MomentAt(10));
  meter.OnTransition({P::kPaused, C::kMembersChanged, P::kChoosing}, 46, {}, "",
                     MomentAt(100));
  meter.OnTransition({P::kChoosing, C::kStored, P::kStarting}, 46, {1, 46}, "",
                     MomentAt(100));
  meter.OnTransition({P::kStarting, C::kAllRun, P::kRunning}, 46, {1, 46}, "",
                     MomentAt(101));

  EXPECT_TRUE(meter.OnStep(46, MomentAt(101), sum));
  EXPECT_EQ(SecondsOf(sum), 1);
}

}  // namespace
}  // namespace paceline
