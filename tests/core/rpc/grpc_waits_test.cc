#include "core/rpc/grpc_waits.h"

#include "core/base/clock.h"
#include "core/os/thread.h"
#include "core/rpc/status.h"
#include "grpc/support/sync.h"
#include "grpc/support/time.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// A lock and a condition variable as gRPC uses them.
class GrpcWaitTest : public testing::Test {
 protected:
  GrpcWaitTest() {
    gpr_mu_init(&mutex_);
    gpr_cv_init(&changed_);
  }
  ~GrpcWaitTest() override {
    gpr_cv_destroy(&changed_);
    gpr_mu_destroy(&mutex_);
  }

  // Whether the wait's time has passed.
  bool WaitUntil(gpr_timespec deadline) {
    gpr_mu_lock(&mutex_);
    const bool late = gpr_cv_wait(&changed_, &mutex_, deadline) != 0;
    gpr_mu_unlock(&mutex_);
    return late;
  }

  gpr_mu mutex_;
  gpr_cv changed_;
};

TEST_F(GrpcWaitTest, IsThisProgramsOwn) { EXPECT_TRUE(GrpcWaitsSteadily()); }

TEST_F(GrpcWaitTest, EndsWhenItsTimeHasPassedOnEitherClock) {
  for (const gpr_clock_type clock : {GPR_CLOCK_MONOTONIC, GPR_CLOCK_REALTIME}) {
    const Instant begin = SteadyNow();

    EXPECT_TRUE(WaitUntil(
        gpr_time_add(gpr_now(clock), gpr_time_from_millis(30, GPR_TIMESPAN))));

    EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(29));
  }
}

TEST_F(GrpcWaitTest, ATimeThatHasPassedIsNoWait) {
  EXPECT_TRUE(WaitUntil(DeadlineAfter(-absl::Hours(1))));
  EXPECT_TRUE(WaitUntil(gpr_inf_past(GPR_CLOCK_REALTIME)));
}

TEST_F(GrpcWaitTest, EndsWhenItIsSignalled) {
  for (const gpr_timespec deadline :
       {DeadlineAfter(absl::Hours(1)), gpr_inf_future(GPR_CLOCK_REALTIME),
        gpr_inf_future(GPR_CLOCK_MONOTONIC)}) {
    gpr_mu_lock(&mutex_);
    bool changed = false;
    Thread other("other", [&] {
      gpr_mu_lock(&mutex_);
      changed = true;
      gpr_cv_signal(&changed_);
      gpr_mu_unlock(&mutex_);
    });

    while (!changed) EXPECT_EQ(gpr_cv_wait(&changed_, &mutex_, deadline), 0);

    gpr_mu_unlock(&mutex_);
  }
}

}  // namespace
}  // namespace paceline
