#include "worker/meters/flow_meter.h"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

// The smallest value that at least `share` of all are not above.
double Quantile(const std::vector<float>& sorted, double share) {
  const auto rank = static_cast<size_t>(
      std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

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
  times_.set_latency_p50(Quantile(sorted, 0.5));
  times_.set_latency_p99(Quantile(sorted, 0.99));
  times_.set_latency_max(sorted.back());
}

}  // namespace paceline
