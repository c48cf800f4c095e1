#include "core/predict/layer_predictor.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/predict/curve.h"
#include "core/predict/time_predictor.h"

namespace paceline {
namespace {

constexpr absl::string_view kLevelNames[] = {"key", "kind", "device",
                                             "new kind", "all"};
constexpr int kLevels = 5;
// Factors that are taken for 90 % intervals when too little was left out.
constexpr double kGuessedFactors[kLevels] = {1.3, 1.6, 2.5, 4, 6};

// The places of terms.
constexpr int kFlops = 1;
constexpr int kBytes = 2;

// Before anything was measured these exponents are believed: half of the
// time goes with FLOPs, half with bytes; threads help less than they count;
// twice as wide elements take about 1.4 times as long; backward does forward's
// work twice.  Only what differs from this has to be learned.
constexpr std::array<double, 6> kBelief = {0, 0.5, 0.5, -0.7, 0.5, 0.7};

// Penalties: how many records (whose terms are 1 apart) it takes to go half
// the way from the belief, or from the level above, to what they say.
constexpr std::array<double, 6> kCommonPenalties = {1e-6, 1, 1, 1, 1, 1};
constexpr std::array<double, 6> kLevelPenalties = {0.5, 2, 2, 1, 1, 1};

constexpr int kRounds = 8;  // of coefficients against offsets

// Records within about a factor 2 of the size share their leftovers.
constexpr double kNearWidth = 0.7;
constexpr double kNearPrior = 0.5;  // records that say "no leftover"

// Work of a few microseconds, which starting a layer takes as well (one core:
// about 1e11 FLOP/s and 1e10 bytes/s): below it, less work saves no time.
constexpr double kSmallFlops = 2e5;
constexpr double kSmallBytes = 2e4;

constexpr int kFolds = 8;
constexpr size_t kMostGroups = 24;  // left out at one level
constexpr size_t kLeastErrors = 5;

// Levels tell layers apart by these names.  Names of two levels do not meet:
// text cannot hold the separator.
constexpr char kBetween[] = "\x1f";
std::string KindName(const LayerWork& work) {
  return absl::StrCat(kBetween, work.kind);
}
std::string DeviceName(const LayerWork& work) { return work.device; }
std::string DeviceKindName(const LayerWork& work) {
  return absl::StrCat(work.device, kBetween, work.kind);
}
std::string KeyName(const LayerWork& work) {
  return absl::StrCat(DeviceKindName(work), kBetween, work.dtype, kBetween,
                      work.threads, kBetween,
                      work.pass == LayerPass::kBackward ? 1 : 0);
}

// Records of one name are left out together to learn how good the predictor
// is when `level` is the nearest that has data.
std::string LeftOutName(const LayerWork& work, size_t index, LayerLevel level) {
  const std::string names[kLevels] = {absl::StrCat(index % kFolds),
                                      KeyName(work), DeviceKindName(work),
                                      work.kind, work.device};
  return names[static_cast<int>(level)];
}

double OffsetOf(const std::map<std::string, double>& offsets,
                const std::string& name, double otherwise) {
  const auto at = offsets.find(name);
  return at == offsets.end() ? otherwise : at->second;
}

absl::Status BadLayer(const LayerWork& work, absl::string_view what, double got,
                      absl::string_view need) {
  return absl::InvalidArgumentError(
      absl::StrCat("layer of kind '", work.kind, "' on '", work.device,
                   "': ", what, " is ", got, ", need ", need));
}

absl::Status CheckWork(const LayerWork& work) {
  for (const auto& [what, amount] :
       {std::pair("flops", work.flops), std::pair("bytes", work.bytes)}) {
    if (!std::isfinite(amount) || amount < 0) {
      return BadLayer(work, what, amount, "a finite number from 0 up");
    }
  }
  if (work.threads >= 1) return absl::OkStatus();
  return BadLayer(work, "threads", work.threads, "at least 1");
}

absl::Status CheckRecord(const LayerRecord& record) {
  PACELINE_RETURN_IF_ERROR(CheckWork(record.work));
  if (std::isfinite(record.seconds) && record.seconds > 0) {
    return absl::OkStatus();
  }
  return BadLayer(record.work, "seconds", record.seconds,
                  "a finite number above 0");
}

auto OrderOf(const LayerRecord& record) {
  const LayerWork& work = record.work;
  return std::tie(work.device, work.kind, work.dtype, work.threads, work.pass,
                  work.flops, work.bytes, record.seconds);
}

// Inverts a symmetric positive definite matrix by elimination.
template <typename Matrix>
Matrix InverseOf(Matrix matrix) {
  Matrix inverse = {};
  for (size_t i = 0; i < matrix.size(); ++i) inverse[i][i] = 1;
  for (size_t k = 0; k < matrix.size(); ++k) {
    const double pivot = matrix[k][k];
    for (size_t j = 0; j < matrix.size(); ++j) {
      matrix[k][j] /= pivot;
      inverse[k][j] /= pivot;
    }
    for (size_t i = 0; i < matrix.size(); ++i) {
      const double factor = matrix[i][k];
      if (i == k || factor == 0) continue;
      for (size_t j = 0; j < matrix.size(); ++j) {
        matrix[i][j] -= factor * matrix[k][j];
        inverse[i][j] -= factor * inverse[k][j];
      }
    }
  }
  return inverse;
}

}  // namespace

LayerPredictor::Ridge::Ridge(const Samples& samples, const Terms& penalties) {
  for (const auto& [terms, value] : samples) {
    for (int i = 1; i < kTerms; ++i) {
      center[i] += terms[i] / static_cast<double>(samples.size());
    }
  }
  std::array<Terms, kTerms> squares = {};
  Terms products = {};
  for (const auto& [terms, value] : samples) {
    for (int i = 0; i < kTerms; ++i) {
      const double centered = terms[i] - center[i];
      products[i] += centered * value;
      for (int j = 0; j < kTerms; ++j) {
        squares[i][j] += centered * (terms[j] - center[j]);
      }
    }
  }
  for (int i = 0; i < kTerms; ++i) squares[i][i] += penalties[i];
  inverse = InverseOf(squares);
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) {
      coefficients[i] += inverse[i][j] * products[j];
    }
  }
}

double LayerPredictor::Ridge::At(const Terms& terms) const {
  double sum = 0;
  for (int i = 0; i < kTerms; ++i) {
    sum += coefficients[i] * (terms[i] - center[i]);
  }
  return sum;
}

double LayerPredictor::Ridge::Leverage(const Terms& terms) const {
  double sum = 0;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) {
      sum += (terms[i] - center[i]) * inverse[i][j] * (terms[j] - center[j]);
    }
  }
  return sum;
}

absl::string_view LayerLevelName(LayerLevel level) {
  return kLevelNames[static_cast<int>(level)];
}

LayerPredictor::Terms LayerPredictor::TermsOf(const LayerWork& work) {
  const double element = ElementBytesOf(work.dtype);
  return {1,
          std::log1p(work.flops / kSmallFlops),
          std::log1p(work.bytes / kSmallBytes),
          std::log(work.threads),
          element > 0 ? std::log(element) : std::log(4.0),
          work.pass == LayerPass::kBackward ? 1.0 : 0.0};
}

LayerPredictor::LayerPredictor(const Records& records) {
  FitCommon(records);
  FitLevel(records, KindName, false);
  FitLevel(records, DeviceName, false);
  FitLevel(records, DeviceKindName, false);
  FitLevel(records, KeyName, true);
}

// Coefficients and offsets in turn, each from what the others leave over.
void LayerPredictor::FitCommon(const Records& records) {
  const auto leftover = [&](const LayerRecord* record) {
    return std::log(record->seconds) -
           Common(record->work, TermsOf(record->work));
  };
  // The mean leftover a name, pulled to 0 as by one more record.
  const auto fit_offsets = [&](std::string LayerWork::*name,
                               std::map<std::string, double>& offsets) {
    offsets.clear();
    std::map<std::string, std::pair<double, int>> sums;
    for (const LayerRecord* record : records) {
      auto& [sum, count] = sums[record->work.*name];
      sum += leftover(record);
      ++count;
    }
    for (const auto& [key, sum] : sums) {
      offsets[key] = sum.first / (sum.second + 1);
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    common_ = Ridge();
    Samples samples;
    for (const LayerRecord* record : records) {
      samples.emplace_back(TermsOf(record->work), leftover(record));
    }
    common_ = Ridge(samples, kCommonPenalties);
    fit_offsets(&LayerWork::device, device_offsets_);
    fit_offsets(&LayerWork::kind, kind_offsets_);
  }
  std::vector<double> offsets;
  for (const auto& [device, offset] : device_offsets_) {
    offsets.push_back(offset);
  }
  typical_device_offset_ = Median(offsets);
}

void LayerPredictor::FitLevel(const Records& records,
                              std::string (*name)(const LayerWork&),
                              bool keep_leftovers) {
  std::map<std::string, Samples> samples;
  for (const LayerRecord* record : records) {
    samples[name(record->work)].emplace_back(
        TermsOf(record->work),
        std::log(record->seconds) - Estimate(record->work).log_seconds);
  }
  for (auto& [key, of_key] : samples) {
    Level level{.ridge = Ridge(of_key, kLevelPenalties)};
    if (keep_leftovers) {
      for (auto& [terms, value] : of_key) value -= level.ridge.At(terms);
      level.leftovers = std::move(of_key);
    }
    levels_.emplace(key, std::move(level));
  }
}

double LayerPredictor::Common(const LayerWork& work, const Terms& terms) const {
  double believed = 0;
  for (int i = 0; i < kTerms; ++i) believed += kBelief[i] * terms[i];
  return believed + common_.At(terms) + OffsetOf(kind_offsets_, work.kind, 0) +
         OffsetOf(device_offsets_, work.device, typical_device_offset_);
}

LayerPredictor::Answer LayerPredictor::Estimate(const LayerWork& work) const {
  const Terms terms = TermsOf(work);
  Answer answer{.log_seconds = Common(work, terms)};
  const auto kind = levels_.find(KindName(work));
  if (kind != levels_.end()) answer.log_seconds += kind->second.ridge.At(terms);
  const Ridge* deepest = &common_;
  for (const auto& [level, name] :
       {std::pair(LayerLevel::kSameDevice, DeviceName(work)),
        std::pair(LayerLevel::kSameKind, DeviceKindName(work)),
        std::pair(LayerLevel::kSameKey, KeyName(work))}) {
    const auto at = levels_.find(name);
    if (at == levels_.end()) break;
    deepest = &at->second.ridge;
    answer.level = level;
    answer.log_seconds += deepest->At(terms);
    double near = 0;
    double weight = kNearPrior;
    for (const auto& [other, leftover] : at->second.leftovers) {
      const double flops = terms[kFlops] - other[kFlops];
      const double bytes = terms[kBytes] - other[kBytes];
      const double w = std::exp(-(flops * flops + bytes * bytes) /
                                (2 * kNearWidth * kNearWidth));
      near += w * leftover;
      weight += w;
    }
    answer.log_seconds += near / weight;
  }
  if (answer.level == LayerLevel::kSameDevice && kind == levels_.end()) {
    answer.level = LayerLevel::kNewKind;
  }
  answer.widening = std::sqrt(1 + deepest->Leverage(terms));
  return answer;
}

std::vector<double> LayerPredictor::SpreadsOf(const Records& records) {
  std::vector<double> errors[kLevels];
  for (int level = 0; level < kLevels; ++level) {
    std::map<std::string, Records> groups;
    for (size_t r = 0; r < records.size(); ++r) {
      groups[LeftOutName(records[r]->work, r, static_cast<LayerLevel>(level))]
          .push_back(records[r]);
    }
    const size_t taken = std::min(groups.size(), kMostGroups);
    for (size_t g = 0; g < taken; ++g) {
      const Records& group =
          std::next(groups.begin(), g * groups.size() / taken)->second;
      Records rest;
      std::set_difference(records.begin(), records.end(), group.begin(),
                          group.end(), std::back_inserter(rest));
      if (rest.empty()) continue;
      const LayerPredictor model(rest);
      for (const LayerRecord* record : group) {
        const Answer answer = model.Estimate(record->work);
        errors[static_cast<int>(answer.level)].push_back(
            std::abs(std::log(record->seconds) - answer.log_seconds) /
            answer.widening);
      }
    }
  }
  std::vector<double> spreads;
  for (int level = 0; level < kLevels; ++level) {
    std::vector<double>& of_level = errors[level];
    std::sort(of_level.begin(), of_level.end());
    const double spread = of_level.size() < kLeastErrors
                              ? std::log(kGuessedFactors[level])
                              : Quantile(of_level, kIntervalLevel);
    // A level that knows less is never surer.
    spreads.push_back(spreads.empty() ? spread
                                      : std::max(spread, spreads.back()));
  }
  return spreads;
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
  LayerPredictor predictor(pointers);
  predictor.spreads_ = SpreadsOf(pointers);
  return predictor;
}

absl::StatusOr<LayerPrediction> LayerPredictor::Predict(
    const LayerWork& work) const {
  PACELINE_RETURN_IF_ERROR(CheckWork(work));
  const Answer answer = Estimate(work);
  const double factor =
      std::exp(spreads_[static_cast<int>(answer.level)] * answer.widening);
  const double seconds = std::exp(answer.log_seconds);
  return LayerPrediction{.seconds = seconds,
                         .low_seconds = seconds / factor,
                         .high_seconds = seconds * factor,
                         .level = answer.level};
}

}  // namespace paceline
