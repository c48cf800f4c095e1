#include "coordinator/place/plan_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "core/job/spec/job_spec.h"
#include "core/plan/memory.h"

namespace paceline {
namespace {

// The time between two looks at a job.
constexpr absl::Duration kLookPeriod = absl::Seconds(5);
// Fewer micro-batches, in less time, measure chance rather than a worker's
// speed.
constexpr int64_t kLeastMicroBatches = 8;
constexpr double kLongSeconds = 2;
// After this time a look uses any measurements.
constexpr absl::Duration kLongestLook = absl::Seconds(10);

WorkerId OwnerOf(const std::vector<StageOfPlan>& stages, int layer) {
  const auto owner = absl::c_find_if(stages, [layer](const StageOfPlan& stage) {
    return layer < stage.layers.last;
  });
  return owner == stages.end() ? WorkerId() : owner->worker;
}

}  // namespace

void PlanWatch::OnStopped(bool to_move, Instant now) {
  if (!stopped_.has_value()) stopped_ = {to_move, now};
  // A move during which a worker was lost does not count as a move.
  stopped_->to_move = stopped_->to_move && to_move;
}

// Workers do not time inference's steps, which are micro-batches.
PlanWatch::Sums PlanWatch::SumsOf(const JobRecord& record, Instant now) {
  const v1::Job& job = record.job;
  const bool infers = IsInference(record.spec);
  return {{job.stage_times().begin(), job.stage_times().end()},
          infers ? absl::ToDoubleSeconds(now.since_start) : job.timed_seconds(),
          infers ? job.step() : job.timed_steps(),
          now};
}

void PlanWatch::OnRunning(const JobRecord& record, Instant now) {
  if (stopped_.has_value()) restart_ = now - stopped_->since;
  if (stopped_.has_value() && stopped_->to_move) {
    repartition_.OnMoved(now);
  } else {
    repartition_.OnReplaced();
  }
  stopped_.reset();
  taken_ = SumsOf(record, now);
}

bool PlanWatch::IsDue(Instant now) {
  if (now < due_) return false;
  due_ = now + kLookPeriod;
  return true;
}

bool PlanWatch::Measure(const JobRecord& record,
                        const v1::RunEstimate& expected, Instant now) {
  const size_t stages = record.stages.size();
  const Sums sums = SumsOf(record, now);
  if (sums.stages.size() != stages ||
      static_cast<size_t>(expected.stage_seconds_size()) != stages ||
      sums.steps <= taken_.steps) {
    return false;
  }
  taken_.stages.resize(stages);
  const bool is_long = now - taken_.at >= kLongestLook;
  // A worker's (measured, expected) seconds of a micro-batch on all its stages.
  std::map<MemberId, std::pair<double, double>> times;
  for (size_t i = 0; i < stages; ++i) {
    const int64_t count =
        sums.stages[i].micro_batches() - taken_.stages[i].micro_batches();
    const double seconds =
        sums.stages[i].seconds() - taken_.stages[i].seconds();
    if (!is_long && count < kLeastMicroBatches && seconds < kLongSeconds) {
      return false;
    }
    if (count <= 0) continue;
    const auto worker =
        absl::c_find_if(record.job.workers(), [&](const auto& each) {
          return WorkerId{each.id()} == record.stages[i].worker;
        });
    auto& [measured, planned] =
        times[{record.stages[i].worker, {worker->incarnation()}}];
    measured += seconds / static_cast<double>(count);
    planned += expected.stage_seconds(static_cast<int>(i));
  }
  for (const auto& [process, time] : times) {
    if (time.second > 0) slowness_[process] = time.first / time.second;
  }
  step_seconds_ = (sums.seconds - taken_.seconds) /
                  static_cast<double>(sums.steps - taken_.steps);
  taken_ = sums;
  return true;
}

double PlanWatch::SlownessOf(const MemberId& process) const {
  const auto known = slowness_.find(process);
  if (known != slowness_.end()) return known->second;
  if (slowness_.empty()) return 1;
  std::vector<double> all;
  for (const auto& [other, slowness] : slowness_) all.push_back(slowness);
  const auto middle = all.begin() + (std::ssize(all) - 1) / 2;
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

StateTransfer TransferOf(const JobSpec& spec, const ModelDescription& model,
                         const std::vector<StageOfPlan>& from,
                         const std::vector<StageOfPlan>& to,
                         const Membership& membership,
                         const Measurements& measured) {
  std::map<WorkerId, int64_t> sent, received;
  StateTransfer transfer;
  for (int layer = 0; layer < std::ssize(model.layers); ++layer) {
    const Member* const source = membership.Find(OwnerOf(from, layer));
    const Member* const target = membership.Find(OwnerOf(to, layer));
    if (source == nullptr || target == nullptr ||
        source->registration.machine_id() ==
            target->registration.machine_id()) {
      continue;
    }
    const int64_t bytes = StateBytes(spec, model, {layer, layer + 1});
    transfer.bytes = std::max({transfer.bytes, sent[source->id] += bytes,
                               received[target->id] += bytes});
    const auto link = measured.links.find(
        {source->registration.name(), target->registration.name()});
    const double rate = link == measured.links.end()
                            ? kAssumedBytesPerSecond
                            : link->second.bytes_per_second;
    transfer.bytes_per_second = transfer.bytes_per_second > 0
                                    ? std::min(transfer.bytes_per_second, rate)
                                    : rate;
  }
  return transfer;
}

}  // namespace paceline
