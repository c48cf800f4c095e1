#include "core/rpc/stream_limit.h"

#include "core/base/errors.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<StreamLimit::Place>> StreamLimit::Enter(
    const std::string& peer) {
  // "ipv4:192.0.2.1:4711", "ipv6:%5B::1%5D:4711".
  std::string holder =
      of_ == Of::kHost ? peer.substr(0, peer.rfind(':')) : peer;
  absl::MutexLock lock(&mutex_);
  const auto found = of_one_.find(holder);
  const int of_one = found == of_one_.end() ? 0 : found->second;
  if (of_one >= most_of_one_ || in_all_ >= most_in_all_) {
    return ResourceExhausted(of_one, " streams of ", holder, " and ", in_all_,
                             " in all are open here, at most ", most_of_one_,
                             " and ", most_in_all_, " may: try again later");
  }
  ++of_one_[holder];
  ++in_all_;
  return std::make_unique<Place>(*this, std::move(holder));
}

absl::Status StreamLimit::CheckRoom() {
  absl::MutexLock lock(&mutex_);
  if (in_all_ < most_in_all_) return absl::OkStatus();
  return ResourceExhausted("as many streams as may be are open here, ",
                           most_in_all_, ": try again later");
}

void StreamLimit::Leave(const std::string& holder) {
  absl::MutexLock lock(&mutex_);
  --in_all_;
  const auto found = of_one_.find(holder);
  if (--found->second == 0) of_one_.erase(found);
}

}  // namespace paceline
