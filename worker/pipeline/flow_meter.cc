#include "worker/pipeline/flow_meter.h"

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
    times_.first_unix_us = times_.last_unix_us = now.unix_us;
    return;
  }
  const absl::Duration waited = wait.end - wait.begin;
  if (sent_us == 0) {
    times_.data += absl::ToDoubleSeconds(waited);
    return;
  }
  // Clocks of two machines may differ: no way is longer than the wait.  What a
  // neighbour says may be anything, and absl::Time knows its ends.
  const absl::Duration travelled = absl::FromUnixMicros(now.unix_us) -
                                   absl::FromUnixMicros(sent_us) -
                                   (now.steady - wait.end);
  const absl::Duration way =
      std::clamp(travelled, absl::ZeroDuration(), waited);
  times_.in_flight += absl::ToDoubleSeconds(way);
  (filling_ ? times_.fill : times_.starved) +=
      absl::ToDoubleSeconds(waited - way);
}

void FlowMeter::OnBatchBegin(const FlowMoment& now) {
  if (times_.first_unix_us == 0) times_.first_unix_us = now.unix_us;
  began_ = filling_ = true;
  first_ = now;
}

void FlowMeter::OnBatchEnd(const FlowMoment& now, int64_t micro_batches,
                           int64_t samples) {
  times_.micro_batches += micro_batches;
  times_.samples += samples;
  times_.last_unix_us = now.unix_us;
  times_.seconds += absl::ToDoubleSeconds(now.steady - first_.steady);
  times_.other_cpu += OtherCpu(now);
  began_ = false;
}

void FlowMeter::OnGate(absl::Duration wait) {
  if (began_) times_.fill += absl::ToDoubleSeconds(wait);
}

void FlowMeter::OnUpdate(absl::Duration wall) {
  if (began_) times_.update += absl::ToDoubleSeconds(wall);
}

double FlowMeter::OtherCpu(const FlowMoment& now) const {
  return std::max(0.0,
                  absl::ToDoubleSeconds((now.process_cpu - first_.process_cpu) -
                                        (now.thread_cpu - first_.thread_cpu)));
}

void FlowMeter::OnCompute(absl::Duration wall, absl::Duration cpu) {
  if (!began_) return;
  times_.compute += absl::ToDoubleSeconds(wall);
  times_.compute_cpu += absl::ToDoubleSeconds(cpu);
}

void FlowMeter::OnBlocked(absl::Duration wait, absl::Duration link) {
  if (!began_) return;  // nothing can be on the way yet
  link = std::clamp(link, absl::ZeroDuration(), wait);
  times_.in_flight += absl::ToDoubleSeconds(link);
  times_.blocked += absl::ToDoubleSeconds(wait - link);
}

void FlowMeter::OnDone(const FlowMoment& now, int64_t samples) {
  ++times_.micro_batches;
  times_.samples += samples;
  times_.last_unix_us = now.unix_us;
  times_.seconds = absl::ToDoubleSeconds(now.steady - first_.steady);
  times_.other_cpu = OtherCpu(now);
}

void FlowMeter::OnLabels(int64_t labels, int64_t correct, double loss) {
  times_.labels += labels;
  times_.correct += correct;
  times_.loss += loss;
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
  times_.latency_p50 = Quantile(sorted, 0.5);
  times_.latency_p99 = Quantile(sorted, 0.99);
  times_.latency_max = sorted.back();
}

}  // namespace paceline
