#include "core/obs/http_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/check.h"
#include "core/base/thread.h"
#include "httplib.h"

namespace paceline {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kThreads = 3;
constexpr size_t kMaxQueuedConnections = 16;
constexpr int kKernelBacklog = 64;
constexpr size_t kMaxRequestBytes = 64 << 10;
constexpr auto kRequestTime = std::chrono::seconds(5);
// Browsers open connections in advance and say nothing: those do not get a
// thread, or give it back early.
constexpr auto kFirstByteTime = std::chrono::seconds(1);
constexpr int kDeferAcceptSeconds = 1;
constexpr auto kLingerTime = std::chrono::milliseconds(200);

// Runs what httplib accepts on a few threads.  When the queue is full, the
// accepting thread serves the connection itself: further clients then wait in
// the kernel's queue, which is bounded too.
class BoundedTaskQueue final : public httplib::TaskQueue {
 public:
  BoundedTaskQueue() {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back(absl::StrCat("http-", i), [this] { Work(); });
    }
  }

  void enqueue(std::function<void()> task) override {
    {
      absl::MutexLock lock(&mutex_);
      if (tasks_.size() < kMaxQueuedConnections) {
        tasks_.push_back(std::move(task));
        return;
      }
    }
    task();
  }

  // Finishes what is queued.
  void shutdown() override {
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    threads_.clear();
  }

 private:
  bool Ready() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ended_ || !tasks_.empty();
  }

  void Work() {
    while (true) {
      std::function<void()> task;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &BoundedTaskQueue::Ready));
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

// The open connections, so that Stop() can cut them.  Thread-safe.
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
// Lives on one thread.
class LimitedStream final : public httplib::Stream {
 public:
  explicit LimitedStream(int fd) : fd_(fd) {}

  bool is_readable() const override {
    return next_ < end_ || Wait(POLLIN, deadline_);
  }
  bool is_writable() const override { return Wait(POLLOUT, deadline_); }

  ssize_t read(char* to, size_t size) override {
    if (next_ == end_ && !Fill()) return -1;
    const size_t count = std::min(size, end_ - next_);
    std::memcpy(to, buffer_ + next_, count);
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
    while (received_ < kMaxRequestBytes && Wait(POLLIN, until)) {
      const ssize_t got = recv(fd_, buffer_, sizeof(buffer_), MSG_DONTWAIT);
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
    const auto until = received_ == 0
                           ? std::min(deadline_, start_ + kFirstByteTime)
                           : deadline_;
    while (received_ < kMaxRequestBytes && Wait(POLLIN, until)) {
      const size_t room =
          std::min(sizeof(buffer_), kMaxRequestBytes - received_);
      const ssize_t got = recv(fd_, buffer_, room, MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return false;
      received_ += static_cast<size_t>(got);
      next_ = 0;
      end_ = static_cast<size_t>(got);
      return true;
    }
    return false;
  }

  const int fd_;
  const SteadyClock::time_point start_ = SteadyClock::now();
  const SteadyClock::time_point deadline_ = start_ + kRequestTime;
  size_t received_ = 0;
  size_t next_ = 0;  // unread bytes: buffer_[next_, end_)
  size_t end_ = 0;
  char buffer_[4096];
};

// httplib's parser and accept loop over our own connections.
class LimitedServer final : public httplib::Server {
 public:
  explicit LimitedServer(Connections& connections)
      : connections_(connections) {}

  // After a bind.  httplib's own 5 are few: who does not fit tries again after
  // a second.
  void RaiseBacklog() { ::listen(svr_sock_, kKernelBacklog); }

 private:
  bool process_and_close_socket(int fd) override {
    fcntl(fd, F_SETFD, FD_CLOEXEC);  // a worker may re-execute itself
    bool ok = false;
    if (connections_.Add(fd)) {
      ok = Serve(fd);
      connections_.Remove(fd);
    }
    close(fd);
    return ok;
  }

  bool Serve(int fd) {
    LimitedStream stream(fd);
    bool all_read = false;  // nothing of the request is still on its way
    bool closed = false;
    const bool ok = process_request(
        stream, /*close_connection=*/true, closed, [&](httplib::Request& r) {
          all_read = r.method == "GET" || r.method == "HEAD";
          // A short request may ask for the same bytes a thousand times.
          r.ranges.clear();
        });
    if (!all_read) stream.Linger();
    return ok;
  }

  Connections& connections_;
};

void SetSocketOptions(int fd) {
  // Not httplib's default, SO_REUSEPORT: a port in use must be an error.
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  // The kernel keeps a connection to itself until it has something to say.
  setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &kDeferAcceptSeconds,
             sizeof(kDeferAcceptSeconds));
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

  Connections connections;
  LimitedServer server{connections};

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
    auto* queue = new BoundedTaskQueue;  // httplib deletes it
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
  impl_->connections.ShutDownAll();
  impl_->server.stop();
  impl_->thread.Join();
}

}  // namespace paceline
