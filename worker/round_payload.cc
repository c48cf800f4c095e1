#include "worker/round_payload.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/random.h"

namespace paceline {

RoundPayload::RoundPayload(absl::Span<uint8_t> bytes,
                           std::shared_ptr<void> owner)
    : bytes_(bytes),
      owner_(std::move(owner)),
      hashes_count_((bytes.size() + kRoundChunkBytes - 1) / kRoundChunkBytes),
      hashes_(hashes_count_),
      ready_(hashes_count_, false) {}

std::shared_ptr<RoundPayload> RoundPayload::Make(size_t bytes) {
  // Not make_unique: that would write zeros over every page.
  std::shared_ptr<uint8_t[]> memory(new uint8_t[bytes]);
  const absl::Span<uint8_t> span(memory.get(), bytes);
  return Over(span, std::move(memory));
}

std::shared_ptr<RoundPayload> RoundPayload::Over(absl::Span<uint8_t> bytes,
                                                 std::shared_ptr<void> owner) {
  return std::shared_ptr<RoundPayload>(
      new RoundPayload(bytes, std::move(owner)));
}

absl::Span<uint8_t> RoundPayload::chunk(int index) const {
  PACELINE_CHECK(index >= 0 && index < chunks(), "a chunk of another payload");
  return bytes_.subspan(static_cast<size_t>(index) * kRoundChunkBytes,
                        kRoundChunkBytes);
}

void RoundPayload::MarkReady(int chunk, uint64_t hash) {
  std::vector<OnReady> subscribers;
  {
    const absl::MutexLock lock(&mutex_);
    if (ready_.at(chunk)) return;
    ready_[chunk] = true;
    hashes_[chunk] = hash;
    ++ready_count_;
    subscribers = subscribers_;
  }
  for (const OnReady& each : subscribers) each(chunk);
}

bool RoundPayload::IsReady(int chunk) const {
  const absl::MutexLock lock(&mutex_);
  return ready_.at(chunk);
}

bool RoundPayload::complete() const {
  const absl::MutexLock lock(&mutex_);
  return ready_count_ == hashes_count_;
}

uint64_t RoundPayload::hash() const {
  const absl::MutexLock lock(&mutex_);
  PACELINE_CHECK(ready_count_ == hashes_count_, "a hash of half a payload");
  uint64_t hash = MixSeed({bytes_.size()});
  for (const uint64_t each : hashes_) hash = MixSeed({hash, each});
  return std::max<uint64_t>(hash, 1);
}

uint64_t RoundPayload::chunk_hash(int chunk) const {
  const absl::MutexLock lock(&mutex_);
  PACELINE_CHECK(ready_.at(chunk), "a hash of a chunk that is not here");
  return hashes_[chunk];
}

void RoundPayload::Subscribe(OnReady on_ready) {
  std::vector<int> here;
  {
    const absl::MutexLock lock(&mutex_);
    for (int i = 0; i < chunks(); ++i) {
      if (ready_[i]) here.push_back(i);
    }
    subscribers_.push_back(on_ready);
  }
  for (const int chunk : here) on_ready(chunk);
}

}  // namespace paceline
