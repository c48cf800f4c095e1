// Members of a round group in one process, without engines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "core/round/view.h"
#include "tests/support/pipeline/memory_round_transport.h"
#include "worker/rounds/round_exchange.h"

namespace paceline {

inline MemberId MemberOf(int number, uint64_t life = 1) {
  return {WorkerId{number}, Incarnation{100 * life + number}};
}

// "2 late" of each part that the round was without.
inline std::vector<std::string> SkipsOf(const v1::RoundRecord& record) {
  std::vector<std::string> skips;
  for (const v1::RoundRecord::Skip& skip : record.skipped()) {
    skips.push_back(absl::StrCat(skip.worker_id(), " ", skip.reason()));
  }
  return skips;
}

// Remembers what it was told.  Thread-safe.
class RecordingObserver final : public RoundObserver {
 public:
  void OnRound(const v1::RoundRecord& record) override {
    const SteadyLock lock(&mutex_);
    records_.push_back(record);
  }
  void OnMemberChanged() override {
    const SteadyLock lock(&mutex_);
    ++changes_;
  }
  std::vector<v1::RoundRecord> records() const {
    const SteadyLock lock(&mutex_);
    return records_;
  }
  // Waits for the next OnMemberChanged(), or a little while.
  void AwaitChange() {
    const SteadyLock lock(&mutex_);
    const int before = changes_;
    const auto changed = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return changes_ != before;
    };
    mutex_.AwaitFor(absl::Condition(&changed), absl::Milliseconds(20));
  }

 private:
  mutable SteadyMutex mutex_;
  std::vector<v1::RoundRecord> records_ ABSL_GUARDED_BY(mutex_);
  int changes_ ABSL_GUARDED_BY(mutex_) = 0;
};

inline View MakeView(int64_t counter, const std::vector<ViewMember>& members) {
  View view;
  view.id = {1, counter};
  view.members = members;
  view.leveller = members.front().id;
  return view;
}

inline GroupOrder MakeGroup(const View& view,
                            const std::vector<MemberId>& listeners = {}) {
  GroupOrder group;
  group.view = view;
  const auto add = [&group](const MemberId& id) {
    group.workers.push_back({id, absl::StrCat("w", id.worker.value), ""});
  };
  for (const ViewMember& member : view.members) add(member.id);
  for (const MemberId& id : listeners) add(id);
  group.uploader = view.members.front().id;
  return group;
}

// An exchange on the memory network.
struct GroupMember {
  GroupMember(MemoryRoundNetwork& network, const RoundExchangeOptions& options,
              const Clock& clock)
      : self(options.self), exchange(options, clock, observer) {
    transport = network.Connect(self, &exchange);
  }
  ~GroupMember() {
    transport->Close();
    exchange.Stop();
  }

  const MemberId self;
  std::vector<float> gradient;  // a part's memory goes after who reads it
  RecordingObserver observer;
  RoundExchange exchange;
  std::unique_ptr<RoundTransport> transport;
};

}  // namespace paceline
