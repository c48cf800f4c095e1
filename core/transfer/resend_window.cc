#include "core/transfer/resend_window.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace paceline {

int64_t ResendWindow::Reserve() {
  kept_.emplace_back();
  return end() - 1;
}

void ResendWindow::Fill(int64_t sequence, EncodedFrame frame) {
  PACELINE_CHECK(
      sequence >= first_ && sequence < end(),
      absl::StrCat("sequence=", sequence, " first=", first_, " end=", end()));
  kept_[sequence - first_] = std::move(frame);
}

void ResendWindow::OnBroken() {
  connected_ = false;
  granted_ = 0;
}

absl::Status ResendWindow::OnCredit(const Credit& credit) {
  // What went over an earlier stream may be there when a new one begins; from
  // then on the receiver takes from this one only.
  const int64_t most = connected_ ? next_ : sent_;
  if (credit.received > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("the receiver says that it has ", credit.received,
                     " frames, but ", most, " were sent"));
  }
  if (credit.received < first_) {
    return absl::AbortedError(
        absl::StrCat("the receiver wants frame ", credit.received,
                     " again, which it had acknowledged; kept from ", first_));
  }
  while (first_ < credit.received) {
    kept_.pop_front();
    ++first_;
  }
  granted_ = std::max(granted_, credit.granted);
  if (!connected_) next_ = first_;
  connected_ = true;
  return absl::OkStatus();
}

const EncodedFrame* ResendWindow::TakeNext() {
  if (!ready()) return nullptr;
  const EncodedFrame& frame = *kept_[next_ - first_];
  ++next_;
  sent_ = std::max(sent_, next_);
  return &frame;
}

}  // namespace paceline
