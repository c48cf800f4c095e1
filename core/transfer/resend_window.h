// The frames of one (boundary, kind) that the sender keeps until the receiver
// has them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "core/transfer/credit.h"
#include "core/transfer/frame_codec.h"

namespace paceline {

// Thread-compatible.
class ResendWindow {
 public:
  // The receiver has granted `frames` more than were reserved.
  bool HasCredit(int frames) const { return end() + frames <= granted_; }
  size_t kept() const { return kept_.size(); }

  // The sequence of a frame to be encoded and then filled in.  Frames leave in
  // the order of their sequence, whoever fills in first.
  int64_t Reserve();
  void Fill(int64_t sequence, EncodedFrame frame);

  // The stream broke: nothing is sent until the receiver has said, in a new
  // one, what it has.
  void OnBroken();

  // Forgets what has been received; after OnBroken() starts over from there.
  // Errors (state unchanged):
  //   InvalidArgument  it claims frames that were never sent, or, after it has
  //                    said what it has in a new stream, not sent again there
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
