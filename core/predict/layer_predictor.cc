#include "core/predict/layer_predictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
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

// Before anything was measured these exponents are believed: half of the
// time goes with FLOPs, half with bytes; threads help less than they count;
// twice as wide elements take about 1.4 times as long; backward does forward's
// work twice.  Only what differs from this has to be learned.
constexpr std::array<double, 6> kBelief = {0, 0.5, 0.5, -0.7, 0.5, 0.7};

// Penalties: how many records (whose terms are 1 apart) it takes to go half
// the way from the belief, or from the level above, to what they say.
constexpr std::array<double, 6> kCommonPenalties = {1e-6, 1, 1, 1, 1, 1};
constexpr std::array<double, 6> kLevelPenalties = {0.5, 2, 2, 1, 1, 1};

// Levels from the far one to the near one, as NamesOf() has them.
constexpr int kAll = 0;
constexpr int kKind = 1;
constexpr int kDevice = 2;
constexpr int kKey = 4;

// First kinds and devices have an offset each and no slopes.  They are fitted
// in turn, each to what the others leave over, since not every kind was
// measured on every device.
constexpr int kRounds = 8;
constexpr std::array<double, 6> kOffsetPenalties = {1, 1e9, 1e9, 1e9, 1e9, 1e9};

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

// The levels tell layers apart by these names.
std::array<std::string, kLevels> NamesOf(const LayerWork& work) {
  const std::string on_device = absl::StrCat(work.device, "\x1f", work.kind);
  return {"", work.kind, work.device, on_device,
          absl::StrCat(on_device, "\x1f", work.dtype, "\x1f", work.threads,
                       work.pass == LayerPass::kBackward ? "b" : "f")};
}

// Records of one name are left out together to learn how good the predictor
// is when `level` is the nearest that has data.
std::string LeftOutName(const LayerWork& work, size_t index, int level) {
  const auto [all, kind, device, on_device, key] = NamesOf(work);
  const std::string names[] = {absl::StrCat(index % kFolds), key, on_device,
                               kind, device};
  return names[level];
}

absl::Status Check(const LayerWork& work, double seconds) {
  const auto is_amount = [](double x) { return std::isfinite(x) && x >= 0; };
  const std::tuple<const char*, double, bool, const char*> checks[] = {
      {"flops", work.flops, is_amount(work.flops), "a finite number from 0 up"},
      {"bytes", work.bytes, is_amount(work.bytes), "a finite number from 0 up"},
      {"threads", work.threads, work.threads >= 1, "at least 1"},
      {"seconds", seconds, is_amount(seconds) && seconds > 0,
       "a finite number above 0"}};
  for (const auto& [what, got, good, need] : checks) {
    if (good) continue;
    return InvalidArgument("layer of kind '", work.kind, "' on '", work.device,
                           "': ", what, " is ", got, ", need ", need);
  }
  return absl::OkStatus();
}

auto OrderOf(const LayerRecord& record) {
  const LayerWork& work = record.work;
  return std::tie(work.device, work.kind, work.dtype, work.threads, work.pass,
                  work.flops, work.bytes, record.seconds);
}

// Inverts a symmetric positive definite matrix in its place, by elimination.
template <typename Matrix>
void Invert(Matrix& matrix) {
  for (size_t k = 0; k < matrix.size(); ++k) {
    const double pivot = std::exchange(matrix[k][k], 1);
    for (double& value : matrix[k]) value /= pivot;
    for (size_t i = 0; i < matrix.size(); ++i) {
      if (i == k) continue;
      const double factor = std::exchange(matrix[i][k], 0);
      for (size_t j = 0; j < matrix.size(); ++j) {
        matrix[i][j] -= factor * matrix[k][j];
      }
    }
  }
}

template <typename Terms>
double Dot(const Terms& a, const Terms& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

template <typename Terms>
Terms Less(Terms terms, const Terms& center) {
  for (size_t i = 0; i < terms.size(); ++i) terms[i] -= center[i];
  return terms;
}

}  // namespace

LayerPredictor::Ridge::Ridge(const std::vector<Sample>& samples,
                             const Terms& penalties) {
  for (const Sample& sample : samples) {
    for (size_t i = 1; i < center.size(); ++i) {
      center[i] += sample.terms[i] / static_cast<double>(samples.size());
    }
  }
  Terms products = {};
  for (const Sample& sample : samples) {
    const Terms terms = Less(sample.terms, center);
    for (size_t i = 0; i < terms.size(); ++i) {
      products[i] += terms[i] * sample.log_seconds;
      for (size_t j = 0; j < terms.size(); ++j) {
        inverse[i][j] += terms[i] * terms[j];
      }
    }
  }
  for (size_t i = 0; i < center.size(); ++i) inverse[i][i] += penalties[i];
  Invert(inverse);
  for (size_t i = 0; i < center.size(); ++i) {
    coefficients[i] = Dot(inverse[i], products);
  }
}

double LayerPredictor::Ridge::At(const Terms& terms) const {
  return Dot(coefficients, Less(terms, center));
}

double LayerPredictor::Ridge::Leverage(const Terms& terms) const {
  const Terms centered = Less(terms, center);
  double sum = 0;
  for (size_t i = 0; i < centered.size(); ++i) {
    sum += centered[i] * Dot(inverse[i], centered);
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
  for (int round = 0; round < kRounds; ++round) {
    FitLevel(records, kAll, kCommonPenalties);
    FitLevel(records, kKind, kOffsetPenalties);
    FitLevel(records, kDevice, kOffsetPenalties);
  }
  for (int level = kKind; level <= kKey; ++level) {
    FitLevel(records, level, kLevelPenalties);
  }
}

void LayerPredictor::FitLevel(const Records& records, int level,
                              const Terms& penalties) {
  levels_[level].clear();
  std::map<std::string, std::vector<Sample>> samples;
  for (const LayerRecord* record : records) {
    samples[NamesOf(record->work)[level]].push_back(
        {TermsOf(record->work),
         std::log(record->seconds) - Estimate(record->work).log_seconds});
  }
  for (auto& [name, of_name] : samples) {
    Ridge ridge(of_name, penalties);
    if (level == kKey) {
      for (auto& [terms, left] : of_name) left -= ridge.At(terms);
      ridge.leftovers = std::move(of_name);
    }
    levels_[level].emplace(name, std::move(ridge));
  }
}

LayerPredictor::Answer LayerPredictor::Estimate(const LayerWork& work) const {
  const Terms terms = TermsOf(work);
  const std::array<std::string, kLevels> names = NamesOf(work);
  Answer answer{.log_seconds = Dot(kBelief, terms)};
  for (int l = 0; l < kLevels; ++l) {
    const auto at = levels_[l].find(names[l]);
    if (at == levels_[l].end()) continue;
    const Ridge& ridge = at->second;
    answer.log_seconds += ridge.At(terms);
    answer.widening = std::sqrt(1 + ridge.Leverage(terms));
    if (l >= kDevice) answer.level = static_cast<LayerLevel>(kKey - l);
    double near = 0;
    double weight = kNearPrior;
    for (const auto& [other, leftover] : ridge.leftovers) {
      const double apart =
          std::hypot(terms[1] - other[1], terms[2] - other[2]) / kNearWidth;
      const double w = std::exp(-apart * apart / 2);
      near += w * leftover;
      weight += w;
    }
    answer.log_seconds += near / weight;
  }
  if (answer.level == LayerLevel::kSameDevice &&
      !levels_[kKind].contains(work.kind)) {
    answer.level = LayerLevel::kNewKind;
  }
  return answer;
}

std::vector<double> LayerPredictor::SpreadsOf(const Records& records) {
  std::vector<double> errors[kLevels];
  for (int level = 0; level < kLevels; ++level) {
    std::map<std::string, Records> groups;
    for (size_t r = 0; r < records.size(); ++r) {
      groups[LeftOutName(records[r]->work, r, level)].push_back(records[r]);
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
    return InvalidArgument(
        "no layer was measured: nothing to fit; measure some first");
  }
  for (const LayerRecord& record : records) {
    PACELINE_RETURN_IF_ERROR(Check(record.work, record.seconds));
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
  PACELINE_RETURN_IF_ERROR(Check(work, 1));
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
