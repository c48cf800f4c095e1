#include "core/obs/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/check.h"
#include "core/base/thread.h"
#include "core/obs/request_reader.h"
#include "httplib.h"

namespace paceline {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kThreads = 3;
constexpr size_t kMaxQueuedRequests = 64;
constexpr int kKernelBacklog = 512;
constexpr size_t kMaxRequestBytes = 64 << 10;
// Time for the rest of a body that is not wanted.  Short: a thread waits.
constexpr auto kLingerTime = std::chrono::milliseconds(50);
// An answer fits into it, so that no thread waits for a client to read.
constexpr int kSendBufferBytes = 512 << 10;

// Answers requests on a few threads.  Thread-safe.
class AnswerThreads {
 public:
  using Answer = std::function<void(ReadyConnection)>;

  explicit AnswerThreads(Answer answer) : answer_(std::move(answer)) {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back(absl::StrCat("http-", i), [this] { Work(); });
    }
  }
  ~AnswerThreads() { End(); }

  // Waits while too many are queued: whoever reads requests reads no more then.
  void Add(ReadyConnection connection) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &AnswerThreads::HasRoom));
    queue_.push_back(std::move(connection));
  }

  // Finishes what is queued.  Safe to repeat.
  void End() {
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    threads_.clear();
  }

 private:
  bool HasRoom() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ended_ || queue_.size() < kMaxQueuedRequests;
  }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ended_ || !queue_.empty();
  }

  void Work() {
    while (true) {
      ReadyConnection connection;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &AnswerThreads::HasWork));
        if (queue_.empty()) return;
        connection = std::move(queue_.front());
        queue_.pop_front();
      }
      answer_(std::move(connection));
    }
  }

  const Answer answer_;
  absl::Mutex mutex_;
  std::deque<ReadyConnection> queue_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

// httplib's accepting thread only takes connections in: that is done at once.
class OnAcceptThread final : public httplib::TaskQueue {
 public:
  // void in httplib 0.11; later whether the queue took the task.
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue(nullptr));

  Taken enqueue(std::function<void()> task) override {
    task();
    return Taken(true);
  }
  void shutdown() override {}
};

// The connections that are being answered, so that Stop() can cut them.
// Thread-safe.
class Connections {
 public:
  // False when all are to be cut: then `fd` is not one of them.
  bool Add(int fd) {
    absl::MutexLock lock(&mutex_);
    if (ended_) return false;
    open_.insert(fd);
    return true;
  }

  // Before closing `fd`, whose number may be somebody else's right after.
  void Remove(int fd) {
    absl::MutexLock lock(&mutex_);
    open_.erase(fd);
  }

  void ShutDownAll() {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    for (const int fd : open_) shutdown(fd, SHUT_RDWR);
  }

 private:
  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<int> open_ ABSL_GUARDED_BY(mutex_);
};

// A connection with one deadline and one size limit for the whole request:
// httplib's own limits start again with every byte and every header line.
// Begins with what was received of it.  Lives on one thread.
class LimitedStream final : public httplib::Stream {
 public:
  explicit LimitedStream(ReadyConnection connection)
      : fd_(connection.fd),
        deadline_(connection.deadline),
        buffer_(std::move(connection.received)),
        received_(buffer_.size()) {}

  bool is_readable() const override {
    return next_ < buffer_.size() || Wait(POLLIN, deadline_);
  }
  bool is_writable() const override { return Wait(POLLOUT, deadline_); }

  ssize_t read(char* to, size_t size) override {
    if (next_ == buffer_.size() && !Fill()) return -1;
    const size_t count = std::min(size, buffer_.size() - next_);
    std::memcpy(to, buffer_.data() + next_, count);
    next_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, size_t size) override {
    while (true) {
      const ssize_t sent = send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) return sent;
      if (errno == EINTR) continue;
      if (errno != EAGAIN || !Wait(POLLOUT, deadline_)) return -1;
    }
  }

  // No handler asks who is there.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  int socket() const override { return fd_; }

  // Says that the answer is complete and takes what the client still sends:
  // close() with unread bytes would reset the connection, and the client might
  // lose the answer.
  void Linger() {
    shutdown(fd_, SHUT_WR);
    const auto until = std::min(deadline_, SteadyClock::now() + kLingerTime);
    char dropped[4096];
    while (received_ < kMaxRequestBytes && Wait(POLLIN, until)) {
      const ssize_t got = recv(fd_, dropped, sizeof(dropped), MSG_DONTWAIT);
      if (got <= 0) return;
      received_ += static_cast<size_t>(got);
    }
  }

 private:
  bool Wait(short events, SteadyClock::time_point until) const {
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          until - SteadyClock::now());
      if (left.count() <= 0) return false;
      pollfd entry{.fd = fd_, .events = events, .revents = 0};
      const int ready = poll(&entry, 1, static_cast<int>(left.count()));
      if (ready > 0) return true;
      if (ready == 0 || errno != EINTR) return false;
    }
  }

  bool Fill() {
    char more[4096];
    while (received_ < kMaxRequestBytes && Wait(POLLIN, deadline_)) {
      const size_t room = std::min(sizeof(more), kMaxRequestBytes - received_);
      const ssize_t got = recv(fd_, more, room, MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return false;
      received_ += static_cast<size_t>(got);
      buffer_.assign(more, static_cast<size_t>(got));
      next_ = 0;
      return true;
    }
    return false;
  }

  const int fd_;
  const SteadyClock::time_point deadline_;
  std::string buffer_;
  size_t next_ = 0;  // unread bytes: buffer_ from here on
  size_t received_;
};

// httplib's parser and accept loop over our own connections.
class LimitedServer final : public httplib::Server {
 public:
  // After a bind.  httplib's own 5 are few: who does not fit tries again after
  // a second.
  void RaiseBacklog() { ::listen(svr_sock_, kKernelBacklog); }

  // Hangs up on everybody, and waits for running handlers.  After stop().
  void EndConnections() {
    connections_.ShutDownAll();
    reader_.Stop();
    answers_.End();
  }

 private:
  bool process_and_close_socket(int fd) override {
    fcntl(fd, F_SETFD, FD_CLOEXEC);  // a worker may re-execute itself
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes,
               sizeof(kSendBufferBytes));
    reader_.Add(fd);
    return true;
  }

  void Answer(ReadyConnection connection) {
    const int fd = connection.fd;
    if (connections_.Add(fd)) {
      Serve(std::move(connection));
      connections_.Remove(fd);
    }
    close(fd);
  }

  void Serve(ReadyConnection connection) {
    LimitedStream stream(std::move(connection));
    bool all_read = false;  // nothing of the request is still on its way
    Process(stream, [&](httplib::Request& r) {
      all_read = r.method == "GET" || r.method == "HEAD";
      // A short request may ask for the same bytes a thousand times.
      r.ranges.clear();
    });
    if (!all_read) stream.Linger();
  }

  // httplib 0.11 asks the stream for the addresses, later versions want them
  // here.  No handler reads them.
  template <typename SetUp>
  void Process(LimitedStream& stream, const SetUp& set_up) {
    constexpr bool kClose = true;
    bool closed = false;
    if constexpr (requires {
                    this->process_request(stream, kClose, closed, set_up);
                  }) {
      this->process_request(stream, kClose, closed, set_up);
    } else {
      this->process_request(stream, "", 0, "", 0, kClose, closed, set_up);
    }
  }

  Connections connections_;
  AnswerThreads answers_{
      [this](ReadyConnection one) { Answer(std::move(one)); }};
  RequestReader reader_{
      {.request_bytes = kMaxRequestBytes},
      [this](ReadyConnection one) { answers_.Add(std::move(one)); }};
};

void SetSocketOptions(int fd) {
  // Not httplib's default, SO_REUSEPORT: a port in use must be an error.
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

absl::Status CannotListen(const std::string& host, int port, int error) {
  const std::string where =
      absl::StrCat("port ", port, " on ", host.empty() ? "any address" : host);
  const absl::string_view change = "choose another with --http HOST:PORT";
  if (error == EADDRINUSE) {
    return absl::UnavailableError(
        absl::StrCat(where, " is in use: stop the other process or ", change));
  }
  return absl::UnavailableError(absl::StrCat(
      "cannot serve HTTP at ", where, ": ",
      error != 0 ? std::strerror(error) : "no such address", ": ", change));
}

}  // namespace

struct HttpServer::Impl {
  // Constant after Start().
  std::map<std::string, Handler> handlers;
  bool started = false;

  LimitedServer server;

  absl::Mutex stop_mutex;
  Thread thread ABSL_GUARDED_BY(stop_mutex);

  // The returned port, or -1 with errno.
  int Bind(const std::string& host, int port) {
    errno = 0;
    if (port == 0) return server.bind_to_any_port(host);
    return server.bind_to_port(host, port) ? port : -1;
  }

  void Answer(const httplib::Request& request,
              httplib::Response& response) const {
    if (request.method != "GET" && request.method != "HEAD") {
      response.status = 405;
      response.set_header("Allow", "GET, HEAD");
      response.set_content("only GET is served here\n", "text/plain");
      return;
    }
    const auto handler = handlers.find(request.path);
    if (handler == handlers.end()) {
      response.status = 404;
      response.set_content("no such page\n", "text/plain");
      return;
    }
    const HttpAnswer answer = handler->second();
    response.status = answer.status;
    response.set_content(answer.body, answer.content_type);
  }
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Get(const std::string& path, Handler handler) {
  PACELINE_CHECK(!impl_->started, absl::StrCat("Get after Start: ", path));
  impl_->handlers[path] = std::move(handler);
}

absl::StatusOr<int> HttpServer::Start(const std::string& host, int port) {
  PACELINE_CHECK(!impl_->started, "HttpServer started twice");
  httplib::Server& server = impl_->server;
  server.set_socket_options(SetSocketOptions);
  server.set_payload_max_length(kMaxRequestBytes);
  // Before httplib's own routing, which matches regular expressions against
  // whatever a client sends.
  server.set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        impl_->Answer(request, response);
        return httplib::Server::HandlerResponse::Handled;
      });

  int bound = -1;
  if (host.empty()) {
    bound = impl_->Bind("::", port);
    if (bound < 0 && errno != EADDRINUSE) bound = impl_->Bind("0.0.0.0", port);
  } else {
    // One address, not whichever of ::1 and 127.0.0.1 happens to be free.
    bound = impl_->Bind(host == "localhost" ? "127.0.0.1" : host, port);
  }
  if (bound <= 0) return CannotListen(host, port, errno);
  impl_->server.RaiseBacklog();

  // httplib's stop() does nothing before its loop runs; the loop makes its
  // task queue first.
  absl::Notification running;
  server.new_task_queue = [&running] {
    auto* queue = new OnAcceptThread;  // httplib deletes it
    running.Notify();
    return queue;
  };
  impl_->started = true;
  absl::MutexLock lock(&impl_->stop_mutex);
  impl_->thread =
      Thread("http-accept", [&server] { server.listen_after_bind(); });
  running.WaitForNotification();
  return bound;
}

void HttpServer::Stop() {
  absl::MutexLock lock(&impl_->stop_mutex);
  impl_->server.stop();
  impl_->thread.Join();
  impl_->server.EndConnections();
}

}  // namespace paceline
