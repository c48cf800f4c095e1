
#include <pthread.h>

#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "core/os/thread.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

TEST(TaskLoop, RunsTasksInTheOrderTheyWerePosted) {
  std::vector<int> ran;
  {
    TaskLoop loop("loop");
    for (int i = 0; i < 100; ++i) {
      loop.Post([&ran, i] { ran.push_back(i); });
    }
  }

  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST(TaskLoop, RunsATaskThatATaskPosted) {
  absl::Notification ran;
  TaskLoop loop("loop");

  loop.Post([&] { loop.Post([&ran] { ran.Notify(); }); });

  ran.WaitForNotification();
}

TEST(TaskLoop, RefusesTasksOnceStopped) {
  TaskLoop loop("loop");
  loop.Stop();
  bool ran = false;

  EXPECT_FALSE(loop.TryPost([&ran] { ran = true; }));
  loop.Post([&ran] { ran = true; });

  loop.Stop();
  EXPECT_FALSE(ran);
}

TEST(TaskLoop, RefusesRequestsAboveItsCapacityAndNothingElse) {
  absl::Notification running, go_on, ran;
  TaskLoop loop("loop", nullptr, /*capacity=*/2);
  loop.Post([&] {
    running.Notify();
    go_on.WaitForNotification();
  });
  running.WaitForNotification();

  EXPECT_TRUE(loop.TryPost([] {}));
  EXPECT_TRUE(loop.TryPost([] {}));
  EXPECT_FALSE(loop.TryPost([] {}));
  loop.Post([&ran] { ran.Notify(); });

  go_on.Notify();
  ran.WaitForNotification();
}

TEST(TaskLoop, EndsABatchAfterAllTasksThatWaited) {
  absl::Notification running, go_on;
  std::string log;
  {
    TaskLoop loop("loop", [&log] { log += '|'; });
    loop.Post([&] {
      log += 'a';
      running.Notify();
      go_on.WaitForNotification();
    });
    running.WaitForNotification();
    loop.Post([&log] { log += 'b'; });
    loop.Post([&log] { log += 'c'; });
    go_on.Notify();
  }

  EXPECT_EQ(log, "a|bc|");
}

TEST(Thread, HasItsNameAndIsJoinedWhenDropped) {
  std::string name;
  {
    const Thread thread("a-name-too-long-for-linux", [&name] {
      char text[16];
      pthread_getname_np(pthread_self(), text, sizeof(text));
      name = text;
    });
  }

  EXPECT_EQ(name, "a-name-too-long");
}

TEST(Thread, AssignmentJoinsTheOldOneFirst) {
  std::string log;
  Thread thread("first", [&log] { log += '1'; });
  Thread second;
  thread = std::move(second);

  EXPECT_EQ(log, "1");
}

}  // namespace
}  // namespace paceline
