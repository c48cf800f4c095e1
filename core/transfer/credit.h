// How many frames of one (boundary, kind) may be on their way: the receiver's
// side.  ResendWindow is the sender's.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "core/transfer/frame_codec.h"

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
  // A credit is also due when this many bytes have come that the sender still
  // keeps: so it drops large frames soon, and small ones in groups.
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

  // Returns the credit that is due, if any.  The ledger counts it as told.
  std::optional<Credit> TakeDue();
  // Returns the present credit, due or not: the answer to a HELLO.  The ledger
  // counts it as told.
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

// The frames of one (boundary, kind) that the sender keeps until the receiver
// has them.

// Thread-compatible.
class ResendWindow {
 public:
  // The receiver has granted `frames` more than were reserved.
  bool HasCredit(int frames) const { return end() + frames <= granted_; }
  size_t kept() const { return kept_.size(); }

  // Returns the sequence of a frame to be encoded and then filled in.  Frames
  // leave in the order of their sequence, in whatever order they are filled in.
  int64_t Reserve();
  void Fill(int64_t sequence, EncodedFrame frame);

  // The stream broke: the window sends nothing until a credit comes in a new
  // stream.
  void OnBroken();

  // Forgets what has been received; after OnBroken() starts over from there.
  // Errors (state unchanged):
  //   InvalidArgument  it claims frames that were never sent, or, after its
  //                    first credit in a new stream, not sent again there
  //   Aborted          it wants frames again that it had acknowledged
  absl::Status OnCredit(const Credit& credit);

  // The next frame to send, or null: none is there or granted.  Valid until
  // the next call of a method.
  const EncodedFrame* TakeNext();

  // TakeNext() would give one.
  bool ready() const {
    return connected_ && next_ < granted_ && next_ < end() &&
           kept_[next_ - first_].has_value();
  }

  // All frames were sent (not: received) since the last break.
  bool all_sent() const { return connected_ && next_ == end(); }

 private:
  int64_t end() const { return first_ + static_cast<int64_t>(kept_.size()); }

  bool connected_ = false;
  int64_t granted_ = 0;
  int64_t first_ = 0;  // sequence of kept_.front()
  int64_t next_ = 0;   // to be sent
  int64_t sent_ = 0;   // sequences below this were sent at least once
  std::deque<std::optional<EncodedFrame>> kept_;  // nullopt: reserved
};

}  // namespace paceline
