#include "core/predict/layer_model.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/predict/curve.h"
#include "core/predict/weighted.h"

namespace paceline {
namespace {

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

}  // namespace

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

LayerModel::Answer LayerModel::Predict(
    const LayerWork& work, std::optional<double> relative_speed) const {
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
  if (answer.level == LayerLevel::kAllDevices && relative_speed.has_value()) {
    answer.log_seconds -= std::log(*relative_speed);
  }
  answer.widening = std::sqrt(1 + deepest->Leverage(terms));
  return answer;
}

}  // namespace paceline
