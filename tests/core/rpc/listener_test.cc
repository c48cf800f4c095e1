#include "core/rpc/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

constexpr int kDeferSeconds = 1;

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int PortOf(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// A listener, whoever it has accepted, and clients.
class ListenerTest : public ::testing::Test {
 protected:
  ListenerTest() {
    rlimit files = {};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  ~ListenerTest() override {
    for (const int fd : clients_) close(fd);
    absl::MutexLock lock(&mutex_);
    for (const int fd : accepted_) close(fd);
  }

  int ConnectSilently() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in to = Loopback(PortOf(socket_));
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
              0);
    clients_.push_back(fd);
    return fd;
  }

  // Says a byte, and waits until the connection is accepted.
  int Connect() {
    const int fd = ConnectSilently();
    EXPECT_EQ(send(fd, "", 1, 0), 1);
    absl::MutexLock lock(&mutex_);
    const auto taken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return accepted_.size() == clients_.size();
    };
    mutex_.Await(absl::Condition(&taken));
    return fd;
  }

  // The other side of the newest client's connection.
  int Newest() {
    absl::MutexLock lock(&mutex_);
    return accepted_.back();
  }

  // So many bytes from the newest client in chunks, each read on the other
  // side.  False: the connection was closed.
  bool Send(int64_t bytes, size_t chunk_bytes = 64 << 10) {
    const int reader = Newest();
    const std::vector<char> some(chunk_bytes);
    std::vector<char> read(some.size());
    for (int64_t sent = 0; sent < bytes; sent += std::ssize(some)) {
      if (send(clients_.back(), some.data(), some.size(), MSG_NOSIGNAL) < 0) {
        return false;
      }
      for (size_t got = 0; got < some.size();) {
        pollfd readable{reader, POLLIN, 0};
        poll(&readable, 1, -1);
        const ssize_t more = recv(reader, read.data(), some.size() - got, 0);
        if (more <= 0) return false;
        got += static_cast<size_t>(more);
      }
    }
    return true;
  }

  // Whether the connection is closed once the newest client has sent so many.
  bool EndsAfter(int64_t bytes, size_t chunk_bytes = 64 << 10) {
    Send(bytes, chunk_bytes);
    return Ends(clients_.back());
  }

  // So many bytes to the newest client, which reads them.
  bool Answer(size_t bytes) {
    std::vector<char> some(bytes);
    return send(Newest(), some.data(), bytes, MSG_NOSIGNAL) ==
               std::ssize(some) &&
           recv(clients_.back(), some.data(), bytes, MSG_WAITALL) ==
               std::ssize(some);
  }

  static std::string PeerOf(int client) {
    return absl::StrCat("ipv4:127.0.0.1:", PortOf(client));
  }

  // Waits for the end of the connection.
  static bool Ends(int client) {
    char byte = 0;
    return recv(client, &byte, 1, 0) <= 0;
  }
  static bool IsOpen(int client) {
    char byte = 0;
    return recv(client, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

 private:
  static int ListeningSocket() {
    const int fd =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr_in any = Loopback(0);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof(any)),
              0);
    EXPECT_EQ(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &kDeferSeconds,
                         sizeof(kDeferSeconds)),
              0);
    EXPECT_EQ(listen(fd, SOMAXCONN), 0);
    return fd;
  }

  const int socket_ = ListeningSocket();
  std::vector<int> clients_;
  absl::Mutex mutex_;
  std::vector<int> accepted_ ABSL_GUARDED_BY(mutex_);
  const Listener listener_{{socket_}, 0, [this](int fd) {
                             absl::MutexLock lock(&mutex_);
                             accepted_.push_back(fd);
                           }};
};

constexpr int64_t kFarTooMuch = int64_t{1} << 40;

TEST_F(ListenerTest, ClosesWhoSaysSomethingElseFirst) {
  const int other = ConnectSilently();
  EXPECT_EQ(send(other, "GET", 3, 0), 3);

  EXPECT_TRUE(Ends(other));
}

TEST_F(ListenerTest, EndsAStrangerThatSendsFarMoreThanAMessage) {
  Connect();

  EXPECT_TRUE(EndsAfter(kFarTooMuch));
}

TEST_F(ListenerTest, CountsAnewAfterAMessage) {
  const int client = Connect();

  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(Send(Listener::kMostBytesOfOne * 3 / 4)) << i;
    Listener::OnMessage(PeerOf(client), Listener::kMostBytesOfOne * 3 / 4);
  }

  EXPECT_TRUE(EndsAfter(kFarTooMuch));
}

TEST_F(ListenerTest, CountsWhatIsUnfinishedBesideAMessage) {
  const int client = Connect();

  for (int i = 0; i < 10 && Send(Listener::kMostBytesOfOne * 3 / 4); ++i) {
    Listener::OnMessage(PeerOf(client), 100);
  }

  EXPECT_TRUE(Ends(client));
}

TEST_F(ListenerTest, EndsAStrangerWhoseMessageComesByteByByte) {
  Connect();

  EXPECT_TRUE(EndsAfter(kFarTooMuch, 1));
}

TEST_F(ListenerTest, TakesAnyNumberOfSmallMessages) {
  const int client = Connect();

  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(Send(20, 10)) << i;
    Listener::OnMessage(PeerOf(client), 10);
  }
}

TEST_F(ListenerTest, TakesTheSmallFramesOfAClientThatReadsALongAnswer) {
  Connect();

  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(Answer(8192)) << i;
    ASSERT_TRUE(Send(10, 10)) << i;
  }
}

TEST_F(ListenerTest, LetsAMemberSendWhatItWants) {
  const int client = Connect();

  Listener::OnKnown(PeerOf(client));

  EXPECT_TRUE(Send(10 * Listener::kMostBytesOfOne));
}

TEST_F(ListenerTest,
       EndsTheStrangerThatHasBeenSilentForLongestWhenThereAreMany) {
  const int first = Connect();
  const int second = Connect();
  const int known = Connect();
  Listener::OnKnown(PeerOf(known));
  for (int i = 2; i < Listener::kMostConnections; ++i) Connect();
  Listener::OnMessage(PeerOf(first), 1);

  const int one_more = Connect();

  EXPECT_TRUE(Ends(second));
  for (const int other : {first, known, one_more}) EXPECT_TRUE(IsOpen(other));
}

TEST_F(ListenerTest, HasNoRoomForAnotherThatSaysNothing) {
  const int first = Connect();
  for (int i = 1; i < Listener::kMostConnections; ++i) Connect();

  EXPECT_TRUE(Ends(ConnectSilently()));

  EXPECT_TRUE(IsOpen(first));
}

}  // namespace
}  // namespace paceline
