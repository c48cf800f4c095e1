#include "core/obs/request_reader.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// Both ends of a connection; the reader owns the other one.
class Ends {
 public:
  Ends() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    client_ = fds[0];
    server = fds[1];
  }
  ~Ends() { close(client_); }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  void Say(const std::string& text) {
    EXPECT_EQ(send(client_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void FinishSaying() { shutdown(client_, SHUT_WR); }
  // Whether the other end is closed within 10 s.
  bool IsHungUpOn() {
    pollfd entry{.fd = client_, .events = POLLIN, .revents = 0};
    char byte;
    return poll(&entry, 1, 10'000) == 1 && recv(client_, &byte, 1, 0) <= 0;
  }

  int server = -1;

 private:
  int client_ = -1;
};

// Takes what is ready, and closes it.
class Taker {
 public:
  RequestReader::Ready Callback() {
    return [this](ReadyConnection one) {
      close(one.fd);
      absl::MutexLock lock(&mutex_);
      texts_.push_back(one.received);
    };
  }
  std::vector<std::string> Await(size_t count) {
    const auto enough = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return texts_.size() >= count;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(10));
    return texts_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

TEST(RequestReader, HandsOverWhatHasTheEndOfItsHeaders) {
  Taker taker;
  RequestReader reader({}, taker.Callback());
  Ends half, whole;
  reader.Add(half.server);
  reader.Add(whole.server);
  half.Say("GET / HT");
  whole.Say("GET / HTTP/1.1\r\n\r\nmore");

  EXPECT_EQ(taker.Await(1),
            std::vector<std::string>{"GET / HTTP/1.1\r\n\r\nmore"});
}

TEST(RequestReader, FindsAnEndThatIsCutAnywhere) {
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  for (size_t cut = 1; cut < request.size(); ++cut) {
    Taker taker;
    RequestReader reader({}, taker.Callback());
    Ends ends;
    reader.Add(ends.server);
    ends.Say(request.substr(0, cut));
    ends.Say(request.substr(cut));

    EXPECT_EQ(taker.Await(1), std::vector<std::string>{request}) << cut;
  }
}

TEST(RequestReader, HandsOverWhatIsTooLongAndWhatWillNotGoOn) {
  Taker taker;
  RequestReaderLimits limits;
  limits.request_bytes = 10;
  RequestReader reader(limits, taker.Callback());
  Ends too_long, ended;
  reader.Add(too_long.server);
  too_long.Say("0123456789");
  EXPECT_EQ(taker.Await(1).at(0), "0123456789");

  reader.Add(ended.server);
  ended.Say("GET");
  ended.FinishSaying();

  EXPECT_EQ(taker.Await(2).at(1), "GET");
}

TEST(RequestReader, HangsUpOnTheSilentAndTheSlow) {
  Taker taker;
  RequestReaderLimits limits;
  limits.first_byte = std::chrono::milliseconds(10);
  limits.request = std::chrono::milliseconds(20);
  RequestReader reader(limits, taker.Callback());
  Ends silent, slow, gone;
  slow.Say("GET");
  gone.FinishSaying();
  for (const Ends* one : {&silent, &slow, &gone}) reader.Add(one->server);

  EXPECT_TRUE(silent.IsHungUpOn());
  EXPECT_TRUE(slow.IsHungUpOn());
  EXPECT_TRUE(gone.IsHungUpOn());
}

TEST(RequestReader, HangsUpOnTheOldestOfTooMany) {
  Taker taker;
  RequestReaderLimits limits;
  limits.connections = 3;
  limits.first_byte = limits.request = std::chrono::hours(1);
  RequestReader reader(limits, taker.Callback());
  std::vector<std::unique_ptr<Ends>> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(std::make_unique<Ends>());
    reader.Add(all.back()->server);
  }

  EXPECT_TRUE(all[0]->IsHungUpOn());
  EXPECT_TRUE(all[1]->IsHungUpOn());
  all[4]->Say("\r\n\r\n");
  EXPECT_EQ(taker.Await(1).size(), 1u);
}

// Whoever answers has no time: what is added meanwhile stays bounded.
TEST(RequestReader, HangsUpOnTheOldestWhileNobodyTakesAnything) {
  absl::Notification blocked, go_on;
  RequestReaderLimits limits;
  limits.connections = 3;
  limits.first_byte = limits.request = std::chrono::hours(1);
  RequestReader reader(limits, [&](ReadyConnection one) {
    close(one.fd);
    blocked.Notify();
    go_on.WaitForNotification();
  });
  Ends first;
  first.Say("\r\n\r\n");
  reader.Add(first.server);
  blocked.WaitForNotification();
  std::vector<std::unique_ptr<Ends>> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(std::make_unique<Ends>());
    reader.Add(all.back()->server);
  }

  EXPECT_TRUE(all[0]->IsHungUpOn());
  EXPECT_TRUE(all[1]->IsHungUpOn());
  go_on.Notify();
}

TEST(RequestReader, HangsUpOnEverybodyWhenItStops) {
  Taker taker;
  RequestReader reader({}, taker.Callback());
  Ends before, after;
  reader.Add(before.server);

  reader.Stop();
  reader.Add(after.server);

  EXPECT_TRUE(before.IsHungUpOn());
  EXPECT_TRUE(after.IsHungUpOn());
}

}  // namespace
}  // namespace paceline
