#include "worker/pipeline/shared_step_gate.h"

#include <optional>

#include "core/base/errors.h"

namespace paceline {
namespace {

class LocalGateClient final : public GateClient {
 public:
  explicit LocalGateClient(std::shared_ptr<SharedStepGate> gate)
      : gate_(std::move(gate)) {}

  absl::StatusOr<StepVerdict> Decide(
      const std::vector<StepReport>& reports) override {
    Wait& wait = *wait_;
    int64_t round = 0;
    {
      absl::MutexLock lock(&wait.mutex);
      if (!wait.ended.ok()) return wait.ended;
      round = ++wait.round;
      wait.missing = reports.size();
    }
    for (const StepReport& report : reports) {
      gate_->Report(report, [wait = wait_,
                             round](absl::StatusOr<StepVerdict> verdict) {
        absl::MutexLock lock(&wait->mutex);
        if (round != wait->round || wait->missing == 0 || !wait->ended.ok()) {
          return;
        }
        wait->missing = verdict.ok() ? wait->missing - 1 : 0;
        wait->verdict = std::move(verdict);
      });
    }
    absl::MutexLock lock(&wait.mutex);
    const auto over = [&wait]() ABSL_SHARED_LOCKS_REQUIRED(wait.mutex) {
      return wait.missing == 0 || !wait.ended.ok();
    };
    wait.mutex.Await(absl::Condition(&over));
    if (wait.missing > 0) return wait.ended;
    return wait.verdict;
  }

  void Cancel(absl::Status why) override {
    absl::MutexLock lock(&wait_->mutex);
    if (wait_->ended.ok()) wait_->ended = std::move(why);
  }

 private:
  // Shared with the answers, which a cancelled Decide() leaves behind.
  struct Wait {
    absl::Mutex mutex;
    int64_t round ABSL_GUARDED_BY(mutex) = 0;  // number of the last Decide()
    size_t missing ABSL_GUARDED_BY(mutex) = 0;
    absl::StatusOr<StepVerdict> verdict ABSL_GUARDED_BY(mutex) =
        absl::UnknownError("no report");
    absl::Status ended ABSL_GUARDED_BY(mutex);
  };

  const std::shared_ptr<SharedStepGate> gate_;
  const std::shared_ptr<Wait> wait_ = std::make_shared<Wait>();
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
      const StepVerdict& verdict = **decided;
      std::erase_if(waiting_, [&](auto& entry) {
        if (entry.second.step != verdict.step) return false;
        told.emplace_back(std::move(entry.second.answer), verdict);
        return true;
      });
      told.emplace_back(std::move(answer), verdict);
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
