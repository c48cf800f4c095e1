#include "client/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text.h"

namespace paceline {
namespace {

constexpr int kBarColumns = 24;
constexpr int kLeastBarColumns = 4;  // a shorter one says nothing
constexpr absl::Duration kPlainPeriod = absl::Seconds(10);

bool Computes(const JobView& job) {
  return job.phase == "training" || job.phase == "predicting";
}

double ShareDone(const JobView& job) {
  if (job.steps <= 0) return 0;
  return std::clamp(static_cast<double>(job.step) / job.steps, 0.0, 1.0);
}

std::string Bar(double share, int columns, bool unicode) {
  const int filled = static_cast<int>(share * columns);
  std::string bar = "[";
  for (int i = 0; i < columns; ++i) {
    if (i < filled) {
      bar += unicode ? "█" : "#";
    } else {
      bar += unicode ? "·" : ".";
    }
  }
  return bar + "]";
}

// `parts` with the bar behind the first where it is wanted: what they say comes
// first where columns are few.
std::string Line(const JobView& job, std::vector<std::string> parts,
                 const ProgressStyle& style) {
  if (!style.bar || job.steps <= 0) return absl::StrJoin(parts, "  ");
  int columns = kBarColumns;
  if (style.columns > 0) {
    const int taken = DisplayWidth(absl::StrJoin(parts, "  "));
    // Brackets and two blanks.
    columns = std::min(columns, style.columns - taken - 4);
  }
  if (columns >= kLeastBarColumns) {
    parts.insert(parts.begin() + 1,
                 Bar(ShareDone(job), columns, style.unicode));
  }
  return absl::StrJoin(parts, "  ");
}

}  // namespace

std::optional<absl::Duration> TimeLeft(const JobView& job) {
  if (job.steps <= 0 || job.step <= 0 || !(job.samples_per_second > 0)) {
    return std::nullopt;
  }
  const double samples = static_cast<double>(job.steps - job.step) *
                         static_cast<double>(job.spec.train.batch);
  return absl::Seconds(std::max(0.0, samples / job.samples_per_second));
}

std::string ProgressLine(const JobView& job, std::optional<LossPoint> newest,
                         const ProgressStyle& style) {
  std::vector<std::string> parts = {absl::StrCat("job ", job.id)};
  if (job.state != JobState::kRunning) {
    parts.emplace_back(JobStateName(job.state));
    if (!job.why.empty()) parts.push_back(Printable(job.why));
    return absl::StrJoin(parts, "  ");
  }
  if (job.step == 0 && !Computes(job)) {
    parts.push_back(job.phase.empty() ? "starting" : Printable(job.phase));
    return Line(job, std::move(parts), style);
  }
  const char* const unit = IsInference(job.spec) ? "micro-batch" : "step";
  parts.push_back(absl::StrCat(
      unit, " ", job.step, job.steps > 0 ? absl::StrCat("/", job.steps) : ""));
  if (job.samples_per_second > 0) {
    parts.push_back(
        absl::StrCat(HumanRate(job.samples_per_second), " samples/s"));
  }
  if (newest.has_value()) {
    parts.push_back(newest->skipped
                        ? std::string("skipped")
                        : absl::StrFormat("loss %.4f", newest->loss));
  }
  if (!Computes(job) && !job.phase.empty()) {
    parts.push_back(Printable(job.phase));
  } else if (const auto left = TimeLeft(job); left.has_value()) {
    parts.push_back(absl::StrCat(HumanDuration(*left), " left"));
  }
  return Line(job, std::move(parts), style);
}

bool PlainProgress::OnProgress(const JobView& job, Instant now) {
  const int64_t tenth = static_cast<int64_t>(ShareDone(job) * 10);
  const bool changed = !printed_ || job.state != state_ ||
                       job.phase != phase_ ||
                       (job.state == JobState::kQueued && job.why != why_);
  const bool due =
      tenth > tenth_ || (job.step > step_ && now - printed_at_ >= kPlainPeriod);
  if (!changed && !due) return false;
  printed_ = true;
  printed_at_ = now;
  state_ = job.state;
  phase_ = job.phase;
  why_ = job.why;
  step_ = job.step;
  tenth_ = tenth;
  return true;
}

}  // namespace paceline
