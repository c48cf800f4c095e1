#include "worker/meters/time_meter.h"

#include <algorithm>
#include <cmath>

namespace paceline {

namespace {

// By TimePart.
constexpr void (v1::TimeSplit::*kSetPart[kTimeParts])(double) = {
    &v1::TimeSplit::set_forward,      &v1::TimeSplit::set_backward,
    &v1::TimeSplit::set_evaluation,   &v1::TimeSplit::set_send,
    &v1::TimeSplit::set_receive_wait, &v1::TimeSplit::set_aggregate,
    &v1::TimeSplit::set_optimizer,    &v1::TimeSplit::set_snapshot,
    &v1::TimeSplit::set_data,         &v1::TimeSplit::set_orders};

// The smallest value that at least `share` of all are not above.
double LatencyQuantile(const std::vector<float>& sorted, double share) {
  const auto rank = static_cast<size_t>(
      std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

TimeMeter::TimeMeter(const Clock& clock) : clock_(clock) { Restart(); }

void TimeMeter::Restart() {
  const Instant now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  parts_ = {};
  began_ = now;
  inside_ = false;
  stopped_ = false;
}

void TimeMeter::Stop() {
  const Instant now = clock_.Now();
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  wall_ = now - began_;
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
  parts_[static_cast<int>(part_)] += now - entered_;
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

v1::TimeSplit TimeMeter::Read() const {
  // The clock is read under the lock: a reading taken before a part began
  // would give it negative time.
  absl::MutexLock lock(&mutex_);
  const Instant now = clock_.Now();
  const absl::Duration wall = stopped_ ? wall_ : now - began_;
  absl::Duration unexplained = wall;
  v1::TimeSplit split;
  for (int part = 0; part < kTimeParts; ++part) {
    const bool runs =
        inside_ && !stopped_ && part_ == static_cast<TimePart>(part);
    const absl::Duration seconds =
        parts_[part] + (runs ? now - entered_ : absl::ZeroDuration());
    (split.*kSetPart[part])(absl::ToDoubleSeconds(seconds));
    unexplained -= seconds;
  }
  split.set_unexplained(absl::ToDoubleSeconds(unexplained));
  split.set_wall(absl::ToDoubleSeconds(wall));
  return split;
}

void FlowMeter::OnInput(const FlowMoment& now, const FlowWait& wait,
                        int64_t sent_us) {
  if (!began_) {
    if (counts_ == Counts::kBatches) return;
    began_ = true;
    first_ = now;
    times_.set_first_unix_us(now.unix_us);
    times_.set_last_unix_us(now.unix_us);
    return;
  }
  const absl::Duration waited = wait.end - wait.begin;
  if (sent_us == 0) {
    times_.set_data(times_.data() + absl::ToDoubleSeconds(waited));
    return;
  }
  // Clocks of two machines may differ: no way is longer than the wait.  What a
  // neighbour says may be anything, and absl::Time knows its ends.
  const absl::Duration travelled = absl::FromUnixMicros(now.unix_us) -
                                   absl::FromUnixMicros(sent_us) -
                                   (now.steady - wait.end);
  const absl::Duration way =
      std::clamp(travelled, absl::ZeroDuration(), waited);
  times_.set_in_flight(times_.in_flight() + absl::ToDoubleSeconds(way));
  const double other = absl::ToDoubleSeconds(waited - way);
  if (filling_) {
    times_.set_fill(times_.fill() + other);
  } else {
    times_.set_starved(times_.starved() + other);
  }
}

void FlowMeter::OnBatchBegin(const FlowMoment& now) {
  if (times_.first_unix_us() == 0) times_.set_first_unix_us(now.unix_us);
  began_ = filling_ = true;
  first_ = now;
}

void FlowMeter::OnBatchEnd(const FlowMoment& now, int64_t micro_batches,
                           int64_t samples) {
  times_.set_micro_batches(times_.micro_batches() + micro_batches);
  times_.set_samples(times_.samples() + samples);
  times_.set_last_unix_us(now.unix_us);
  times_.set_seconds(times_.seconds() +
                     absl::ToDoubleSeconds(now.steady - first_.steady));
  times_.set_other_cpu(times_.other_cpu() + OtherCpu(now));
  began_ = false;
}

void FlowMeter::OnGate(absl::Duration wait) {
  if (began_) times_.set_fill(times_.fill() + absl::ToDoubleSeconds(wait));
}

void FlowMeter::OnUpdate(absl::Duration wall) {
  if (!began_) return;
  times_.set_update(times_.update() + absl::ToDoubleSeconds(wall));
}

double FlowMeter::OtherCpu(const FlowMoment& now) const {
  return std::max(0.0,
                  absl::ToDoubleSeconds((now.process_cpu - first_.process_cpu) -
                                        (now.thread_cpu - first_.thread_cpu)));
}

void FlowMeter::OnCompute(absl::Duration wall, absl::Duration cpu) {
  if (!began_) return;
  times_.set_compute(times_.compute() + absl::ToDoubleSeconds(wall));
  times_.set_compute_cpu(times_.compute_cpu() + absl::ToDoubleSeconds(cpu));
}

void FlowMeter::OnBlocked(absl::Duration wait, absl::Duration link) {
  if (!began_) return;  // nothing can be on the way yet
  link = std::clamp(link, absl::ZeroDuration(), wait);
  times_.set_in_flight(times_.in_flight() + absl::ToDoubleSeconds(link));
  times_.set_blocked(times_.blocked() + absl::ToDoubleSeconds(wait - link));
}

void FlowMeter::OnDone(const FlowMoment& now, int64_t samples) {
  times_.set_micro_batches(times_.micro_batches() + 1);
  times_.set_samples(times_.samples() + samples);
  times_.set_last_unix_us(now.unix_us);
  times_.set_seconds(absl::ToDoubleSeconds(now.steady - first_.steady));
  times_.set_other_cpu(OtherCpu(now));
}

void FlowMeter::OnLabels(int64_t labels, int64_t correct, double loss) {
  times_.set_labels(times_.labels() + labels);
  times_.set_correct(times_.correct() + correct);
  times_.set_loss(times_.loss() + loss);
}

void FlowMeter::OnResult(absl::Duration latency) {
  if (counts_ == Counts::kBatches && !began_) return;
  const auto seconds =
      static_cast<float>(std::max(0.0, absl::ToDoubleSeconds(latency)));
  if (latencies_.size() < kLatenciesKept) {
    latencies_.push_back(seconds);
  } else {
    latencies_[results_ % kLatenciesKept] = seconds;
  }
  ++results_;
  if ((results_ & (results_ - 1)) == 0) SortLatencies();
}

void FlowMeter::SortLatencies() {
  if (latencies_.empty()) return;
  std::vector<float> sorted = latencies_;
  std::sort(sorted.begin(), sorted.end());
  times_.set_latency_p50(LatencyQuantile(sorted, 0.5));
  times_.set_latency_p99(LatencyQuantile(sorted, 0.99));
  times_.set_latency_max(sorted.back());
}

}  // namespace paceline
