
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/os/thread.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

TEST(SteadyMutex, AWaitEndsWhenItsTimeHasPassed) {
  SteadyMutex mutex;
  const bool never = false;
  const Instant begin = SteadyNow();

  SteadyLock lock(&mutex);
  EXPECT_FALSE(mutex.AwaitFor(absl::Condition(&never), absl::Milliseconds(20)));

  EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(20));
}

TEST(SteadyMutex, AWaitForWhatIsThereEndsAtOnce) {
  SteadyMutex mutex;
  const bool here = true;

  SteadyLock lock(&mutex);
  EXPECT_TRUE(mutex.AwaitFor(absl::Condition(&here), -kLong));
  EXPECT_TRUE(mutex.AwaitFor(absl::Condition(&here), absl::InfiniteDuration()));
  mutex.Await(absl::Condition(&here));
}

TEST(SteadyMutex, NoTimeIsNoWait) {
  SteadyMutex mutex;
  const bool never = false;

  SteadyLock lock(&mutex);
  EXPECT_FALSE(mutex.AwaitFor(absl::Condition(&never), absl::ZeroDuration()));
  EXPECT_FALSE(
      mutex.AwaitFor(absl::Condition(&never), -absl::InfiniteDuration()));
}

TEST(SteadyMutex, UnlockingWakesThoseWhoseConditionHolds) {
  SteadyMutex mutex;
  int turn = 0;
  std::vector<int> order;
  std::vector<Thread> threads;
  for (int i = 3; i > 0; --i) {
    threads.emplace_back("waiter", [&, i] {
      const auto mine = [&] { return turn == i; };
      SteadyLock lock(&mutex);
      if (!mutex.AwaitFor(absl::Condition(&mine), kLong)) return;
      order.push_back(i);
      ++turn;
    });
  }

  {
    SteadyLock lock(&mutex);
    turn = 1;
  }

  threads.clear();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

// The thread changes the state and waits itself, without an Unlock() between.
TEST(SteadyMutex, AWaitGivesWhatChangedToOthers) {
  SteadyMutex mutex;
  bool asked = false;
  bool answered = false;
  Thread other("other", [&] {
    SteadyLock lock(&mutex);
    if (mutex.AwaitFor(absl::Condition(&asked), kLong)) answered = true;
  });

  SteadyLock lock(&mutex);
  asked = true;
  EXPECT_TRUE(mutex.AwaitFor(absl::Condition(&answered), kLong));
}

TEST(SteadyNotification, IsSeenByWhoWaitsAndByWhoComesLater) {
  SteadyNotification done;
  EXPECT_FALSE(done.HasBeenNotified());
  EXPECT_FALSE(done.WaitFor(absl::Milliseconds(1)));
  Thread other("other", [&] { done.Notify(); });

  EXPECT_TRUE(done.WaitFor(kLong));

  EXPECT_TRUE(done.HasBeenNotified());
  EXPECT_TRUE(done.WaitFor(absl::ZeroDuration()));
  done.WaitForNotification();
}

TEST(SteadyNotification, AWaiterMayDestroyIt) {
  for (int i = 0; i < 200; ++i) {
    auto done = std::make_unique<SteadyNotification>();
    Thread other("other", [it = done.get()] { it->Notify(); });
    done->WaitForNotification();
    done.reset();
  }
}

}  // namespace
}  // namespace paceline
