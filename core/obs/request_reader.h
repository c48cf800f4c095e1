// Takes connections in and waits until each has said what it wants, so that
// those who say nothing cost no thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/thread.h"

namespace paceline {

// A connection whose request has come.
struct ReadyConnection {
  int fd = -1;
  std::string received;                            // its first bytes
  std::chrono::steady_clock::time_point deadline;  // of the whole request
};

struct RequestReaderLimits {
  size_t connections = 256;         // that wait; the oldest one makes room
  size_t request_bytes = 64 << 10;  // until the end of the headers
  std::chrono::milliseconds first_byte{1000};
  std::chrono::milliseconds request{5000};  // from Add() to its deadline
};

// Thread-safe.  One thread, "http-read", polls all connections and hands a
// connection over when the end of its headers has come, when the client has
// finished sending (what came may be worth a "bad request"), or when more came
// than a request may have.  It closes those that are too slow.
class RequestReader {
 public:
  using Ready = std::function<void(ReadyConnection)>;

  // ready: called from the reader's thread, owns the descriptor; while it
  // blocks nothing is read.
  RequestReader(RequestReaderLimits limits, Ready ready);
  ~RequestReader();  // Stop()

  // Owns `fd` from now on, a connected stream socket.  Never blocks.
  void Add(int fd);

  // Closes all that wait, and what is added later.  Safe to repeat.
  void Stop();

 private:
  struct Connection {
    int fd;
    std::string received;
    std::chrono::steady_clock::time_point since;
  };
  enum class Verdict : uint8_t { kWait, kReady, kClose };

  void Run();
  // False: it ends.
  bool TakeAdded();
  void Poll();  // until something comes or is due; sets readable_
  Verdict Read(Connection& connection) const;
  Verdict Judge(const Connection& connection) const;
  std::chrono::steady_clock::time_point DueAt(const Connection& one) const;

  // Constant after construction.
  const RequestReaderLimits limits_;
  const Ready ready_;
  int wake_ = -1;  // an eventfd

  // The thread's; oldest first.
  std::deque<Connection> waiting_;
  std::vector<bool> readable_;  // of waiting_, by the last Poll()

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<int> added_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace paceline
