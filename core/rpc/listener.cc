#include "core/rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

// Between two looks at what strangers send: a flood of 2 GB/s brings 4 MB.
constexpr int kLookPeriodMs = 2;
// Between two looks at all strangers, those that send nothing too.
constexpr int kFullLookPeriodMs = 1000;
// A message in small TCP segments costs much CPU.  A stranger's connection ends
// when its unfinished message has come in more segments than these, with fewer
// bytes in each on average.  A client begins with about ten small segments.
constexpr int64_t kMostSmallSegments = 100;
constexpr int64_t kSmallSegmentBytes = 256;
// A client that reads a long answer says so in HTTP/2 frames: it sends at most
// one small segment for so many bytes.
constexpr int64_t kBytesAReceipt = 4096;
// After each connection beyond a bound: gRPC ends the one that was closed
// meanwhile, and a flood takes less CPU.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(2);
// Descriptors that strangers leave to the rest of the program.
constexpr rlim_t kSpareFiles = 64;
// Frames and headers of a message, encryption, and what HTTP/2 says of the
// answer before it.
constexpr int64_t kOverheadBytes = 16 << 10;
constexpr int kEstablished = 1;  // TCP's state, as the kernel counts them

// As gRPC calls it.
std::string PeerOf(const sockaddr_in6& from) {
  const bool v6 = from.sin6_family == AF_INET6;
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
  char host[INET6_ADDRSTRLEN] = {};
  inet_ntop(from.sin6_family,
            v6 ? static_cast<const void*>(&from.sin6_addr) : &v4.sin_addr, host,
            sizeof(host));
  const int port = ntohs(v4.sin_port);  // at the same place in both families
  if (!v6) return absl::StrCat("ipv4:", host, ":", port);
  const std::string scope =
      from.sin6_scope_id == 0 ? "" : absl::StrCat("%25", from.sin6_scope_id);
  return absl::StrCat("ipv6:%5B", host, scope, "%5D:", port);
}

int64_t ReceivedBytes(const tcp_info& info) {
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

tcp_info InfoOf(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
  return info;
}

// The strangers of the process.  Thread-safe.
class Strangers {
 public:
  // Readable while a stranger has sent something or has left since the last
  // look.
  int events() const { return events_; }

  // fd: one of our own, so that no other connection is taken for this one after
  // gRPC has closed its descriptor.
  // silent: it is the first to end.
  void Add(int fd, std::string peer, bool silent) {
    absl::MutexLock lock(&mutex_);
    const auto one =
        strangers_.insert(silent ? strangers_.begin() : strangers_.end(),
                          {fd, std::move(peer), SteadyNow(), SteadyNow()});
    // Without EPOLLOUT the kernel drops the event where gRPC was quicker and
    // has read the bytes.
    epoll_event wanted = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {&*one}};
    epoll_ctl(events_, EPOLL_CTL_ADD, fd, &wanted);
  }

  int size() {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(strangers_.size());
  }

  void EndOldest() {
    absl::MutexLock lock(&mutex_);
    if (!strangers_.empty()) End(strangers_.begin());
  }

  void OnMessage(const std::string& peer, int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const auto found = Find(peer);
    if (found == strangers_.end()) return;
    // The rest is of messages that are not whole.
    const int64_t most = bytes + bytes / 16 + kOverheadBytes;
    Count(*found);
    if (found->held <= most) found->since = SteadyNow();
    const int64_t done = std::min(found->held, most);
    found->in_messages += done;
    found->held -= done;
    found->segments_before += std::exchange(found->segments, 0);
    strangers_.splice(strangers_.end(), strangers_, found);
  }

  void OnKnown(const std::string& peer) {
    absl::MutexLock lock(&mutex_);
    const auto found = Find(peer);
    if (found != strangers_.end()) Forget(found);
  }

  absl::Status OnBegun(const void* connection) {
    absl::MutexLock lock(&mutex_);
    const Instant now = SteadyNow();
    Calls& own = calls_[connection];
    if (own.size() >= Listener::kMostCalls) {
      size_t beyond = 0;
      for (const auto& [each, calls] : calls_) {
        beyond +=
            std::max(calls.size(), Listener::kMostCalls) - Listener::kMostCalls;
      }
      if (beyond >= Listener::kMostCallsBeyond) {
        return ResourceExhausted(
            own.size(),
            " calls of this connection have begun and not ended: "
            "try again later");
      }
    }
    own.begun.push_back(now);
    return absl::OkStatus();
  }

  // Whether it began as a stranger's.
  bool OnCall(const void* connection, const std::string& peer, Instant due) {
    absl::MutexLock lock(&mutex_);
    const auto found = Find(peer);
    if (found != strangers_.end()) found->connection = connection;
    const auto calls = calls_.find(connection);
    if (calls == calls_.end() || calls->second.begun.empty()) return false;
    std::vector<Instant>& begun = calls->second.begun;
    // The newest: an older one waits for its message.
    begun.pop_back();
    // Another connection had this address.
    if (found != strangers_.end()) {
      std::erase_if(begun, [found](auto each) { return each < found->came; });
    }
    calls->second.due.insert(due);
    return true;
  }

  // The answer that is due at `from` is due at `to`; nothing: it has left.
  void ChangeCall(const void* connection, Instant from,
                  std::optional<Instant> to) {
    absl::MutexLock lock(&mutex_);
    const auto calls = calls_.find(connection);
    std::multiset<Instant>& due = calls->second.due;
    due.erase(due.find(from));
    if (to.has_value()) due.insert(*to);
    if (calls->second.size() == 0) calls_.erase(calls);
  }

  // Ends those that hold too much.  Returns the time until the next look is due
  // in ms where nothing happens; -1: there is nobody.
  int Look() {
    absl::MutexLock lock(&mutex_);
    epoll_event events[Listener::kMostConnections];
    const int count = epoll_wait(events_, events, std::size(events), 0);
    for (int i = 0; i < count; ++i) {
      Count(*static_cast<Stranger*>(events[i].data.ptr));
    }
    const Instant now = SteadyNow();
    const Instant begin = now + -Listener::kLongestMessage;
    const bool at_all = now >= next_full_look_;
    if (at_all) {
      next_full_look_ = now + absl::Milliseconds(kFullLookPeriodMs);
      // Those of connections that are gone, or are none of strangers.
      for (auto next = calls_.begin(); next != calls_.end();) {
        const auto one = next++;
        std::vector<Instant>& begun = one->second.begun;
        if (!begun.empty() &&
            begun.back() < now + -2 * Listener::kLongestSmallMessage) {
          begun.clear();
        }
        if (one->second.size() == 0) calls_.erase(one);
      }
    }
    int64_t all = 0;
    for (auto next = strangers_.begin(); next != strangers_.end();) {
      const auto one = next++;
      if (at_all) Count(*one);
      if (one->has_left) {
        Forget(one);
      } else if (one->held > Listener::kMostBytesOfOne ||
                 (one->held > Listener::kSmallBytes && one->since < begin) ||
                 (at_all && one->held <= Listener::kSmallBytes &&
                  IsOverdue(*one, now)) ||
                 (one->segments > kMostSmallSegments &&
                  one->held < one->segments * kSmallSegmentBytes)) {
        End(one);
      } else {
        all += one->held;
      }
    }
    // Down to half: gRPC frees the memory some time later.
    const bool too_much = all > Listener::kMostBytesOfAll;
    while (too_much && all > Listener::kMostBytesOfAll / 2) {
      const auto most = absl::c_max_element(
          strangers_,
          [](const auto& a, const auto& b) { return a.held < b.held; });
      all -= most->held;
      End(most);
    }
    return strangers_.empty() ? -1 : kFullLookPeriodMs;
  }

 private:
  struct Stranger {
    int fd = -1;
    std::string peer;
    Instant came;
    Instant since;                     // nothing of it was unfinished then
    const void* connection = nullptr;  // gRPC's; none before its first call
    int64_t in_messages = 0;           // bytes
    int64_t held = 0;                  // bytes that are in no message yet
    int64_t segments_before = 0;       // until the newest message
    int64_t segments = 0;              // with bytes and no receipts, since then
    bool has_left = false;             // or gRPC has ended it
  };
  using Iterator = std::list<Stranger>::iterator;
  // The calls of a connection.
  struct Calls {
    size_t size() const { return begun.size() + due.size(); }

    // When those began that no handler has yet, in order.
    std::vector<Instant> begun;
    // When the answers of the others must have left.
    std::multiset<Instant> due;
  };

  static void Count(Stranger& one) {
    const tcp_info info = InfoOf(one.fd);
    one.held = ReceivedBytes(info) - one.in_messages;
    one.segments = info.tcpi_data_segs_in - one.segments_before -
                   static_cast<int64_t>(info.tcpi_bytes_acked) / kBytesAReceipt;
    one.has_left = info.tcpi_state != kEstablished;
  }
  // Whether a call of it, or its first one, should have come by now, or an
  // answer should have left.
  bool IsOverdue(const Stranger& one, Instant now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Instant begin = now + -Listener::kLongestSmallMessage;
    if (one.connection == nullptr) return one.came < begin;
    const auto found = calls_.find(one.connection);
    if (found == calls_.end()) return false;
    const auto& [begun, due] = found->second;
    return (!begun.empty() && begun.front() < begin) ||
           (!due.empty() && *due.begin() < now);
  }
  Iterator Find(const std::string& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::c_find_if(strangers_, [&peer](const Stranger& each) {
      return each.peer == peer;
    });
  }
  void End(Iterator one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    shutdown(one->fd, SHUT_RDWR);  // gRPC reads the end of it
    Forget(one);
  }
  void Forget(Iterator one) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    epoll_ctl(events_, EPOLL_CTL_DEL, one->fd, nullptr);
    close(one->fd);
    strangers_.erase(one);
  }

  const int events_ = epoll_create1(EPOLL_CLOEXEC);
  absl::Mutex mutex_;
  std::list<Stranger> strangers_ ABSL_GUARDED_BY(mutex_);  // oldest first
  // By connection; each has one call at least.
  std::map<const void*, Calls> calls_ ABSL_GUARDED_BY(mutex_);
  Instant next_full_look_ ABSL_GUARDED_BY(mutex_);
};

Strangers& AllStrangers() {
  static auto* const all = new Strangers;
  return *all;
}

// The new connection; -1: none that may stay.
int Accept(int socket, char first) {
  sockaddr_in6 from = {};
  socklen_t size = sizeof(from);
  const int fd = accept4(socket, reinterpret_cast<sockaddr*>(&from), &size,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  const bool full = own < 0 ? errno == EMFILE || errno == ENFILE
                            : own + kSpareFiles > files.rlim_cur;
  // The kernel has waited long enough for a word of it, or has so many to wait
  // for that it waits for none.
  const bool silent = own >= 0 && ReceivedBytes(InfoOf(own)) == 0;
  char said = first;
  recv(fd, &said, 1, MSG_PEEK | MSG_DONTWAIT);
  Strangers& all = AllStrangers();
  const bool too_many = all.size() >= (full ? 0 : Listener::kMostConnections);
  if (too_many && !silent && said == first) {
    all.EndOldest();
    absl::SleepFor(kAcceptPause);
  }
  if (own >= 0 && !(too_many && silent) && said == first) {
    all.Add(own, PeerOf(from), silent);
    return fd;
  }
  if (own >= 0) close(own);
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

Listener::Listener(std::vector<int> sockets, char first,
                   std::function<void(int fd)> accepted)
    : sockets_(std::move(sockets)),
      first_(first),
      accepted_(std::move(accepted)),
      thread_("accept", [this] { Loop(); }) {}

Listener::~Listener() {
  stopping_ = true;
  for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);  // wakes it
  thread_.Join();
  for (const int socket : sockets_) close(socket);
}

void Listener::OnMessage(const std::string& peer, int64_t bytes) {
  AllStrangers().OnMessage(peer, bytes);
}

void Listener::OnKnown(const std::string& peer) {
  AllStrangers().OnKnown(peer);
}

absl::Status Listener::OnBegun(const void* connection) {
  return AllStrangers().OnBegun(connection);
}

std::unique_ptr<Listener::Call> Listener::OnCall(const void* connection,
                                                 const std::string& peer) {
  return AllStrangers().OnCall(connection, peer, kNever)
             ? std::make_unique<Call>(connection)
             : nullptr;
}

Listener::Call::~Call() {
  AllStrangers().ChangeCall(connection_, due_, std::nullopt);
}

void Listener::Call::OnAnswer(int64_t bytes) {
  const Instant due =
      SteadyNow() +
      (bytes > kSmallBytes ? kLongestMessage : kLongestSmallMessage);
  AllStrangers().ChangeCall(connection_, std::exchange(due_, due), due);
}

void Listener::Loop() {
  std::vector<pollfd> wanted = {{-1, POLLIN, 0}};
  for (const int socket : sockets_) wanted.push_back({socket, POLLIN, 0});
  int period_ms = -1;
  Instant looked;
  while (!stopping_) {
    const bool rests = SteadyNow() < looked + absl::Milliseconds(kLookPeriodMs);
    wanted[0].fd = rests ? -1 : AllStrangers().events();
    poll(wanted.data(), wanted.size(), rests ? kLookPeriodMs : period_ms);
    for (size_t i = 1; i < wanted.size(); ++i) {
      const int fd = wanted[i].revents == 0 ? -1 : Accept(wanted[i].fd, first_);
      if (fd >= 0) accepted_(fd);
    }
    if (rests) continue;
    period_ms = AllStrangers().Look();
    looked = SteadyNow();
  }
}

absl::StatusOr<std::unique_ptr<StreamLimit::Place>> StreamLimit::Enter(
    const std::string& peer) {
  // "ipv4:192.0.2.1:4711", "ipv6:%5B::1%5D:4711".
  std::string holder =
      of_ == Of::kHost ? peer.substr(0, peer.rfind(':')) : peer;
  absl::MutexLock lock(&mutex_);
  const auto found = of_one_.find(holder);
  const int of_one = found == of_one_.end() ? 0 : found->second;
  if (of_one >= most_of_one_ || in_all_ >= most_in_all_) {
    return ResourceExhausted(of_one, " streams of ", holder, " and ", in_all_,
                             " in all are open here, at most ", most_of_one_,
                             " and ", most_in_all_, " may: try again later");
  }
  ++of_one_[holder];
  ++in_all_;
  return std::make_unique<Place>(*this, std::move(holder));
}

absl::Status StreamLimit::CheckRoom() {
  absl::MutexLock lock(&mutex_);
  if (in_all_ < most_in_all_) return absl::OkStatus();
  return ResourceExhausted("as many streams as may be are open here, ",
                           most_in_all_, ": try again later");
}

void StreamLimit::Leave(const std::string& holder) {
  absl::MutexLock lock(&mutex_);
  --in_all_;
  const auto found = of_one_.find(holder);
  if (--found->second == 0) of_one_.erase(found);
}

}  // namespace paceline
