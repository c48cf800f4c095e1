// A peer that begins a message and never ends it, or makes no room for the
// answer: HTTP/2 written by hand, since gRPC has no way to do that.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace paceline {

// One connection with one call.  Thread-compatible; never blocks.
class Stranger {
 public:
  // Connects from `host`, calls `path`, and announces a message of so many
  // bytes; 0: sends an empty one, and that is all.
  Stranger(const std::string& host, int port, const std::string& path,
           uint32_t message_bytes)
      : left_(message_bytes > 0 ? message_bytes - 1 : 0),
        fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in from = Address(host, 0);
    const sockaddr_in to = Address("127.0.0.1", port);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof(from)),
              0);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
              0);
    EXPECT_EQ(fcntl(fd_, F_SETFL, O_NONBLOCK), 0);
    out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    AddFrame(kSettings, 0, 0, "");
    AddFrame(kHeaders, kEndHeaders, 1, HeadersOf(path));
    const uint32_t length = htonl(message_bytes);
    AddFrame(kData, message_bytes > 0 ? 0 : kEndStream, 1,
             std::string(1, '\0') +
                 std::string(reinterpret_cast<const char*>(&length), 4));
    window_ -= 5;
    stream_window_ -= 5;
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // The other side ended the call or the connection.
  bool ended() const { return ended_; }

  // Wait for this; nothing when it has ended.
  pollfd Wanted() const {
    const bool writes = !out_.empty() || Room() > 0;
    return {ended_ ? -1 : fd_,
            static_cast<int16_t>(writes ? POLLIN | POLLOUT : POLLIN), 0};
  }

  // Reads and writes what goes without waiting.
  void Step() {
    Read();
    while (!ended_) {
      if (out_.empty() && Room() > 0) AddData(Room());
      if (out_.empty()) return;
      const ssize_t sent = send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
      if (sent < 0) {
        ended_ = errno != EAGAIN;
        return;
      }
      out_.erase(0, sent);
    }
  }

 private:
  enum Type : uint8_t {
    kData = 0,
    kHeaders = 1,
    kReset = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
    kWindow = 8,
  };
  static constexpr uint8_t kEndHeaders = 4;
  static constexpr uint8_t kEndStream = 1;
  static constexpr uint8_t kAck = 1;
  static constexpr int64_t kFrameBytes = 16'384;

  static sockaddr_in Address(const std::string& host, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    return address;
  }

  // Literals, neither indexed nor compressed (RFC 7541, 6.2.2).
  static std::string HeadersOf(const std::string& path) {
    const std::pair<std::string, std::string> headers[] = {
        {":method", "POST"},
        {":scheme", "http"},
        {":path", path},
        {":authority", "stranger"},
        {"content-type", "application/grpc"},
        {"te", "trailers"}};
    std::string block;
    for (const auto& [name, value] : headers) {
      block += '\0';
      block += static_cast<char>(name.size()) + name;
      block += static_cast<char>(value.size()) + value;
    }
    return block;
  }

  void AddFrame(uint8_t type, uint8_t flags, uint8_t stream,
                const std::string& body) {
    const auto size = static_cast<uint32_t>(body.size());
    for (const uint32_t byte : {size >> 16, size >> 8, size}) {
      out_ += static_cast<char>(byte);
    }
    out_ += static_cast<char>(type);
    out_ += static_cast<char>(flags);
    out_ += std::string(3, '\0') + static_cast<char>(stream) + body;
  }

  int64_t Room() const {
    return std::min({left_, window_, stream_window_, kFrameBytes});
  }

  void AddData(int64_t bytes) {
    AddFrame(kData, 0, 1, std::string(bytes, 'x'));
    left_ -= bytes;
    window_ -= bytes;
    stream_window_ -= bytes;
  }

  void Read() {
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) {
        ended_ = true;
        return;
      }
      in_.append(buffer, got);
    }
    while (in_.size() >= 9) {
      const size_t size = Number(0, 3);
      if (in_.size() < 9 + size) return;
      Take(in_[3], in_[4], Number(5, 4), in_.substr(9, size));
      in_.erase(0, 9 + size);
    }
  }

  uint32_t Number(size_t at, size_t bytes) const {
    return NumberOf(in_.substr(at, bytes));
  }
  static uint32_t NumberOf(const std::string& bytes) {
    uint32_t number = 0;
    for (const char byte : bytes) {
      number = number << 8 | static_cast<uint8_t>(byte);
    }
    return number;
  }

  void Take(uint8_t type, uint8_t flags, uint32_t stream,
            const std::string& body) {
    if (type == kReset || type == kGoAway) ended_ = true;
    if (type == kHeaders && (flags & kEndStream) != 0) ended_ = true;
    if (type == kPing && (flags & kAck) == 0) AddFrame(kPing, kAck, 0, body);
    if (type == kWindow) {
      (stream == 0 ? window_ : stream_window_) += NumberOf(body);
    }
    if (type != kSettings || (flags & kAck) != 0) return;
    for (size_t at = 0; at + 6 <= body.size(); at += 6) {
      if (NumberOf(body.substr(at, 2)) != 4) continue;  // the initial window
      const int64_t initial = NumberOf(body.substr(at + 2, 4));
      stream_window_ += initial - initial_window_;
      initial_window_ = initial;
    }
    AddFrame(kSettings, kAck, 0, "");
  }

  int64_t left_;  // of the message; its last byte never comes
  int64_t window_ = 65'535;
  int64_t stream_window_ = 65'535;
  int64_t initial_window_ = 65'535;
  std::string in_;
  std::string out_;
  bool ended_ = false;
  const int fd_;
};

}  // namespace paceline
