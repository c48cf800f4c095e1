// Waiting that Ctrl-C ends.
#pragma once

#include <csignal>

#include "absl/time/time.h"

namespace paceline {

// Thread-compatible.
class Pauser {
 public:
  virtual ~Pauser() = default;
  // Waits for `duration`.  True, at once, when the user wants to leave; then
  // every later call says so too.
  virtual bool Sleep(absl::Duration duration) = 0;
};

// Catches SIGINT, SIGTERM and (unless ignored, as under nohup) SIGHUP while it
// lives.  Only the first of each: a second Ctrl-C ends the process as if nobody
// had caught it.  At most one at a time.  Thread-compatible.
class SignalPauser final : public Pauser {
 public:
  SignalPauser();
  ~SignalPauser() override;
  SignalPauser(const SignalPauser&) = delete;

  bool Sleep(absl::Duration duration) override;

 private:
  int pipe_[2];
  struct sigaction old_interrupt_;
  struct sigaction old_terminate_;
  struct sigaction old_hangup_;
};

}  // namespace paceline
