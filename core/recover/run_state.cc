#include "core/recover/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {

void WorkState::OnOrder(const JobOrder& order, WorkActions& actions) {
  if (order.number <= order_.number) return;
  order_ = order;
  if (order.keep.floor.has_value()) {
    // A new attempt may begin below what was safe before.
    const bool gone = Lineage(order.keep.rows).IsSuperseded(floor_);
    floor_ = gone ? *order.keep.floor : std::max(floor_, *order.keep.floor);
  }
  if (leaving_) return;
  const bool goes_on = run_.has_value() && order.run.has_value() &&
                       order.run->attempt == run_->attempt;
  if (run_.has_value() && !goes_on) {
    leaving_ = true;
    actions.push_back(LeaveRun{HasReplicas()});
    return;
  }
  CarryOut(actions);
}

void WorkState::OnLeft(std::optional<KeptState> kept, WorkActions& actions) {
  if (!leaving_) return;
  leaving_ = false;
  left_ = std::max(left_, run_->attempt);
  if (kept.has_value()) {
    kept_ = kept;
    kept_attempt_ = run_->attempt;
  }
  run_.reset();
  phase_ = WorkPhase::kIdle;
  CarryOut(actions);
}

// Makes reality match the newest order; nothing else runs.
void WorkState::CarryOut(WorkActions& actions) {
  carried_out_ = order_.number;
  const int64_t newest =
      order_.keep.rows.empty() ? 0 : order_.keep.rows.back().attempt;
  if (kept_.has_value() && newest > kept_attempt_) {
    kept_.reset();
    actions.push_back(DropKept{});
  }
  if (kept_.has_value() && order_.finish.has_value()) {
    Finish(*order_.finish, actions);
  }
  if (!order_.run.has_value()) return;
  if (run_.has_value()) {  // the same attempt: only whether to stop is news
    run_ = order_.run;
    return;
  }
  run_ = order_.run;
  if (OwnLayers().empty()) {  // it is for an earlier process of this worker
    run_.reset();
    return;
  }
  error_ = absl::OkStatus();
  step_ = run_->base.step;
  if (HasLeft(run_->attempt)) {
    OnFailed(absl::AbortedError(
        absl::StrCat("attempt ", run_->attempt, " was left here before")));
    return;
  }
  phase_ = WorkPhase::kGathering;
  actions.push_back(GatherPieces{});
}

void WorkState::Finish(int64_t step, WorkActions& actions) {
  const bool holds = kept_->applied == step - 1 && kept_->held == step;
  if (kept_->applied != step && !holds) return;
  if (holds) actions.push_back(ApplyHeld{step});
  actions.push_back(DepositPieces{{kept_attempt_, step}});
  kept_ = KeptState{step, 0};
}

void WorkState::OnGathered(WorkActions& actions) {
  if (phase_ != WorkPhase::kGathering || leaving_) return;
  phase_ = WorkPhase::kRunning;
  if (step_ > 0) actions.push_back(DepositPieces{{run_->attempt, step_}});
  if (step_ >= last_step_) {  // the base is the end already
    phase_ = WorkPhase::kDone;
    return;
  }
  actions.push_back(BeginRun{step_});
}

void WorkState::OnApplied(int64_t step, bool marked, bool last,
                          WorkActions& actions) {
  if (phase_ != WorkPhase::kRunning || leaving_) return;
  step_ = step;
  const bool done = step >= last_step_;
  if (marked || last || done) {
    actions.push_back(DepositPieces{{run_->attempt, step}});
  }
  if (done) {
    phase_ = WorkPhase::kDone;
  } else if (last) {
    phase_ = WorkPhase::kStopped;
  }
}

void WorkState::OnFailed(const absl::Status& error) {
  if (!run_.has_value() || leaving_) return;
  phase_ = WorkPhase::kFailed;
  error_ = error;
}

std::vector<LayerRange> WorkState::OwnLayers() const {
  std::vector<LayerRange> own;
  if (!run_.has_value()) return own;
  for (const RunPlace& place : run_->places) {
    if (place.process == self_) own.push_back(place.layers);
  }
  return own;
}

bool WorkState::HasReplicas() const {
  for (size_t i = 1; i < run_->places.size(); ++i) {
    if (run_->places[i].layers == run_->places[i - 1].layers) return true;
  }
  return false;
}

JobReport WorkState::Report() const {
  JobReport report;
  report.echo = carried_out_;
  report.phase = phase_;
  report.attempt = run_.has_value() ? run_->attempt : 0;
  report.step = step_;
  report.error = error_;
  report.kept = kept_;
  report.floor = floor_;
  report.follows = !order_.follow.empty();
  return report;
}

bool SnapshotClock::ShouldMark(int64_t step, int64_t floor) {
  if (policy_.every <= 0 || floor < last_mark_) return false;
  if (!std::exchange(complete_, true)) {
    lag_ = std::max(step - last_mark_, lag_ - 1);
  }
  // One more for a snapshot that takes longer than the last one.
  const int64_t interval =
      std::max((policy_.every + 1) / 2, policy_.every - lag_ - 1);
  return step - last_mark_ >= interval;
}

void SnapshotClock::OnMarked(int64_t step) {
  last_mark_ = step;
  complete_ = false;
}

bool SnapshotClock::MustWait(int64_t step, int64_t floor, Instant acknowledged,
                             Instant now) const {
  return policy_.every > 0 && last_mark_ > floor &&
         step - floor >= policy_.every && now - acknowledged < policy_.patience;
}

}  // namespace paceline
