// A RoundSink that keeps what comes, the bytes of a test's payloads, and what a
// test of members wants of their transports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/random.h"
#include "core/os/thread.h"
#include "core/transfer/checksum.h"
#include "worker/rounds/parts/round_transport.h"

namespace paceline {

inline MemberId TestMember(int index) {
  return {WorkerId{index + 1}, Incarnation{100u + index}};
}

// Bytes that follow from the seed, chunks not ready yet.
inline std::shared_ptr<RoundPayload> UnreadyPayload(size_t bytes,
                                                    uint64_t seed) {
  auto payload = BlockPool(0).Make(bytes);
  SplitMix64 random(seed);
  for (uint8_t& byte : payload->mutable_bytes()) {
    byte = static_cast<uint8_t>(random.Next());
  }
  return payload;
}

inline void MarkReady(RoundPayload& payload, int chunk) {
  Checksum checksum;
  checksum.Update(payload.chunk(chunk));
  payload.MarkReady(chunk, checksum.Digest());
}

inline std::shared_ptr<RoundPayload> ReadyPayload(size_t bytes, uint64_t seed) {
  auto payload = UnreadyPayload(bytes, seed);
  for (int i = 0; i < payload->chunks(); ++i) MarkReady(*payload, i);
  return payload;
}

inline PayloadKey PartKey(int64_t step, int32_t shard = 0) {
  return {PayloadKey::Kind::kPart, step, shard, 0};
}

inline RoundMessage MessageFrom(int member, Body body) {
  RoundMessage message;
  message.attempt = 1;
  message.view = {1, 1};
  message.from = TestMember(member);
  message.committed_through = 3;
  message.body = std::move(body);
  return message;
}

inline RoundMessage CommitFrom(int member, int64_t step) {
  return MessageFrom(member, Commit{step, 77});
}

inline RoundMessage OfferFrom(int member, const PayloadKey& key,
                              const RoundPayload& payload) {
  return MessageFrom(member, PartOffer{key.step, key.shard, 8, payload.hash(),
                                       /*division=*/5});
}

// The step of a Commit; -1 of others.
inline int64_t CommittedStep(const RoundMessage& message) {
  const auto* commit = std::get_if<Commit>(&message.body);
  return commit == nullptr ? -1 : commit->step;
}

// Thread-safe.
class RoundRecorder final : public RoundSink {
 public:
  using Memory = std::function<absl::StatusOr<std::shared_ptr<RoundPayload>>(
      const MemberId&, const PayloadKey&, size_t)>;

  static constexpr absl::Duration kLong = absl::Seconds(60);

  struct Got {
    RoundMessage message;
    std::shared_ptr<RoundPayload> payload;
  };
  struct Link {
    bool up = false;
    bool refused = false;
    int changes = 0;
  };

  // Instead of fresh memory for every (sender, key).
  void SetMemory(Memory memory) {
    SteadyLock lock(&mutex_);
    memory_ = std::move(memory);
  }

  absl::StatusOr<std::shared_ptr<RoundPayload>> OnPayload(
      const MemberId& from, const PayloadKey& key, size_t bytes) override {
    SteadyLock lock(&mutex_);
    ++asked_;
    if (memory_) return memory_(from, key, bytes);
    auto& payload = payloads_[{from, key}];
    if (payload == nullptr) payload = BlockPool(0).Make(bytes);
    return payload;
  }
  void OnMessage(RoundMessage message,
                 std::shared_ptr<RoundPayload> payload) override {
    SteadyLock lock(&mutex_);
    got_.push_back({std::move(message), std::move(payload)});
  }
  void OnLink(const MemberId& peer, bool up, bool refused) override {
    SteadyLock lock(&mutex_);
    Link& link = links_[peer];
    link = {up, refused, link.changes + 1};
  }

  // Whether that many messages came; waits for a long time.
  bool AwaitMessages(size_t count, absl::Duration patience = kLong) {
    SteadyLock lock(&mutex_);
    const auto here = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return got_.size() >= count;
    };
    return mutex_.AwaitFor(absl::Condition(&here), patience);
  }
  // The same, of those that brought bytes.
  bool AwaitPayloads(int count, absl::Duration patience) {
    SteadyLock lock(&mutex_);
    const auto here = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return count <= absl::c_count_if(got_, [](const Got& got) {
               return got.payload != nullptr;
             });
    };
    return mutex_.AwaitFor(absl::Condition(&here), patience);
  }
  bool AwaitLink(int member, bool up, bool refused = false) {
    SteadyLock lock(&mutex_);
    const auto here = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      const auto at = links_.find(TestMember(member));
      return at != links_.end() && at->second.up == up &&
             at->second.refused == refused;
    };
    return mutex_.AwaitFor(absl::Condition(&here), kLong);
  }
  // Until the memory of a part has that many chunks.
  bool AwaitChunks(int member, const PayloadKey& key, int count) {
    SteadyLock lock(&mutex_);
    const auto here = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      const auto at = payloads_.find({TestMember(member), key});
      if (at == payloads_.end()) return false;
      int ready = 0;
      for (int i = 0; i < at->second->chunks(); ++i) {
        ready += at->second->IsReady(i) ? 1 : 0;
      }
      return ready >= count;
    };
    // No lock of ours is taken when a chunk gets ready: ask now and then.
    const Instant end = SteadyNow() + kLong;
    while (!here() && SteadyNow() < end) {
      const auto never = []() { return false; };
      mutex_.AwaitFor(absl::Condition(&never), absl::Milliseconds(1));
    }
    return here();
  }

  std::vector<Got> got() const {
    SteadyLock lock(&mutex_);
    return got_;
  }
  int asked() const {
    SteadyLock lock(&mutex_);
    return asked_;
  }
  int link_changes(int member) const {
    SteadyLock lock(&mutex_);
    const auto at = links_.find(TestMember(member));
    return at == links_.end() ? 0 : at->second.changes;
  }

 private:
  mutable SteadyMutex mutex_;
  Memory memory_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<MemberId, PayloadKey>, std::shared_ptr<RoundPayload>>
      payloads_ ABSL_GUARDED_BY(mutex_);
  std::vector<Got> got_ ABSL_GUARDED_BY(mutex_);
  std::map<MemberId, Link> links_ ABSL_GUARDED_BY(mutex_);
  int asked_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Members that can reach one another, each with its sink; nobody has peers.
// Member i is TestMember(i).  Thread-compatible.
class RoundNet {
 public:
  virtual ~RoundNet() = default;
  virtual RoundTransport& transport(int member) = 0;
  virtual std::string address(int member) = 0;
};

// sinks: outlive the net.
using RoundNetMaker =
    std::function<std::unique_ptr<RoundNet>(const std::vector<RoundSink*>&)>;

}  // namespace paceline
