// The insides of tests/core/round/world.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/core/round/world.h"

namespace paceline {

inline constexpr absl::Duration kHeartbeat = absl::Milliseconds(40);
inline constexpr absl::Duration kCoordinatorLease = absl::Milliseconds(300);
inline constexpr absl::Duration kTick = absl::Milliseconds(10);
inline constexpr absl::Duration kLongest = absl::Seconds(60);
inline constexpr int kMicroBatches = 9;  // a batch
inline constexpr int kSpares = 40;       // processes beyond the first ones

struct Process {
  MemberId id;
  bool alive = true;
  Instant paused_until;
  Instant cut_until;  // from the coordinator
  Instant heard;      // by the coordinator
  int64_t attempt = 0;
  std::unique_ptr<RoundMember> member;
  uint64_t state = 0;
  bool computing = false;
  std::map<int, uint64_t> cached_parts;  // flaw kKeepPartsOverAttempts
  std::optional<uint64_t> late_part;     // flaw kLatePartJoinsNextRound
  // The bytes of parts that came to it: what an adapter would keep.
  std::map<std::pair<int, MemberId>, std::pair<int64_t, uint64_t>> parts;
  std::pair<int64_t, int64_t> last_applied = {-1, -1};
};

class World {
 public:
  World(const WorldOptions& options, Coverage* coverage)
      : options_(options),
        coverage_(coverage),
        random_(MixSeed({options.seed, 0x726f756e64})) {}

  WorldResult Run();

 private:
  enum class What : uint8_t {
    kMessage,
    kTick,
    kHeartbeat,
    kComputed,
    kAggregated,
    kViewArrives,
    kViewStored,
    kFault,
    kCoordinatorBack,
    kLease,
    kBreak,  // the coordinator sees a broken stream
  };
  struct Event {
    Instant at;
    int64_t number = 0;  // order of equal times
    What what = What::kTick;
    int process = -1;
    RoundMessage message = {};
    uint64_t payload = 0;
    View view = {};
    Aggregate sum = {};
    int64_t attempt = 0;
    int64_t term = 0;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.number > b.number;
    }
  };

  // --- Drawing ---
  int Below(int bound) { return static_cast<int>(random_.Below(bound)); }
  bool Chance(double p) { return random_.Unit() < p; }
  absl::Duration Between(int low_us, int high_us) {
    return absl::Microseconds(low_us + Below(high_us - low_us + 1));
  }

  // --- Events ---
  void Push(Event event, absl::Duration after);
  void Handle(Event& event);
  void OnFault(const Event& event);
  void OnCoordinatorBack();
  void OnViewStored(const Event& event);
  void OnLease(const Event& event);
  void OnComputed(Process& process, const Event& event);
  void Carry(Process& process, RoundActions actions);
  void Do(Process& process, const SendMessage& send);
  void Do(Process& process, const Aggregate& aggregate);
  void Do(Process& process, const Apply& apply);
  void Do(Process& process, const Suspect& suspect);
  void Do(Process& process, const ReportMismatch& report);
  void Do(Process& process, const TakeCopy& copy);
  void Do(Process& process, const SendCopy& copy);
  void CarryViews(ViewActions actions);
  void StartComputing(Process& process);
  void Sum(Process& process, const Aggregate& request);
  void Deliver(Process& process, const Event& event);
  void Transmit(int to, const RoundMessage& message, uint64_t payload);

  // --- Coordinator ---
  void OnHeartbeat(Process& process);
  void Lose(const MemberId& member);
  void Restore();
  void BeginAttempt(std::vector<int> processes, int64_t step, uint64_t state);
  int AddProcess(WorkerId worker);

  // --- Faults ---
  void Inject();
  void CountFault(Fault fault, const Process& process);
  RoundPhase PhaseOf(const Process& process) const;
  int PickAlive();

  // --- Checks ---
  void Fail(const std::string& what);
  void Trace(const std::string& text);
  uint64_t Oracle(const RoundResult& result, const ShardResult& shard,
                  int64_t attempt) const;
  bool IsCalmAndDone() const;
  std::string WhyNotDone() const;

  Process* Find(const MemberId& id) {
    for (Process& process : processes_) {
      if (process.id == id) return &process;
    }
    return nullptr;
  }
  int IndexOf(const MemberId& id) const {
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i].id == id) return static_cast<int>(i);
    }
    return -1;
  }

  const WorldOptions options_;
  Coverage* const coverage_;
  SplitMix64 random_;
  Instant now_;
  int64_t numbers_ = 0;
  std::priority_queue<Event, std::vector<Event>, Later> events_;

  RoundOptions round_;
  std::vector<Process> processes_;
  uint64_t incarnations_ = 0;
  int workers_ = 0;

  // The coordinator, and what it has on disk.
  bool coordinator_up_ = true;
  int64_t term_ = 1;
  std::unique_ptr<ViewKeeper> keeper_;
  std::optional<View> disk_;
  int64_t attempt_ = 1;

  double loss_ = 0, duplicate_ = 0;
  int longest_delay_us_ = 3000;
  Instant trouble_until_;
  int faults_left_ = 0;
  Instant calm_since_;

  // What was applied, by anybody: (attempt, step) -> hash, and state after.
  std::map<std::pair<int64_t, int64_t>, uint64_t> applied_;
  std::map<std::pair<int64_t, int64_t>, uint64_t> states_;
  // What a member computed for a step: (attempt, member, step).
  struct OwnPart {
    uint64_t division = 0;
    std::vector<int> micro_batches;
  };
  std::map<std::tuple<int64_t, MemberId, int64_t>, OwnPart> own_parts_;
  int64_t voids_ = 0;
  int64_t calm_rounds_from_ = -1;
  std::string violation_;
  int64_t handled_ = 0;
};

std::string NameOf(const MemberId& id);

}  // namespace paceline
