// Members of one process reach one another here, for tests: with messages
// lost, repeated and overtaken from a seed, and links that are cut.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "core/base/random.h"
#include "core/os/thread.h"
#include "worker/rounds/parts/round_transport.h"

namespace paceline {

struct MemoryRoundFaults {
  double lose = 0;  // of messages, in [0, 1)
  double repeat = 0;
  double overtake = 0;  // goes behind the next one
};

// The wire between all of them.  Thread-safe; one thread carries everything,
// a piece at a time of each link in turn.
class MemoryRoundNetwork final {
 public:
  explicit MemoryRoundNetwork(uint64_t seed = 1);
  ~MemoryRoundNetwork();

  // A process's door; the network outlives it.
  std::unique_ptr<RoundTransport> Connect(const MemberId& self,
                                          RoundSink* sink);

  void SetFaults(const MemoryRoundFaults& faults);
  // Both directions; what is on the way is lost.
  void SetLink(const MemberId& a, const MemberId& b, bool up);
  // As after SIGKILL: whoever has it as a peer finds its address refused.
  void Kill(const MemberId& member);

  // Waits for so many; false: `longest` was not enough.
  bool AwaitCarried(int64_t bytes, absl::Duration longest) const;

  // Called on the wire's thread before a message is delivered; false: it is
  // lost.  May call the other methods.  Set before anything is sent.
  using Hook = std::function<bool(const MemberId& to, const RoundMessage&)>;
  void SetHook(Hook hook);

 private:
  friend class MemoryRoundTransport;

  using LinkId = std::pair<MemberId, MemberId>;  // from, to

  // Bytes on their way.
  struct Transfer {
    std::shared_ptr<RoundPayload> payload;  // null when all of it was sent
    std::shared_ptr<RoundPayload> into;     // null: dropped on the other side
    PayloadKey key;
    bool asked = false;    // where they shall go
    bool refused = false;  // by the other side
    bool done = false;
    int sent = 0;           // chunks
    std::deque<int> ready;  // and not sent
  };
  struct Letter {
    RoundMessage message;
    PayloadKey key;
    bool has_payload = false;
  };
  struct Link {
    std::map<PayloadKey, Transfer> transfers;
    std::deque<Letter> letters;
    bool up = true;
  };
  struct Endpoint {
    RoundSink* sink = nullptr;  // null: closed
    std::set<MemberId> peers;
    bool killed = false;
  };
  struct Notice {
    MemberId to;
    MemberId peer;
    bool up = false;
    bool refused = false;
  };

  void SetPeers(const MemberId& self, const std::vector<GroupWorker>& peers);
  void SendAhead(const LinkId& id, const PayloadKey& key,
                 std::shared_ptr<RoundPayload> payload);
  void Send(const LinkId& id, Letter letter,
            std::shared_ptr<RoundPayload> payload);
  void Forget(const MemberId& self, int64_t step);
  void Close(const MemberId& self);

  bool IsOpen(const LinkId& id) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool MayTravel(const LinkId& id) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool Chance(double probability) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static bool IsEmpty(const Transfer& transfer);

  // On the wire's thread.
  void Run();
  // Null: it hears nothing any more; else EndCall() comes after the call.
  RoundSink* BeginCall(const MemberId& member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndCall();
  void TellNotices();
  bool CarryLetter(const LinkId& id);  // false: nothing could move
  bool CarryChunk(const LinkId& id);

  mutable SteadyMutex mutex_;
  SplitMix64 random_ ABSL_GUARDED_BY(mutex_);
  MemoryRoundFaults faults_ ABSL_GUARDED_BY(mutex_);
  Hook hook_ ABSL_GUARDED_BY(mutex_);
  std::map<MemberId, Endpoint> endpoints_ ABSL_GUARDED_BY(mutex_);
  std::map<LinkId, Link> links_ ABSL_GUARDED_BY(mutex_);
  std::deque<Notice> notices_ ABSL_GUARDED_BY(mutex_);
  MemberId called_ ABSL_GUARDED_BY(mutex_);  // whose sink hears something now
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t seen_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Thread wire_;
};

}  // namespace paceline
