#include "core/optim/step_gate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/errors.h"
#include "core/optim/optimizer.h"

namespace paceline {
namespace {

// Keeps the division of clip_norm by the norm defined at zero; the value of
// torch.nn.utils.clip_grad_norm_.
constexpr double kClipEpsilon = 1e-6;

// Bit for bit.  `==` would call a repeated report with a NaN norm a new one.
bool SameReport(const StepReport& a, const StepReport& b) {
  return a.step == b.step && a.stage == b.stage && a.replica == b.replica &&
         a.result_hash == b.result_hash && a.finite == b.finite &&
         a.samples == b.samples &&
         std::ranges::equal(
             a.squared_norms, b.squared_norms, [](double x, double y) {
               return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
             });
}

bool IsFinite(const StepReport& report) {
  return report.finite &&
         std::ranges::all_of(report.squared_norms,
                             [](double norm) { return std::isfinite(norm); });
}

StepVerdict Skip(int64_t step, std::string why) {
  return {.step = step, .skip = true, .why = std::move(why)};
}

// 1 - beta^updates.
double BiasCorrection(double beta, int64_t updates) {
  return 1 - std::pow(beta, static_cast<double>(updates));
}

absl::Status CheckRepeat(const StepReport& report, const StepReport& known) {
  if (SameReport(report, known)) return absl::OkStatus();
  return InvalidArgument("stage ", report.stage, " reported step ", report.step,
                         " twice and differently: gradient hash ",
                         absl::Hex(known.result_hash, absl::kZeroPad16),
                         " first, then ",
                         absl::Hex(report.result_hash, absl::kZeroPad16));
}

}  // namespace

StepVerdict DecideStep(const TrainSpec& train, int64_t total_steps,
                       const std::vector<StepReport>& reports) {
  PACELINE_CHECK(!reports.empty(), "a step needs a report of every stage");
  const int64_t step = reports[0].step;
  const int64_t samples = reports[0].samples;
  if (samples <= 0) {
    return Skip(step, absl::StrCat("skipped: ", samples, " samples"));
  }
  std::vector<int> bad_stages;
  double squared_norm = 0;
  for (const StepReport& report : reports) {
    if (!IsFinite(report)) bad_stages.push_back(report.stage);
    for (const double norm : report.squared_norms) squared_norm += norm;
  }
  if (!bad_stages.empty()) {
    return Skip(step, absl::StrCat("skipped: NaN or infinity in the gradient "
                                   "of stage ",
                                   absl::StrJoin(bad_stages, ", ")));
  }

  const double norm = std::sqrt(squared_norm) / static_cast<double>(samples);
  if (!std::isfinite(norm)) {
    return Skip(step, "skipped: the norm of all stages' gradients overflows");
  }
  StepVerdict verdict;
  verdict.step = step;
  verdict.gradient_norm = norm;
  double clip_factor = 1;
  if (train.clip_norm > 0) {
    clip_factor = std::min(1.0, train.clip_norm / (norm + kClipEpsilon));
  }
  verdict.why = clip_factor < 1 ? absl::StrCat("clipped: norm ", norm,
                                               " above ", train.clip_norm)
                                : absl::StrCat("applied: norm ", norm);
  verdict.gradient_scale =
      static_cast<float>(clip_factor / static_cast<double>(samples));
  verdict.learning_rate =
      static_cast<float>(LearningRate(train.learning_rate, step, total_steps));
  if (train.optimizer.name == "adamw") {
    verdict.bias_correction1 =
        static_cast<float>(BiasCorrection(train.optimizer.beta1, step + 1));
    verdict.bias_correction2_sqrt = static_cast<float>(
        std::sqrt(BiasCorrection(train.optimizer.beta2, step + 1)));
  }
  return verdict;
}

absl::Status SkipCount::OnStep(bool skipped, const std::string& why) {
  in_row_ = skipped ? in_row_ + 1 : 0;
  if (in_row_ < kMostSkippedInRow) return absl::OkStatus();
  return InvalidArgument(
      "the training has diverged: ", in_row_,
      " steps in a row were skipped; the last one: ", why,
      "; lower train.learning_rate.base, or set train.clip_norm");
}

StepGate::StepGate(const TrainSpec& train, int64_t total_steps,
                   std::vector<int> replicas, int64_t first_step)
    : train_(train),
      total_steps_(total_steps),
      replicas_(std::move(replicas)),
      open_step_(first_step) {
  PACELINE_CHECK(!replicas_.empty(), "no stages");
}

absl::StatusOr<std::optional<StepVerdict>> StepGate::Add(
    const StepReport& report) {
  if (report.stage < 0 || report.stage >= std::ssize(replicas_)) {
    return InvalidArgument("no stage ", report.stage, ": the job has ",
                           replicas_.size());
  }
  if (report.replica < 0 || report.replica >= replicas_[report.stage]) {
    return InvalidArgument("no replica ", report.replica, " of stage ",
                           report.stage, ", which has ",
                           replicas_[report.stage]);
  }
  const int64_t oldest =
      last_verdict_.has_value() ? open_step_ - 1 : open_step_;
  if (report.step < oldest) {
    return Aborted("step ", report.step, " was decided long ago: step ",
                   open_step_, " is open");
  }
  if (report.step > open_step_) {
    return FailedPrecondition("step ", report.step, " is beyond step ",
                              open_step_,
                              ", which waits for the reports of stages ",
                              absl::StrJoin(Missing(), ", "));
  }
  if (report.step == open_step_ - 1) {
    PACELINE_RETURN_IF_ERROR(
        CheckRepeat(report, last_reports_.at({report.stage, report.replica})));
    return last_verdict_;
  }
  return AddToOpenStep(report);
}

absl::StatusOr<std::optional<StepVerdict>> StepGate::AddToOpenStep(
    const StepReport& report) {
  const std::pair<int, int> place(report.stage, report.replica);
  if (const auto known = reports_.find(place); known != reports_.end()) {
    PACELINE_RETURN_IF_ERROR(CheckRepeat(report, known->second));
    return std::optional<StepVerdict>();
  }
  if (!reports_.empty() && reports_.begin()->second.samples != report.samples) {
    return InvalidArgument("stage ", report.stage, " counted ", report.samples,
                           " samples in step ", report.step, ", stage ",
                           reports_.begin()->first.first, " ",
                           reports_.begin()->second.samples);
  }
  const auto peer = reports_.lower_bound({report.stage, 0});
  if (peer != reports_.end() && peer->first.first == report.stage &&
      peer->second.result_hash != report.result_hash) {
    return DataLoss(
        "replicas ", peer->first.second, " and ", report.replica, " of stage ",
        report.stage, " differ after ", report.step,
        " steps, in their weights or in the sum of the next gradient: ",
        absl::Hex(peer->second.result_hash, absl::kZeroPad16), " and ",
        absl::Hex(report.result_hash, absl::kZeroPad16),
        ", need one hash: one of their machines computes wrongly");
  }
  reports_.emplace(place, report);
  if (!Missing().empty()) return std::optional<StepVerdict>();

  // The replicas of a stage report the same.
  std::vector<StepReport> sorted;
  for (const auto& [at, kept] : reports_) {
    if (at.second == 0) sorted.push_back(kept);
  }
  last_verdict_ = DecideStep(train_, total_steps_, sorted);
  last_reports_ = std::move(reports_);
  reports_.clear();
  ++open_step_;
  return last_verdict_;
}

std::vector<int> StepGate::Missing() const {
  std::vector<int> missing;
  for (int stage = 0; stage < std::ssize(replicas_); ++stage) {
    const auto first = reports_.lower_bound({stage, 0});
    const auto last = reports_.lower_bound({stage + 1, 0});
    if (std::distance(first, last) < replicas_[stage]) missing.push_back(stage);
  }
  return missing;
}

}  // namespace paceline
