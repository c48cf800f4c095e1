#include "core/predict/layer_predictor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/statistics.h"
#include "core/predict/curve.h"
#include "core/predict/time_predictor.h"

namespace paceline {
namespace {

constexpr int kLevels = 5;
constexpr absl::string_view kLevelNames[] = {"key", "kind", "device",
                                             "new kind", "all"};
// Factors that are taken for 90 % intervals when too little was left out.
constexpr double kGuessedFactors[] = {1.3, 1.6, 2.5, 4, 6};

// The terms of one layer time: constant, log FLOPs, log bytes, log threads,
// log bytes of an element, is backward.
constexpr int kTerms = 6;
using Terms = std::array<double, kTerms>;

// Before anything was measured these exponents are believed: half of the
// time goes with FLOPs, half with bytes; threads help less than they count;
// twice as wide elements take about 1.4 times as long; backward does forward's
// work twice.  Only what differs from this has to be learned.
constexpr Terms kBelief = {0, 0.5, 0.5, -0.7, 0.5, 0.7};

// Penalties: how many records (whose terms are 1 apart) it takes to go half
// the way from the belief, or from the other levels, to what they say.
constexpr Terms kCommonPenalties = {1e-6, 1, 1, 1, 1, 1};
constexpr Terms kLevelPenalties = {0.5, 2, 2, 1, 1, 1};

// First kinds and devices have an offset each and no slopes.  They are fitted
// in turn, each to what the others leave over, since not every kind was
// measured on every device.
constexpr int kRounds = 8;
constexpr Terms kOffsetPenalties = {1, 1e9, 1e9, 1e9, 1e9, 1e9};

// Records within about a factor 2 of the size share their leftovers.
constexpr double kNearWidth = 0.7;
constexpr double kNearPrior = 0.5;  // records that say "no leftover"

// Work of a few microseconds, which starting a layer takes as well (one core:
// about 1e11 FLOP/s and 1e10 bytes/s): below it, less work saves no time.
constexpr double kSmallFlops = 2e5;
constexpr double kSmallBytes = 2e4;

constexpr size_t kFolds = 8;
constexpr size_t kMostGroups = 24;  // left out at one level
constexpr size_t kLeastErrors = 5;

absl::Status Check(const LayerWork& work, double seconds) {
  // No clock tells a picosecond.
  const std::tuple<const char*, double, double> checks[] = {
      {"flops", work.flops, 0},
      {"bytes", work.bytes, 0},
      {"threads", work.threads, 1},
      {"seconds", seconds, 1e-12}};
  for (const auto& [what, got, least] : checks) {
    if (std::isfinite(got) && got >= least) continue;
    return InvalidArgument("layer of kind '", work.kind, "' on '", work.device,
                           "': ", what, " is ", got, ", need at least ", least,
                           " and a finite number");
  }
  return absl::OkStatus();
}

double Dot(const Terms& a, const Terms& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Terms Product(const std::array<Terms, kTerms>& matrix, const Terms& terms) {
  Terms product;
  for (int i = 0; i < kTerms; ++i) product[i] = Dot(matrix[i], terms);
  return product;
}

struct Sample {
  std::array<std::string, kLevels> names;  // by LayerLevel: of like layers
  Terms terms;
  double log_seconds = 0;  // left over
};
using Samples = std::vector<Sample>;

Sample SampleOf(const LayerWork& work, double seconds) {
  const double element = ElementBytesOf(work.dtype);
  const bool backward = work.pass == LayerPass::kBackward;
  const std::string on_device = absl::StrCat(work.device, "\x1f", work.kind);
  Sample sample{
      .names = {absl::StrCat(on_device, "\x1f", work.dtype, "\x1f",
                             work.threads, backward ? "b" : "f"),
                on_device, work.kind, work.device, ""},
      .terms = {1, std::log1p(work.flops / kSmallFlops),
                std::log1p(work.bytes / kSmallBytes), std::log(work.threads),
                std::log(element > 0 ? element : 4), backward ? 1.0 : 0.0}};
  sample.log_seconds = std::log(seconds) - Dot(kBelief, sample.terms);
  return sample;
}

// Minimises sum (log_seconds - c . t)^2 + sum penalty_i * c_i^2, where t are
// the terms less their mean, the constant excepted: so a leftover that all
// samples share goes to the constant, and not to slopes that run away
// elsewhere.
struct Ridge {
  // Learns the samples one by one (recursive least squares).
  void Fit(const std::vector<Sample*>& samples, const Terms& penalties) {
    *this = Ridge();
    for (int i = 0; i < kTerms; ++i) {
      covariance[i][i] = 1 / penalties[i];
      for (const Sample* sample : samples) {
        if (i == 0) break;
        center[i] += sample->terms[i] / static_cast<double>(samples.size());
      }
    }
    for (const Sample* sample : samples) {
      const Terms gain = Product(covariance, Centered(sample->terms));
      const double share = 1 / (1 + Leverage(sample->terms));
      const double error = sample->log_seconds - At(sample->terms);
      for (int i = 0; i < kTerms; ++i) {
        coefficients[i] += share * error * gain[i];
        for (int j = 0; j < kTerms; ++j) {
          covariance[i][j] -= share * gain[i] * gain[j];
        }
      }
    }
  }

  double At(const Terms& terms) const {
    return Dot(coefficients, Centered(terms));
  }

  // t' (X'X + P)^-1 t: variance of At() over that of one sample.
  // Grows with the distance from what was seen.
  double Leverage(const Terms& terms) const {
    return Dot(Product(covariance, Centered(terms)), Centered(terms));
  }

  Terms Centered(Terms terms) const {
    for (int i = 0; i < kTerms; ++i) terms[i] -= center[i];
    return terms;
  }

  Terms center = {};
  Terms coefficients = {};
  std::array<Terms, kTerms> covariance = {};             // (X'X + P)^-1
  std::vector<std::pair<Terms, double>> leftovers = {};  // of keys only
};

struct Answer {
  double log_seconds = 0;
  LayerLevel level = LayerLevel::kAllDevices;
  // Factor >= 1 on the spread: grows with the distance from what was seen.
  double widening = 1;
};

}  // namespace

absl::string_view LayerLevelName(LayerLevel level) {
  return kLevelNames[static_cast<int>(level)];
}

struct LayerPredictor::Model {
  explicit Model(Samples samples);

  static std::vector<double> SpreadsOf(const Samples& samples);
  void FitLevel(Samples& samples, int level, const Terms& penalties);
  Answer Estimate(const Sample& sample) const;

  std::array<std::map<std::string, Ridge>, kLevels> levels;  // by LayerLevel
  std::vector<double> spreads;  // by LayerLevel: |log error| in kIntervalLevel
};

LayerPredictor::Model::Model(Samples samples) {
  for (int round = 0; round < kRounds; ++round) {
    FitLevel(samples, 4, kCommonPenalties);
    FitLevel(samples, 2, kOffsetPenalties);
    FitLevel(samples, 3, kOffsetPenalties);
  }
  for (const int level : {2, 3, 1, 0}) {
    FitLevel(samples, level, kLevelPenalties);
  }
  for (const Sample& sample : samples) {
    levels[0][sample.names[0]].leftovers.emplace_back(sample.terms,
                                                      sample.log_seconds);
  }
}

void LayerPredictor::Model::FitLevel(Samples& samples, int level,
                                     const Terms& penalties) {
  std::map<std::string, std::vector<Sample*>> named;
  for (Sample& sample : samples) named[sample.names[level]].push_back(&sample);
  for (const auto& [name, members] : named) {
    Ridge& ridge = levels[level][name];
    for (Sample* s : members) s->log_seconds += ridge.At(s->terms);
    ridge.Fit(members, penalties);
    for (Sample* s : members) s->log_seconds -= ridge.At(s->terms);
  }
}

Answer LayerPredictor::Model::Estimate(const Sample& sample) const {
  const Terms& terms = sample.terms;
  Answer answer{.log_seconds = Dot(kBelief, terms)};
  for (int l = kLevels - 1; l >= 0; --l) {
    const auto at = levels[l].find(sample.names[l]);
    if (at == levels[l].end()) continue;
    const Ridge& ridge = at->second;
    answer.log_seconds += ridge.At(terms);
    const auto level = static_cast<LayerLevel>(l);
    // That the kind is known elsewhere makes no new device a known one.
    if (level != LayerLevel::kSameDevice ||
        answer.level == LayerLevel::kNewKind) {
      answer.level = level;
      answer.widening = std::sqrt(1 + ridge.Leverage(terms));
    }
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
  return answer;
}

std::vector<double> LayerPredictor::Model::SpreadsOf(const Samples& samples) {
  std::vector<double> errors[kLevels];
  for (int level = 0; level < kLevels; ++level) {
    // Samples of one name at the next nearer level are left out together to
    // learn how good the predictor is when `level` is the nearest with data.
    const auto left_out_name = [&](size_t s) {
      return level == 0 ? absl::StrCat(s % kFolds)
                        : samples[s].names[level - 1];
    };
    std::set<std::string> names;
    for (size_t s = 0; s < samples.size(); ++s) names.insert(left_out_name(s));
    const size_t taken = std::min(names.size(), kMostGroups);
    for (size_t g = 0; g < taken; ++g) {
      const std::string& name =
          *std::next(names.begin(), g * names.size() / taken);
      Samples group, rest;
      for (size_t s = 0; s < samples.size(); ++s) {
        (left_out_name(s) == name ? group : rest).push_back(samples[s]);
      }
      if (rest.empty()) continue;
      const Model model(std::move(rest));
      for (const Sample& sample : group) {
        const Answer answer = model.Estimate(sample);
        errors[static_cast<int>(answer.level)].push_back(
            std::abs(sample.log_seconds + Dot(kBelief, sample.terms) -
                     answer.log_seconds) /
            answer.widening);
      }
    }
  }
  std::vector<double> spreads;
  for (int level = 0; level < kLevels; ++level) {
    std::vector<double>& of_level = errors[level];
    std::ranges::sort(of_level);
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
  std::ranges::sort(records);
  Samples samples;
  for (const LayerRecord& record : records) {
    samples.push_back(SampleOf(record.work, record.seconds));
  }
  Model model(samples);
  model.spreads = Model::SpreadsOf(samples);
  return LayerPredictor(std::make_shared<const Model>(std::move(model)));
}

absl::StatusOr<LayerPrediction> LayerPredictor::Predict(
    const LayerWork& work) const {
  PACELINE_RETURN_IF_ERROR(Check(work, 1));
  const Answer answer = model_->Estimate(SampleOf(work, 1));
  const double factor = std::exp(
      model_->spreads[static_cast<int>(answer.level)] * answer.widening);
  const double seconds = std::exp(answer.log_seconds);
  return LayerPrediction{.seconds = seconds,
                         .low_seconds = seconds / factor,
                         .high_seconds = seconds * factor,
                         .level = answer.level};
}

}  // namespace paceline
