#include "worker/meters/time_meter.h"

#include <numeric>

namespace paceline {

absl::string_view TimePartName(TimePart part) {
  constexpr absl::string_view kNames[kTimeParts] = {
      "forward",   "backward",  "evaluation", "send", "receive_wait",
      "aggregate", "optimizer", "snapshot",   "data", "orders"};
  return kNames[static_cast<int>(part)];
}

absl::Duration TimeReading::unexplained() const {
  return wall -
         std::accumulate(parts.begin(), parts.end(), absl::ZeroDuration());
}

v1::TimeSplit ToProto(const TimeReading& reading) {
  const auto seconds = [&reading](TimePart part) {
    return absl::ToDoubleSeconds(reading.parts[static_cast<int>(part)]);
  };
  v1::TimeSplit split;
  split.set_forward(seconds(TimePart::kForward));
  split.set_backward(seconds(TimePart::kBackward));
  split.set_evaluation(seconds(TimePart::kEvaluation));
  split.set_send(seconds(TimePart::kSend));
  split.set_receive_wait(seconds(TimePart::kReceiveWait));
  split.set_aggregate(seconds(TimePart::kAggregate));
  split.set_optimizer(seconds(TimePart::kOptimizer));
  split.set_snapshot(seconds(TimePart::kSnapshot));
  split.set_data(seconds(TimePart::kData));
  split.set_orders(seconds(TimePart::kOrders));
  split.set_unexplained(absl::ToDoubleSeconds(reading.unexplained()));
  split.set_wall(absl::ToDoubleSeconds(reading.wall));
  return split;
}

TimeMeter::TimeMeter(const Clock& clock) : clock_(clock) { Restart(); }

void TimeMeter::Restart() {
  const Instant now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  reading_ = {};
  began_ = now;
  inside_ = false;
  stopped_ = false;
}

void TimeMeter::Stop() {
  const Instant now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  reading_.wall = now - began_;
  stopped_ = true;
}

void TimeMeter::Enter(TimePart part) {
  const Instant now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  part_ = part;
  entered_ = now;
  inside_ = true;
}

void TimeMeter::Leave() {
  const Instant now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  if (!inside_) return;
  reading_.parts[static_cast<int>(part_)] += now - entered_;
  inside_ = false;
}

std::optional<absl::Duration> TimeMeter::Computing() const {
  absl::MutexLock lock(&mutex_);
  const bool computes =
      inside_ && !stopped_ &&
      (part_ == TimePart::kForward || part_ == TimePart::kBackward ||
       part_ == TimePart::kEvaluation || part_ == TimePart::kOptimizer);
  if (!computes) return std::nullopt;
  return clock_.Now() - entered_;
}

TimeReading TimeMeter::Read() const {
  // The clock is read under the lock: a reading taken before a part began
  // would give it negative time.
  absl::MutexLock lock(&mutex_);
  if (stopped_) return reading_;
  const Instant now = clock_.Now();
  TimeReading reading = reading_;
  reading.wall = now - began_;
  if (inside_) reading.parts[static_cast<int>(part_)] += now - entered_;
  return reading;
}

}  // namespace paceline
