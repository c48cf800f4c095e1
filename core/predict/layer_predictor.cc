#include "core/predict/layer_predictor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/predict/interval.h"
#include "core/predict/weighted.h"

namespace paceline {
namespace {

constexpr int kFolds = 8;
constexpr int kMostGroups = 24;  // left out at one level
constexpr size_t kLeastErrors = 5;
// Factors that are taken for 90 % intervals when too little was left out.
constexpr double kGuessedFactors[kLayerLevels] = {1.3, 1.6, 2.5, 4, 6};

using Records = std::vector<const LayerRecord*>;

absl::Status CheckWork(const LayerWork& work) {
  const auto bad = [&](absl::string_view what, double got,
                       absl::string_view need) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer of kind '", work.kind, "' on '", work.device,
                     "': ", what, " is ", got, ", need ", need));
  };
  constexpr absl::string_view kCount = "a finite number from 0 up";
  if (!std::isfinite(work.flops) || work.flops < 0) {
    return bad("flops", work.flops, kCount);
  }
  if (!std::isfinite(work.bytes) || work.bytes < 0) {
    return bad("bytes", work.bytes, kCount);
  }
  if (work.threads < 1) return bad("threads", work.threads, "at least 1");
  return absl::OkStatus();
}

absl::Status CheckRecord(const LayerRecord& record) {
  PACELINE_RETURN_IF_ERROR(CheckWork(record.work));
  if (std::isfinite(record.seconds) && record.seconds > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "layer of kind '", record.work.kind, "' on '", record.work.device,
      "': seconds is ", record.seconds, ", need a finite number above 0"));
}

auto OrderOf(const LayerRecord& record) {
  const LayerWork& work = record.work;
  return std::tie(work.device, work.kind, work.dtype, work.threads, work.pass,
                  work.flops, work.bytes, record.seconds);
}

// Records of one name are left out together to learn how good the predictor
// is when `level` is the nearest that has data.
std::string LeftOutName(const LayerWork& work, size_t index, LayerLevel level) {
  switch (level) {
    case LayerLevel::kSameKey:
      return absl::StrCat(index % kFolds);
    case LayerLevel::kSameKind:
      return NameAt(work, LayerLevel::kSameKey);
    case LayerLevel::kSameDevice:
      return NameAt(work, LayerLevel::kSameKind);
    case LayerLevel::kNewKind:
      return work.kind;
    case LayerLevel::kAllDevices:
      return work.device;
  }
  return "";
}

// Indices of records, at most kMostGroups times.
std::vector<std::vector<int>> GroupsFor(const Records& records,
                                        LayerLevel level) {
  std::map<std::string, std::vector<int>> named;
  for (size_t r = 0; r < records.size(); ++r) {
    named[LeftOutName(records[r]->work, r, level)].push_back(
        static_cast<int>(r));
  }
  std::vector<std::vector<int>> all;
  for (auto& [name, group] : named) all.push_back(std::move(group));
  const size_t taken = std::min<size_t>(all.size(), kMostGroups);
  std::vector<std::vector<int>> groups;
  for (size_t g = 0; g < taken; ++g) {
    groups.push_back(std::move(all[g * all.size() / taken]));
  }
  return groups;
}

using Errors = std::array<std::vector<double>, kLayerLevels>;

void LeaveOut(const Records& records, const std::vector<int>& group,
              Errors& errors) {
  if (group.size() == records.size()) return;
  Records rest;
  size_t next = 0;
  for (size_t r = 0; r < records.size(); ++r) {
    if (next < group.size() && group[next] == static_cast<int>(r)) {
      ++next;
    } else {
      rest.push_back(records[r]);
    }
  }
  const LayerModel model(rest);
  for (const int r : group) {
    const LayerModel::Answer answer = model.Predict(records[r]->work);
    errors[static_cast<int>(answer.level)].push_back(
        std::abs(std::log(records[r]->seconds) - answer.log_seconds) /
        answer.widening);
  }
}

std::vector<double> SpreadsOf(const Records& records) {
  Errors errors;
  for (int level = 0; level < kLayerLevels; ++level) {
    for (const std::vector<int>& group :
         GroupsFor(records, static_cast<LayerLevel>(level))) {
      LeaveOut(records, group, errors);
    }
  }
  std::vector<double> spreads;
  for (int level = 0; level < kLayerLevels; ++level) {
    std::vector<double>& of_level = errors[level];
    std::sort(of_level.begin(), of_level.end());
    const double spread = of_level.size() < kLeastErrors
                              ? std::log(kGuessedFactors[level])
                              : Quantile(of_level, kIntervalLevel);
    // Who knows less is never surer.
    spreads.push_back(spreads.empty() ? spread
                                      : std::max(spread, spreads.back()));
  }
  return spreads;
}

}  // namespace

absl::StatusOr<LayerPredictor> LayerPredictor::Fit(
    std::vector<LayerRecord> records) {
  if (records.empty()) {
    return absl::InvalidArgumentError(
        "no layer was measured: nothing to fit; measure some first");
  }
  for (const LayerRecord& record : records) {
    PACELINE_RETURN_IF_ERROR(CheckRecord(record));
  }
  std::sort(records.begin(), records.end(),
            [](const LayerRecord& a, const LayerRecord& b) {
              return OrderOf(a) < OrderOf(b);
            });
  Records pointers;
  for (const LayerRecord& record : records) pointers.push_back(&record);
  return LayerPredictor(LayerModel(pointers), SpreadsOf(pointers));
}

absl::StatusOr<LayerPrediction> LayerPredictor::Predict(
    const LayerWork& work, std::optional<double> relative_speed) const {
  PACELINE_RETURN_IF_ERROR(CheckWork(work));
  if (relative_speed.has_value() &&
      !(std::isfinite(*relative_speed) && *relative_speed > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the relative speed of '", work.device, "' is ",
                     *relative_speed, ", need a finite number above 0"));
  }
  const LayerModel::Answer answer = model_.Predict(work, relative_speed);
  const double factor =
      std::exp(spreads_[static_cast<int>(answer.level)] * answer.widening);
  const double seconds = std::exp(answer.log_seconds);
  return LayerPrediction{.seconds = seconds,
                         .low_seconds = seconds / factor,
                         .high_seconds = seconds * factor,
                         .level = answer.level};
}

}  // namespace paceline
