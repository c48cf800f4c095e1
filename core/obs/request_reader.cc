#include "core/obs/request_reader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "core/base/check.h"

namespace paceline {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kEndOfHeaders[] = "\r\n\r\n";

}  // namespace

RequestReader::RequestReader(RequestReaderLimits limits, Ready ready)
    : limits_(limits),
      ready_(std::move(ready)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PACELINE_CHECK(wake_ >= 0, "no eventfd");
  thread_ = Thread("http-read", [this] { Run(); });
}

RequestReader::~RequestReader() {
  Stop();
  close(wake_);
}

void RequestReader::Add(int fd) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      close(fd);
      return;
    }
    added_.push_back(fd);
    // While `ready_` blocks nobody takes them.
    if (added_.size() > limits_.connections) {
      close(added_.front());
      added_.pop_front();
    }
  }
  eventfd_write(wake_, 1);
}

void RequestReader::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.Join();
}

void RequestReader::Run() {
  while (TakeAdded()) {
    Poll();
    std::deque<Connection> still;
    for (size_t i = 0; i < waiting_.size(); ++i) {
      Connection& connection = waiting_[i];
      switch (readable_[i] ? Read(connection) : Judge(connection)) {
        case Verdict::kWait:
          still.push_back(std::move(connection));
          break;
        case Verdict::kReady:
          ready_({connection.fd, std::move(connection.received),
                  connection.since + limits_.request});
          break;
        case Verdict::kClose:
          close(connection.fd);
          break;
      }
    }
    waiting_ = std::move(still);
  }
  for (const Connection& connection : waiting_) close(connection.fd);
}

bool RequestReader::TakeAdded() {
  const auto now = SteadyClock::now();
  absl::MutexLock lock(&mutex_);
  for (const int fd : added_) waiting_.push_back({fd, "", now});
  added_.clear();
  while (waiting_.size() > limits_.connections) {
    close(waiting_.front().fd);
    waiting_.pop_front();
  }
  return !stopping_;
}

void RequestReader::Poll() {
  std::vector<pollfd> entries = {{.fd = wake_, .events = POLLIN, .revents = 0}};
  auto due = SteadyClock::time_point::max();
  for (const Connection& connection : waiting_) {
    entries.push_back({.fd = connection.fd, .events = POLLIN, .revents = 0});
    due = std::min(due, DueAt(connection));
  }
  int timeout = -1;
  if (!waiting_.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(due - SteadyClock::now());
    timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  // An interrupted poll leaves no events: everybody is looked at again.
  poll(entries.data(), entries.size(), timeout);
  eventfd_t ignored;
  if (entries[0].revents != 0) eventfd_read(wake_, &ignored);
  readable_.clear();
  for (size_t i = 1; i < entries.size(); ++i) {
    readable_.push_back(entries[i].revents != 0);
  }
}

SteadyClock::time_point RequestReader::DueAt(const Connection& one) const {
  return one.since +
         (one.received.empty() ? limits_.first_byte : limits_.request);
}

RequestReader::Verdict RequestReader::Judge(
    const Connection& connection) const {
  return SteadyClock::now() >= DueAt(connection) ? Verdict::kClose
                                                 : Verdict::kWait;
}

RequestReader::Verdict RequestReader::Read(Connection& connection) const {
  char buffer[4096];
  const ssize_t got = recv(connection.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return Judge(connection);
  if (got < 0) return Verdict::kClose;
  std::string& received = connection.received;
  if (got == 0) return received.empty() ? Verdict::kClose : Verdict::kReady;
  // The end may have begun in what came before.
  const size_t from = received.size() < 3 ? 0 : received.size() - 3;
  received.append(buffer, static_cast<size_t>(got));
  if (received.find(kEndOfHeaders, from) != std::string::npos ||
      received.size() >= limits_.request_bytes) {
    return Verdict::kReady;
  }
  return Judge(connection);
}

}  // namespace paceline
