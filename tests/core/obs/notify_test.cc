#include "core/obs/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// A supervisor that listens where NOTIFY_SOCKET says; `name` as there.
class FakeSupervisor {
 public:
  explicit FakeSupervisor(const std::string& name)
      : name_(name), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const socklen_t length = offsetof(sockaddr_un, sun_path) + name.size();
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0)
        << std::strerror(errno);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~FakeSupervisor() {
    unsetenv("NOTIFY_SOCKET");
    close(fd_);
    if (name_[0] == '/') unlink(name_.c_str());
  }
  FakeSupervisor(const FakeSupervisor&) = delete;
  FakeSupervisor& operator=(const FakeSupervisor&) = delete;

  // The next message; empty when there is none.
  std::string Next() {
    char buffer[256];
    const ssize_t got = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return got < 0 ? "" : std::string(buffer, got);
  }

 private:
  const std::string name_;
  const int fd_;
};

std::string UniqueName() { return absl::StrCat("paceline-notify-", getpid()); }

TEST(Notify, ReachesASocketInTheFileSystem) {
  FakeSupervisor supervisor(testing::TempDir() + UniqueName());

  NotifySupervisor("READY=1");
  NotifySupervisor("STATUS=serving");

  EXPECT_EQ(supervisor.Next(), "READY=1");
  EXPECT_EQ(supervisor.Next(), "STATUS=serving");
}

TEST(Notify, ReachesAnAbstractSocket) {
  FakeSupervisor supervisor("@" + UniqueName());

  NotifySupervisor("STOPPING=1");

  EXPECT_EQ(supervisor.Next(), "STOPPING=1");
}

TEST(KeepNotifying, FeedsTheWatchdogWhileThereIsAStatus) {
  FakeSupervisor supervisor("@" + UniqueName());
  setenv("WATCHDOG_USEC", "40000", 1);  // it is asked every 10 ms
  int asked = 0;
  absl::Notification asked_in_vain;
  {
    const std::unique_ptr<Ticker> notifying =
        KeepNotifying([&]() -> std::optional<std::string> {
          if (++asked == 5) asked_in_vain.Notify();
          if (asked > 3) return std::nullopt;
          return absl::StrCat("step ", asked);
        });
    asked_in_vain.WaitForNotification();
  }
  unsetenv("WATCHDOG_USEC");

  EXPECT_EQ(supervisor.Next(), "READY=1\nSTATUS=step 1");
  EXPECT_EQ(supervisor.Next(), "WATCHDOG=1\nSTATUS=step 2");
  EXPECT_EQ(supervisor.Next(), "WATCHDOG=1\nSTATUS=step 3");
  EXPECT_EQ(supervisor.Next(), "");
}

TEST(KeepNotifying, IsNothingWithoutASupervisor) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(KeepNotifying([] { return "idle"; }), nullptr);
}

TEST(Notify, DoesNothingWhenNobodyCouldListen) {
  unsetenv("NOTIFY_SOCKET");
  NotifySupervisor("READY=1");
  for (const std::string& name :
       {std::string(), std::string("@"), std::string("relative"),
        std::string("/nowhere/at/all"), "/" + std::string(500, 'x')}) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    NotifySupervisor("READY=1");
  }
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace paceline
