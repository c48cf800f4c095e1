// How many frames of one (boundary, kind) may be on their way: the receiver's
// side.  ResendWindow is the sender's.
#pragma once

#include <cstdint>
#include <optional>

namespace paceline {

// As paceline.v1.StageCredit: both count frames of the run from its start.
struct Credit {
  int64_t granted = 0;   // frames with a sequence below this may be sent
  int64_t received = 0;  // frames with a sequence below this are here

  friend bool operator==(const Credit&, const Credit&) = default;
};

enum class SequenceVerdict : uint8_t {
  kNext,         // the one to take
  kDuplicate,    // sent again, but already here: drop
  kGap,          // one before it was lost: the stream must start over
  kAboveCredit,  // more than was granted: the sender breaks the protocol
};

// Thread-compatible.
//
// With `bound` from the schedule's dry run, twice as many frames are granted
// and a credit is due whenever half of `bound` was consumed: the sender then
// always has more than `bound` to go on with, and credits are few.
class CreditLedger {
 public:
  // A credit is also due when so many bytes are here that the sender still
  // keeps: large frames are let go soon, small ones in groups.
  static constexpr int64_t kKeptBytes = 1 << 20;

  // bound: > 0.  kept_bytes: instead of kKeptBytes; 1 tells of every frame.
  explicit CreditLedger(int bound, int64_t kept_bytes = kKeptBytes);

  // Frames that may be here unconsumed at a time.
  int window() const { return window_; }

  SequenceVerdict Check(int64_t sequence) const;
  // The next frame is here and intact.
  void OnReceived(int64_t bytes);
  // A frame that was here went to the one it is for.
  void OnConsumed();

  // What is to be told now, if anything.  Taken as told.
  std::optional<Credit> TakeDue();
  // What stands now, due or not: the answer to a HELLO.  Taken as told.
  Credit TakeNow();

 private:
  Credit Now() const { return {consumed_ + window_, received_}; }

  int64_t most_kept_bytes_;
  int window_;
  int due_after_;
  int64_t received_ = 0;
  int64_t consumed_ = 0;
  Credit told_;
  int64_t bytes_since_told_ = 0;
};

}  // namespace paceline
