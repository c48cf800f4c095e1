#include "core/predict/layer_predictor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/predict/curve.h"
#include "core/predict/curve_error.h"

namespace paceline {
namespace {

using Matrix = std::array<LayerTerms, kLayerTerms>;

Matrix Cholesky(const Matrix& matrix) {
  Matrix factor = {};
  for (int i = 0; i < kLayerTerms; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = matrix[i][j];
      for (int k = 0; k < j; ++k) sum -= factor[i][k] * factor[j][k];
      factor[i][j] = i == j ? std::sqrt(sum) : sum / factor[j][j];
    }
  }
  return factor;
}

LayerTerms SolveLower(const Matrix& factor, LayerTerms right) {
  for (int i = 0; i < kLayerTerms; ++i) {
    for (int k = 0; k < i; ++k) right[i] -= factor[i][k] * right[k];
    right[i] /= factor[i][i];
  }
  return right;
}

LayerTerms SolveUpper(const Matrix& factor, LayerTerms right) {
  for (int i = kLayerTerms - 1; i >= 0; --i) {
    for (int k = i + 1; k < kLayerTerms; ++k) {
      right[i] -= factor[k][i] * right[k];
    }
    right[i] /= factor[i][i];
  }
  return right;
}

enum Term { kConstant, kFlops, kBytes, kThreads, kElement, kBackward };

// What is believed before anything was measured, as exponents: half of the
// time goes with FLOPs, half with bytes; threads help less than they count;
// twice as wide elements take about 1.4 times as long; backward does forward's
// work twice.  Only what differs from this has to be learned.
constexpr LayerTerms kBelief = {0, 0.5, 0.5, -0.7, 0.5, 0.7};

// Penalties: how many records (whose terms are 1 apart) it takes to go half
// the way from the belief, or from the level above, to what they say.
constexpr LayerTerms kCommonPenalties = {1e-6, 1, 1, 1, 1, 1};
constexpr LayerTerms kLevelPenalties = {0.5, 2, 2, 1, 1, 1};

constexpr int kRounds = 8;  // of coefficients against offsets

// Records within about a factor 2 of the size share their leftovers.
constexpr double kNearWidth = 0.7;
constexpr double kNearPrior = 0.5;  // records that say "no leftover"

// Work of a few microseconds, which starting a layer takes as well (one core:
// about 1e11 FLOP/s and 1e10 bytes/s): below it, less work saves no time.
constexpr double kSmallFlops = 2e5;
constexpr double kSmallBytes = 2e4;

LayerTerms TermsOf(const LayerWork& work) {
  const double element = ElementBytesOf(work.dtype);
  return {1,
          std::log1p(work.flops / kSmallFlops),
          std::log1p(work.bytes / kSmallBytes),
          std::log(work.threads),
          element > 0 ? std::log(element) : std::log(4.0),
          work.pass == LayerPass::kBackward ? 1.0 : 0.0};
}

double Believed(const LayerTerms& terms) {
  double sum = 0;
  for (int i = 0; i < kLayerTerms; ++i) sum += kBelief[i] * terms[i];
  return sum;
}

double OffsetOf(const std::map<std::string, double>& offsets,
                const std::string& name, double otherwise) {
  const auto at = offsets.find(name);
  return at == offsets.end() ? otherwise : at->second;
}

// Mean leftover a name, pulled to 0 as by one more record.
std::map<std::string, double> OffsetsOf(
    const std::vector<std::pair<std::string, double>>& leftovers) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const auto& [name, value] : leftovers) {
    sums[name].first += value;
    ++sums[name].second;
  }
  std::map<std::string, double> offsets;
  for (const auto& [name, sum] : sums) {
    offsets[name] = sum.first / (sum.second + 1);
  }
  return offsets;
}

double SquaredDistance(const LayerTerms& a, const LayerTerms& b) {
  const double flops = a[kFlops] - b[kFlops];
  const double bytes = a[kBytes] - b[kBytes];
  return flops * flops + bytes * bytes;
}

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

Ridge Ridge::Fit(const std::vector<RidgeSample>& samples,
                 const LayerTerms& penalties) {
  Ridge ridge;
  for (const RidgeSample& sample : samples) {
    for (int i = 1; i < kLayerTerms; ++i) {
      ridge.center_[i] += sample.terms[i] / static_cast<double>(samples.size());
    }
  }
  Matrix squares = {};
  LayerTerms products = {};
  for (const RidgeSample& sample : samples) {
    const LayerTerms terms = ridge.Centered(sample.terms);
    for (int i = 0; i < kLayerTerms; ++i) {
      products[i] += terms[i] * sample.value;
      for (int j = 0; j <= i; ++j) squares[i][j] += terms[i] * terms[j];
    }
  }
  for (int i = 0; i < kLayerTerms; ++i) squares[i][i] += penalties[i];
  ridge.factor_ = Cholesky(squares);
  ridge.coefficients_ =
      SolveUpper(ridge.factor_, SolveLower(ridge.factor_, products));
  return ridge;
}

LayerTerms Ridge::Centered(const LayerTerms& terms) const {
  LayerTerms centered;
  for (int i = 0; i < kLayerTerms; ++i) centered[i] = terms[i] - center_[i];
  return centered;
}

double Ridge::At(const LayerTerms& terms) const {
  const LayerTerms centered = Centered(terms);
  double sum = 0;
  for (int i = 0; i < kLayerTerms; ++i) sum += coefficients_[i] * centered[i];
  return sum;
}

double Ridge::Leverage(const LayerTerms& terms) const {
  double sum = 0;
  for (const double part : SolveLower(factor_, Centered(terms)))
    sum += part * part;
  return sum;
}

absl::string_view LayerLevelName(LayerLevel level) {
  switch (level) {
    case LayerLevel::kSameKey:
      return "key";
    case LayerLevel::kSameKind:
      return "kind";
    case LayerLevel::kSameDevice:
      return "device";
    case LayerLevel::kNewKind:
      return "new kind";
    case LayerLevel::kAllDevices:
      return "all";
  }
  return "unknown";
}

std::string NameAt(const LayerWork& work, LayerLevel level) {
  // Names cannot hold the separator: it is no text.
  constexpr char kBetween[] = "\x1f";
  switch (level) {
    case LayerLevel::kSameKey:
      return absl::StrCat(work.device, kBetween, work.kind, kBetween,
                          work.dtype, kBetween, work.threads, kBetween,
                          work.pass == LayerPass::kBackward ? 1 : 0);
    case LayerLevel::kSameKind:
      return absl::StrCat(work.device, kBetween, work.kind);
    case LayerLevel::kSameDevice:
      return work.device;
    case LayerLevel::kNewKind:
    case LayerLevel::kAllDevices:
      return "";
  }
  return "";
}

LayerModel::LayerModel(std::vector<const LayerRecord*> records) {
  FitCommon(records);
  FitKinds(records);
  for (const LayerLevel level :
       {LayerLevel::kSameDevice, LayerLevel::kSameKind, LayerLevel::kSameKey}) {
    FitLevel(records, level);
  }
}

void LayerModel::FitCommon(const std::vector<const LayerRecord*>& records) {
  for (int round = 0; round < kRounds; ++round) {
    std::vector<RidgeSample> samples;
    for (const LayerRecord* record : records) {
      const LayerTerms terms = TermsOf(record->work);
      samples.push_back(
          {terms, std::log(record->seconds) - Believed(terms) -
                      OffsetOf(kind_offsets_, record->work.kind, 0) -
                      OffsetOf(device_offsets_, record->work.device, 0)});
    }
    common_ = Ridge::Fit(samples, kCommonPenalties);
    std::vector<std::pair<std::string, double>> leftovers;
    const auto collect = [&](bool kinds) {
      leftovers.clear();
      for (const LayerRecord* record : records) {
        const LayerTerms terms = TermsOf(record->work);
        const LayerWork& work = record->work;
        leftovers.emplace_back(
            kinds ? work.kind : work.device,
            std::log(record->seconds) - Believed(terms) - common_.At(terms) -
                (kinds ? OffsetOf(device_offsets_, work.device, 0)
                       : OffsetOf(kind_offsets_, work.kind, 0)));
      }
      return OffsetsOf(leftovers);
    };
    device_offsets_ = collect(false);
    kind_offsets_ = collect(true);
  }
  std::vector<double> offsets;
  for (const auto& [device, offset] : device_offsets_) {
    offsets.push_back(offset);
  }
  median_device_offset_ = Median(offsets);
}

double LayerModel::Common(const LayerWork& work) const {
  const LayerTerms terms = TermsOf(work);
  const auto kind = kinds_.find(work.kind);
  return Believed(terms) + common_.At(terms) +
         OffsetOf(kind_offsets_, work.kind, 0) +
         OffsetOf(device_offsets_, work.device, median_device_offset_) +
         (kind == kinds_.end() ? 0 : kind->second.At(terms));
}

void LayerModel::FitKinds(const std::vector<const LayerRecord*>& records) {
  std::map<std::string, std::vector<RidgeSample>> samples;
  for (const LayerRecord* record : records) {
    samples[record->work.kind].push_back(
        {TermsOf(record->work),
         std::log(record->seconds) - Common(record->work)});
  }
  for (const auto& [kind, of_kind] : samples) {
    kinds_.emplace(kind, Ridge::Fit(of_kind, kLevelPenalties));
  }
}

void LayerModel::FitLevel(const std::vector<const LayerRecord*>& records,
                          LayerLevel level) {
  std::map<std::string, std::vector<RidgeSample>> samples;
  for (const LayerRecord* record : records) {
    samples[NameAt(record->work, level)].push_back(
        {TermsOf(record->work),
         std::log(record->seconds) - Predict(record->work).log_seconds});
  }
  for (const auto& [name, of_name] : samples) {
    Level fitted{.ridge = Ridge::Fit(of_name, kLevelPenalties),
                 .leftovers = {}};
    if (level == LayerLevel::kSameKey) {
      for (const RidgeSample& sample : of_name) {
        fitted.leftovers.push_back(
            {sample.terms, sample.value - fitted.ridge.At(sample.terms)});
      }
    }
    levels_.emplace(name, std::move(fitted));
  }
}

LayerModel::Answer LayerModel::Predict(const LayerWork& work) const {
  const LayerTerms terms = TermsOf(work);
  Answer answer{.log_seconds = Common(work)};
  const Ridge* deepest = &common_;
  for (const LayerLevel level :
       {LayerLevel::kSameDevice, LayerLevel::kSameKind, LayerLevel::kSameKey}) {
    const auto at = levels_.find(NameAt(work, level));
    if (at == levels_.end()) break;
    deepest = &at->second.ridge;
    answer.level = level;
    answer.log_seconds += deepest->At(terms);
    double near = 0;
    double weight = kNearPrior;
    for (const Leftover& leftover : at->second.leftovers) {
      const double w = std::exp(-SquaredDistance(terms, leftover.terms) /
                                (2 * kNearWidth * kNearWidth));
      near += w * leftover.value;
      weight += w;
    }
    answer.log_seconds += near / weight;
  }
  if (answer.level == LayerLevel::kSameDevice &&
      kinds_.find(work.kind) == kinds_.end()) {
    answer.level = LayerLevel::kNewKind;
  }
  answer.widening = std::sqrt(1 + deepest->Leverage(terms));
  return answer;
}

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
    const LayerWork& work) const {
  PACELINE_RETURN_IF_ERROR(CheckWork(work));
  const LayerModel::Answer answer = model_.Predict(work);
  const double factor =
      std::exp(spreads_[static_cast<int>(answer.level)] * answer.widening);
  const double seconds = std::exp(answer.log_seconds);
  return LayerPrediction{.seconds = seconds,
                         .low_seconds = seconds / factor,
                         .high_seconds = seconds * factor,
                         .level = answer.level};
}

}  // namespace paceline
