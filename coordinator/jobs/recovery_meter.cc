#include "coordinator/jobs/recovery_meter.h"

#include <utility>

namespace paceline {

double SecondsOf(const v1::Recovery& recovery) {
  double sum = 0;
  for (const RecoveryPart& part : kRecoveryParts) {
    sum += (recovery.seconds().*part.seconds)();
  }
  return sum;
}

double RecoveryMeter::Lap(Moment moment) {
  const absl::Duration lap = moment.now - std::exchange(since_, moment.now);
  return absl::ToDoubleSeconds(std::max(lap, absl::ZeroDuration()));
}

void RecoveryMeter::OnTransition(const JobTransition& transition, int64_t step,
                                 Cut base, const std::string& why,
                                 Moment moment) {
  if (transition.to == JobPhase::kLeaving && !open_.has_value()) {
    open_.emplace();
    open_->set_unix_ms(moment.unix_ms);
    open_->set_why(why);
    open_->mutable_seconds()->set_detect(absl::ToDoubleSeconds(detection_));
    furthest_ = step;
    since_ = moment.now;
    begun_ = false;
  } else if (transition.to == JobPhase::kLeaving) {
    CountAgain(step);
  }
  detection_ = absl::ZeroDuration();
  if (!open_.has_value()) return;
  v1::RecoverySeconds& seconds = *open_->mutable_seconds();
  const double lap = Lap(moment);
  replays_ = transition.to == JobPhase::kRunning;
  switch (transition.from) {
    case JobPhase::kLeaving:
    case JobPhase::kFinishing:
      seconds.set_leave(seconds.leave() + lap);
      break;
    case JobPhase::kChoosing:
      seconds.set_choose(seconds.choose() + lap);
      break;
    case JobPhase::kStarting: {
      const double fetch = std::min(std::exchange(fetch_, 0), lap);
      seconds.set_fetch(seconds.fetch() + fetch);
      seconds.set_build(seconds.build() + lap - fetch);
      break;
    }
    case JobPhase::kRunning:
    case JobPhase::kStopping:
      seconds.set_replay(seconds.replay() + lap);
      break;
    default:
      break;
  }
  if (transition.to == JobPhase::kStarting) {
    fetch_ = 0;
    open_->set_from_step(base.step);
    begun_ = true;
  }
}

// Counts the steps that the last attempt has computed again, up to `step`.
void RecoveryMeter::CountAgain(int64_t step) {
  if (!std::exchange(begun_, false)) return;
  open_->set_again(open_->again() +
                   std::max<int64_t>(0, step - open_->from_step()));
}

bool RecoveryMeter::OnStep(int64_t step, Moment moment, v1::Recovery& sum) {
  if (!open_.has_value() || !replays_ || step < furthest_) return false;
  CountAgain(furthest_);
  open_->mutable_seconds()->set_replay(open_->seconds().replay() + Lap(moment));
  open_->set_recoveries(sum.recoveries() + 1);
  open_->set_replayed_steps(sum.replayed_steps() + open_->again());
  sum = *std::exchange(open_, std::nullopt);
  return true;
}

}  // namespace paceline
