#include "core/obs/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/base/errors.h"
#include "core/os/host_port.h"
#include "core/os/thread.h"
#include "httplib.h"
#include "openssl/err.h"
#include "openssl/ssl.h"

namespace paceline {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kThreads = 32;      // one a connection
constexpr int kMostStreams = 24;  // of events, besides
constexpr int kKernelBacklog = 512;
constexpr size_t kMaxRequestBytes = 64 << 10;
constexpr auto kFirstByteTime = std::chrono::seconds(1);
constexpr auto kRequestTime = std::chrono::seconds(5);
// Time for the rest of a body that is not wanted.  Short: a thread waits.
constexpr auto kLingerTime = std::chrono::milliseconds(50);
// An answer fits into it, so that no thread waits for a client to read.
constexpr int kSendBufferBytes = 512 << 10;

// The connections that have a thread or wait for one.  Thread-safe.
class Connections {
 public:
  // One more waits for a thread.
  void OnAccepted() {
    absl::MutexLock lock(&mutex_);
    ++waiting_;
    MakeRoom();
  }

  // One that waited has a thread now.  False when all are to be cut: then `fd`
  // is not one of them.
  bool Add(int fd) {
    absl::MutexLock lock(&mutex_);
    --waiting_;
    if (ended_) return false;
    open_.push_back({.fd = fd});
    MakeRoom();
    return true;
  }

  // The request of `fd` has come.
  void OnRead(int fd) {
    absl::MutexLock lock(&mutex_);
    Find(fd)->reading = false;
  }

  // Call it before closing `fd`: another connection may get the number at once.
  void Remove(int fd) {
    absl::MutexLock lock(&mutex_);
    open_.erase(Find(fd));
  }

  void ShutDownAll() {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    for (const Open& one : open_) shutdown(one.fd, SHUT_RDWR);
  }

 private:
  struct Open {
    int fd = -1;
    bool reading = true;  // and not hung up on
  };

  // Hangs up on one client for each that waits and will get no thread soon: on
  // the oldest that have not sent their request yet.  A request that has come
  // is still answered.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto reading = std::ranges::count(open_, true, &Open::reading);
    for (Open& one : open_) {
      if (waiting_ + reading <= kThreads) return;
      if (!one.reading) continue;
      one.reading = false;
      --reading;
      shutdown(one.fd, SHUT_RD);
    }
  }

  std::list<Open>::iterator Find(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::ranges::find(open_, fd, &Open::fd);
  }

  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Open> open_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

// httplib's threads; each connection is a task.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  // void in httplib 0.11; later whether the queue took the task.
  using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue(nullptr));

  ConnectionThreads(Connections& connections, int threads)
      : connections_(connections), threads_(threads) {}

  Taken enqueue(std::function<void()> task) override {
    connections_.OnAccepted();
    return threads_.enqueue(std::move(task));
  }

  void shutdown() override { threads_.shutdown(); }

 private:
  Connections& connections_;
  httplib::ThreadPool threads_;
};

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslPointer = std::unique_ptr<SSL, FreeSsl>;

// A connection with one deadline and one size limit for the whole request:
// httplib's own limits start again with every byte and every header line.
// Lives on one thread.
class LimitedStream final : public httplib::Stream {
 public:
  // context: of TLS, or null.
  LimitedStream(int fd, SSL_CTX* context)
      : fd_(fd),
        tls_(context != nullptr),
        ssl_(tls_ ? SSL_new(context) : nullptr) {}

  ~LimitedStream() override {
    if (ssl_ != nullptr) SSL_shutdown(ssl_.get());
  }

  // The handshake of TLS; true without TLS.  False: the client shows no
  // certificate of the mesh in time, or there is no memory.
  bool ShakeHands() {
    if (!tls_) return true;
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
    if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd_) != 1) return false;
    for (;;) {
      ERR_clear_error();
      const int result = SSL_accept(ssl_.get());
      if (result == 1) return true;
      const int error = SSL_get_error(ssl_.get(), result);
      if (error != SSL_ERROR_WANT_READ || !Wait(POLLIN, ReadDeadline())) {
        return false;
      }
    }
  }

  bool is_readable() const override {
    return next_ < buffer_.size() || HasDecrypted() ||
           Wait(POLLIN, ReadDeadline());
  }
  bool is_writable() const override { return Wait(POLLOUT, WriteDeadline()); }

  // Each write has its own time from now on.
  void BeginEvents() { events_ = true; }

  ssize_t read(char* to, size_t size) override {
    if (next_ == buffer_.size() && !Fill()) return -1;
    const size_t count = std::min(size, buffer_.size() - next_);
    std::memcpy(to, buffer_.data() + next_, count);
    next_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, size_t size) override {
    while (true) {
      const ssize_t sent = Send(from, size);
      if (sent >= 0) return sent;
      if (errno == EINTR) continue;
      if (errno != EAGAIN || !Wait(POLLOUT, WriteDeadline())) return -1;
    }
  }

  // No handler reads the addresses.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  int socket() const override { return fd_; }

  // Ends the answer and reads the rest of the request: close() with unread
  // bytes would reset the connection, and the client might lose the answer.
  void Linger() {
    shutdown(fd_, SHUT_WR);
    const auto until = std::min(deadline_, SteadyClock::now() + kLingerTime);
    char dropped[4096];
    while (received_ < kMaxRequestBytes && Wait(POLLIN, until)) {
      const ssize_t got = Receive(dropped, sizeof(dropped));
      if (got <= 0) return;
      received_ += static_cast<size_t>(got);
    }
  }

 private:
  SteadyClock::time_point ReadDeadline() const {
    return received_ == 0 ? first_byte_deadline_ : deadline_;
  }

  SteadyClock::time_point WriteDeadline() const {
    return events_ ? SteadyClock::now() + kRequestTime : deadline_;
  }

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

  // As send() and recv() that do not wait.
  ssize_t Send(const char* from, size_t size) {
    if (ssl_ == nullptr) {
      return send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    return Told(SSL_write(ssl_.get(), from, static_cast<int>(size)));
  }
  ssize_t Receive(char* to, size_t size) {
    if (ssl_ == nullptr) return recv(fd_, to, size, MSG_DONTWAIT);
    return Told(SSL_read(ssl_.get(), to, static_cast<int>(size)));
  }
  // Turns OpenSSL's answer into that of a system call.
  ssize_t Told(int result) {
    if (result > 0) return result;
    const int error = SSL_get_error(ssl_.get(), result);
    ERR_clear_error();
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    const bool waits =
        error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
    errno = waits ? EAGAIN : EIO;
    return -1;
  }
  // Bytes that have left the socket, and that poll() does not see.
  bool HasDecrypted() const {
    return ssl_ != nullptr && SSL_pending(ssl_.get()) > 0;
  }

  bool Fill() {
    char more[4096];
    while (received_ < kMaxRequestBytes &&
           (HasDecrypted() || Wait(POLLIN, ReadDeadline()))) {
      const size_t room = std::min(sizeof(more), kMaxRequestBytes - received_);
      const ssize_t got = Receive(more, room);
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
  const bool tls_;
  const SslPointer ssl_;  // null: plain HTTP, or no memory for it
  const SteadyClock::time_point begin_ = SteadyClock::now();
  const SteadyClock::time_point first_byte_deadline_ = begin_ + kFirstByteTime;
  const SteadyClock::time_point deadline_ = begin_ + kRequestTime;
  std::string buffer_;
  bool events_ = false;
  size_t next_ = 0;  // unread bytes: buffer_ from here on
  size_t received_ = 0;
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
    return Unavailable(where, " is in use: stop the other process or ", change);
  }
  return Unavailable("cannot serve HTTP at ", where, ": ",
                     error != 0 ? std::strerror(error) : "no such address",
                     ": ", change);
}

void Refuse(httplib::Response& response, int status, const char* why) {
  response.status = status;
  response.set_content(why, "text/plain");
}

}  // namespace

// httplib's parser and accept loop over our own connections.
struct HttpServer::Impl final : public httplib::Server {
  // Before Start().
  absl::Status UseTls(const HttpTls& given) {
    context.reset(SSL_CTX_new(TLS_server_method()));
    tls = given;
    SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
    SSL_CTX_set_verify(context.get(),
                       SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       nullptr);
    // Each connection shows its certificate: none is resumed.
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context.get(), 0);
    SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // Read for each connection: they are renewed while the daemon runs.
    SSL_CTX_set_cert_cb(
        context.get(),
        [](SSL* ssl, void* own) {
          const HttpTls& files = *static_cast<HttpTls*>(own);
          return static_cast<int>(
              SSL_use_certificate_chain_file(ssl, files.certificate.c_str()) ==
                  1 &&
              SSL_use_PrivateKey_file(ssl, files.key.c_str(),
                                      SSL_FILETYPE_PEM) == 1);
        },
        &tls);
    if (SSL_CTX_load_verify_locations(context.get(), tls.authority.c_str(),
                                      nullptr) == 1) {
      return absl::OkStatus();
    }
    return PermissionDenied("cannot read the authority's certificate ",
                            tls.authority, " for HTTP with TLS");
  }

  // Call it after a bind.  httplib's own backlog of 5 is small: a client that
  // does not fit tries again after a second.
  void RaiseBacklog() { ::listen(svr_sock_, kKernelBacklog); }

  bool process_and_close_socket(int fd) override {
    fcntl(fd, F_SETFD, FD_CLOEXEC);  // a worker may re-execute itself
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes,
               sizeof(kSendBufferBytes));
    if (connections.Add(fd)) {
      Serve(fd);
      connections.Remove(fd);
    }
    close(fd);
    return true;
  }

  void Serve(int fd) {
    LimitedStream stream(fd, context.get());
    if (!stream.ShakeHands()) return;
    bool all_read = false;  // nothing of the request is still on its way
    Process(stream, [&](httplib::Request& r) {
      connections.OnRead(fd);
      if (events.contains(r.path)) stream.BeginEvents();
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

  // The returned port, or -1 with errno.
  int Bind(const std::string& host, int port) {
    errno = 0;
    if (port == 0) return bind_to_any_port(host);
    return bind_to_port(host, port) ? port : -1;
  }

  // httplib calls it again and again until it returns false.
  static bool SendEvent(EventSource& source, httplib::DataSink& sink) {
    const std::string* const event = source.Next();
    if (event == nullptr) return false;
    const auto send = [&sink](absl::string_view text) {
      return sink.write(text.data(), text.size());
    };
    // A comment shows whether the client is still there.
    if (event->empty()) return send(":\n\n");
    return send("data: ") && send(*event) && send("\n\n");
  }

  // Whether the request calls the server by a name of its own.
  bool IsForUs(const httplib::Request& request) const {
    if (!hosts.has_value() || request.path == "/healthz" ||
        request.path == "/readyz") {
      return true;
    }
    const size_t named = request.get_header_value_count("Host");
    // No browser speaks HTTP/1.0.
    return named == 0 ? request.version == "HTTP/1.0"
                      : named == 1 &&
                            IsOwnHost(request.get_header_value("Host"), *hosts);
  }

  void AnswerEvents(const httplib::Request& request,
                    httplib::Response& response) {
    if (request.method == "HEAD") return;
    if (++streams > kMostStreams) {
      --streams;
      return Refuse(response, 503, "too many clients watch: try again later\n");
    }
    const std::shared_ptr<EventSource> source = events.at(request.path)();
    response.set_content_provider(
        "text/event-stream",
        [source](size_t /*offset*/, httplib::DataSink& sink) {
          return SendEvent(*source, sink);
        },
        [this](bool /*sent*/) { --streams; });
  }

  void Answer(const httplib::Request& request, httplib::Response& response) {
    // A page shows nothing of others, and is shown in none of theirs.
    response.set_header("Content-Security-Policy",
                        "default-src 'self'; frame-ancestors 'none'");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("Cache-Control", "no-store");
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      return Refuse(response, 405, "only GET is served here\n");
    }
    if (!IsForUs(request)) {
      return Refuse(
          response, 421,
          "this host has another name: call it by its address, or give its "
          "daemon the name, without the port: --http-host NAME\n");
    }
    if (events.contains(request.path)) return AnswerEvents(request, response);
    const auto handler = handlers.find(request.path);
    if (handler == handlers.end()) {
      return Refuse(response, 404, "no such page\n");
    }
    const HttpAnswer answer = handler->second();
    response.status = answer.status;
    response.set_content(answer.body, answer.content_type);
  }

  // Constant after Start().
  std::map<std::string, HttpServer::Handler> handlers;
  std::map<std::string, std::function<std::unique_ptr<EventSource>()>> events;
  std::optional<std::vector<std::string>> hosts;  // nothing: all are answered
  bool started = false;
  HttpTls tls;
  std::unique_ptr<SSL_CTX, FreeSsl> context;  // null: plain HTTP

  Connections connections;
  std::atomic<int> streams{0};  // that are open

  absl::Mutex stop_mutex;
  Thread thread ABSL_GUARDED_BY(stop_mutex);
};

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}

HttpServer::~HttpServer() { Stop(); }

void HttpServer::Get(const std::string& path, Handler handler) {
  PACELINE_CHECK(!impl_->started, "Get after Start: ", path);
  impl_->handlers[path] = std::move(handler);
}

void HttpServer::GetEvents(const std::string& path,
                           std::function<std::unique_ptr<EventSource>()> open) {
  PACELINE_CHECK(!impl_->started, "Get after Start: ", path);
  impl_->events[path] = std::move(open);
}

void HttpServer::AllowHosts(std::vector<std::string> names) {
  PACELINE_CHECK(!impl_->started, "AllowHosts after Start");
  impl_->hosts = std::move(names);
}

absl::StatusOr<int> HttpServer::Start(const std::string& host, int port,
                                      const std::optional<HttpTls>& tls) {
  PACELINE_CHECK(!impl_->started, "HttpServer started twice");
  Impl& server = *impl_;
  if (tls.has_value()) PACELINE_RETURN_IF_ERROR(server.UseTls(*tls));
  if (impl_->hosts.has_value()) {
    impl_->hosts->push_back(host);
    AskForDomain();
  }
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
  server.RaiseBacklog();

  // httplib's stop() does nothing before its loop runs; the loop makes its
  // task queue first.
  absl::Notification running;
  server.new_task_queue = [this, &running] {
    // httplib deletes it.
    auto* threads = new ConnectionThreads(
        impl_->connections,
        impl_->events.empty() ? kThreads : kThreads + kMostStreams);
    running.Notify();
    return threads;
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
  impl_->stop();
  impl_->thread.Join();  // with all threads of connections
}

}  // namespace paceline
