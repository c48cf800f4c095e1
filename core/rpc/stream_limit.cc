#include "core/rpc/stream_limit.h"

#include "absl/strings/str_cat.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<StreamLimit::Place>> StreamLimit::Enter(
    const std::string& peer) {
  // "ipv4:192.0.2.1:4711", "ipv6:%5B::1%5D:4711".
  std::string host = peer.substr(0, peer.rfind(':'));
  absl::MutexLock lock(&mutex_);
  const auto found = of_host_.find(host);
  const int of_host = found == of_host_.end() ? 0 : found->second;
  if (of_host >= kMostOfAHost || in_all_ >= kMostInAll) {
    return absl::ResourceExhaustedError(
        absl::StrCat(of_host, " streams of ", host, " and ", in_all_,
                     " in all are open here, at most ", kMostOfAHost, " and ",
                     kMostInAll, " may: try again later"));
  }
  ++of_host_[host];
  ++in_all_;
  return std::make_unique<Place>(*this, std::move(host));
}

void StreamLimit::Leave(const std::string& host) {
  absl::MutexLock lock(&mutex_);
  --in_all_;
  const auto found = of_host_.find(host);
  if (--found->second == 0) of_host_.erase(found);
}

}  // namespace paceline
