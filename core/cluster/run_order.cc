#include "core/cluster/run_order.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

std::string WhyOther(absl::string_view key, const std::string& path,
                     uint64_t read, uint64_t began) {
  return absl::StrFormat(
      "%s %s has fingerprint %016x on this worker, and the job began with "
      "%016x: put the same on every worker%s",
      key, path, read, began,
      key == "model.weights" ? ""
                             : "; a job that is resumed takes others with "
                               "--accept-changed-data");
}

// Both are known and differ.
bool Differ(uint64_t a, uint64_t b) { return a != 0 && b != 0 && a != b; }

}  // namespace

absl::Status CheckInputs(const v1::Inputs& read, const v1::Inputs& began,
                         const JobSpec& spec) {
  if (Differ(read.weights(), began.weights())) {
    return FailedPrecondition(WhyOther("model.weights", spec.model.weights,
                                       read.weights(), began.weights()));
  }
  if (Differ(read.teacher(), began.teacher())) {
    return FailedPrecondition(WhyOther("train.distill.weights",
                                       spec.train.distill.weights,
                                       read.teacher(), began.teacher()));
  }
  if (Differ(read.data(), began.data())) {
    return NotFound(
        WhyOther("data.path", spec.data.path, read.data(), began.data()));
  }
  if (!Differ(read.contents(), began.contents())) return absl::OkStatus();
  return NotFound(
      WhyOther("data.path", spec.data.path, read.contents(), began.contents()));
}

int StageCount(const RunOrder& order) {
  return order.stages.empty() ? 0 : order.stages.back().stage + 1;
}

absl::Span<const StagePlacement> ReplicasOf(const RunOrder& order, int stage) {
  StagePlacement any;
  any.stage = stage;
  const auto [first, last] = absl::c_equal_range(
      order.stages, any, [](const StagePlacement& a, const StagePlacement& b) {
        return a.stage < b.stage;
      });
  return absl::MakeConstSpan(order.stages)
      .subspan(first - order.stages.begin(), last - first);
}

}  // namespace paceline
