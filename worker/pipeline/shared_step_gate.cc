#include "worker/pipeline/shared_step_gate.h"

#include <optional>

#include "core/base/errors.h"

namespace paceline {
namespace {

// The reports of one Decide() wait for this.
struct Wait {
  absl::Mutex mutex;
  size_t missing ABSL_GUARDED_BY(mutex) = 0;
  absl::StatusOr<StepVerdict> verdict ABSL_GUARDED_BY(mutex) =
      absl::UnknownError("no report");
};

class LocalGateClient final : public GateClient {
 public:
  explicit LocalGateClient(std::shared_ptr<SharedStepGate> gate)
      : gate_(std::move(gate)) {}

  absl::StatusOr<StepVerdict> Decide(
      const std::vector<StepReport>& reports) override {
    if (absl::Status ended = Ended(); !ended.ok()) return ended;
    // Shared with the answers, which a cancelled wait leaves behind.
    const auto waiting = std::make_shared<Wait>();
    {
      absl::MutexLock lock(&waiting->mutex);
      waiting->missing = reports.size();
    }
    {
      absl::MutexLock lock(&mutex_);
      waiting_ = waiting;
    }
    for (const StepReport& report : reports) {
      gate_->Report(report, [waiting](absl::StatusOr<StepVerdict> verdict) {
        absl::MutexLock lock(&waiting->mutex);
        if (waiting->missing == 0) return;
        waiting->missing = verdict.ok() ? waiting->missing - 1 : 0;
        waiting->verdict = std::move(verdict);
      });
    }
    // A Cancel() between the first look and here found no one to wake.
    if (absl::Status ended = Ended(); !ended.ok()) return ended;

    absl::MutexLock lock(&waiting->mutex);
    const auto answered = [&waiting]() ABSL_SHARED_LOCKS_REQUIRED(
                              waiting->mutex) { return waiting->missing == 0; };
    waiting->mutex.Await(absl::Condition(&answered));
    return waiting->verdict;
  }

  void Cancel(absl::Status why) override {
    std::shared_ptr<Wait> waiting;
    {
      absl::MutexLock lock(&mutex_);
      if (ended_.ok()) ended_ = why;
      why = ended_;
      waiting.swap(waiting_);
    }
    if (waiting == nullptr) return;
    absl::MutexLock lock(&waiting->mutex);
    if (waiting->missing == 0) return;
    waiting->missing = 0;
    waiting->verdict = std::move(why);
  }

 private:
  absl::Status Ended() {
    absl::MutexLock lock(&mutex_);
    return ended_;
  }

  const std::shared_ptr<SharedStepGate> gate_;

  absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  // The last Decide() waits for it: there is one compute thread.
  std::shared_ptr<Wait> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

SharedStepGate::SharedStepGate(const TrainSpec& train, int64_t total_steps,
                               std::vector<int> replicas, int64_t first_step)
    : gate_(train, total_steps, std::move(replicas), first_step) {}

SharedStepGate::~SharedStepGate() { Cancel(Cancelled("the run was closed")); }

void SharedStepGate::Report(const StepReport& report, Answer answer) {
  std::vector<std::pair<Answer, absl::StatusOr<StepVerdict>>> told;
  {
    absl::MutexLock lock(&mutex_);
    absl::StatusOr<std::optional<StepVerdict>> decided =
        ended_.ok() ? gate_.Add(report) : ended_;
    if (!decided.ok()) {
      told.emplace_back(std::move(answer), decided.status());
    } else if (decided->has_value()) {
      TakeWaitingLocked(**decided, &told);
      told.emplace_back(std::move(answer), **decided);
    } else {
      Waiting& place = waiting_[{report.stage, report.replica}];
      if (place.answer) {
        told.emplace_back(std::move(place.answer),
                          Aborted("the same stage asked again"));
      }
      place = {report.step, std::move(answer)};
    }
  }
  for (auto& [whom, what] : told) whom(std::move(what));
}

void SharedStepGate::TakeWaitingLocked(
    const StepVerdict& verdict,
    std::vector<std::pair<Answer, absl::StatusOr<StepVerdict>>>* told) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second.step == verdict.step) {
      told->emplace_back(std::move(at->second.answer), verdict);
      at = waiting_.erase(at);
    } else {
      ++at;
    }
  }
}

void SharedStepGate::Cancel(absl::Status why) {
  PACELINE_CHECK(!why.ok(), "cancelled with OK");
  std::map<std::pair<int, int>, Waiting> told;
  {
    absl::MutexLock lock(&mutex_);
    if (!ended_.ok()) return;
    ended_ = why;
    told.swap(waiting_);
  }
  for (const auto& [stage, waiting] : told) waiting.answer(why);
}

std::unique_ptr<GateClient> MakeLocalGateClient(
    std::shared_ptr<SharedStepGate> gate) {
  return std::make_unique<LocalGateClient>(std::move(gate));
}

}  // namespace paceline
