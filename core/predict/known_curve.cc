#include "core/predict/known_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/predict/curve.h"

namespace paceline {
namespace {

// Points at each side from which a sister's worth is judged: agreement further
// away says little about here.
constexpr int kWindow = 7;
// The weight of agreement fades with the distance in points.
constexpr double kFade = 2;
// Measuring noise, relative: sisters that agree better than this are equal.
constexpr double kNoise = 0.01;
// A disagreement larger than this says no more than this.
constexpr double kMostDisagreement = 0.3;
// "No correction" competes as a sister of this prior weight.
constexpr double kPlainPrior = 0.03;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// log of the line from (size a, e^log_a) to (size b, e^log_b) at `size`.
double LineAt(double a, double log_a, double b, double log_b, double size) {
  const double part = (size - a) / (b - a);
  return std::log((1 - part) * std::exp(log_a) + part * std::exp(log_b));
}

double PriorOf(const Sister& sister) {
  return 1.0 / ((1 + sister.differences) * (1 + sister.differences));
}

// Mean absolute difference, near points first, as a weight.
class Agreement {
 public:
  void Add(double difference, int distance) {
    if (std::isnan(difference)) return;
    const double weight = 1 / (1 + distance / kFade);
    sum_ += weight * std::min(std::abs(difference), kMostDisagreement);
    weight_ += weight;
  }
  double Weight(double prior) const {
    const double mean = weight_ > 0 ? sum_ / weight_ : kMostDisagreement;
    return prior / ((mean + kNoise) * (mean + kNoise));
  }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

// A sister at a size of the target; NaN beyond what it has measured.
double SisterAt(const Sister& sister, double size) {
  const double scaled = sister.scale * size;
  if (scaled > sister.curve->sizes.back() ||
      scaled < sister.curve->sizes.front()) {
    return kUnknown;
  }
  return LogSecondsAt(*sister.curve, scaled);
}

}  // namespace

// The measured points around a size, ascending; the size lies between
// gap - 1 and gap.
struct KnownCurve::Near {
  std::vector<double> sizes;
  std::vector<double> logs;
  int gap = 0;

  int points() const { return static_cast<int>(sizes.size()); }
  bool inside() const { return gap > 0 && gap < points(); }
};

namespace {

// How far each point is from the line between its neighbours; NaN for the
// first, the last and the two beside the gap, whose line would cross it.
std::vector<double> Deviations(const std::vector<double>& sizes,
                               const std::vector<double>& logs, int gap) {
  std::vector<double> deviations(sizes.size(), kUnknown);
  for (int p = 1; p + 1 < static_cast<int>(sizes.size()); ++p) {
    if (p == gap || p == gap - 1) continue;
    deviations[p] = logs[p] - LineAt(sizes[p - 1], logs[p - 1], sizes[p + 1],
                                     logs[p + 1], sizes[p]);
  }
  return deviations;
}

std::vector<double> SisterLogs(const Sister& sister,
                               const std::vector<double>& sizes) {
  std::vector<double> logs;
  for (const double size : sizes) logs.push_back(SisterAt(sister, size));
  return logs;
}

}  // namespace

KnownCurve::KnownCurve(const CurveSet& set, const Curve& curve)
    : curve_(curve), sisters_(FindSisters(set, curve, SisterLimits())) {}

double KnownCurve::LogSeconds(double size, int left_out) const {
  return Estimate(NearPoints(size, 0, curve_.points(), left_out), size);
}

double KnownCurve::LogSecondsFrom(double size, int first, int last) const {
  return Estimate(NearPoints(size, first, last, kNone), size);
}

KnownCurve::Near KnownCurve::NearPoints(double size, int first, int last,
                                        int left_out) const {
  const auto begin = curve_.sizes.begin();
  const auto above = static_cast<int>(
      std::lower_bound(begin + first, begin + last, size) - begin);
  Near near;
  const int from = std::max(first, above - kWindow);
  const int to = std::min(last, above + kWindow + (left_out == kNone ? 0 : 1));
  for (int p = from; p < to; ++p) {
    if (p == left_out) continue;
    if (p < above) ++near.gap;
    near.sizes.push_back(curve_.sizes[p]);
    near.logs.push_back(std::log(curve_.seconds[p]));
  }
  return near;
}

double KnownCurve::Estimate(const Near& near, double size) const {
  if (near.gap < near.points() && near.sizes[near.gap] == size) {
    return near.logs[near.gap];
  }
  return near.inside() ? Inside(near, size) : Outside(near, size);
}

double KnownCurve::Inside(const Near& near, double size) const {
  const int low = near.gap - 1;
  const int high = near.gap;
  const auto line = [&](const std::vector<double>& logs) {
    return LineAt(near.sizes[low], logs[low], near.sizes[high], logs[high],
                  size);
  };
  const auto distance = [&](int p) { return p < high ? high - p : p - low; };
  const std::vector<double> own = Deviations(near.sizes, near.logs, near.gap);

  Agreement plain;
  for (int p = 0; p < near.points(); ++p) plain.Add(own[p], distance(p));
  std::vector<Weighted> corrections = {{0, plain.Weight(kPlainPrior)}};
  for (const Sister& sister : sisters_) {
    const std::vector<double> logs = SisterLogs(sister, near.sizes);
    const double correction = SisterAt(sister, size) - line(logs);
    if (std::isnan(correction)) continue;
    const std::vector<double> theirs = Deviations(near.sizes, logs, near.gap);
    Agreement agreement;
    for (int p = 0; p < near.points(); ++p) {
      agreement.Add(own[p] - theirs[p], distance(p));
    }
    corrections.push_back({correction, agreement.Weight(PriorOf(sister))});
  }
  return line(near.logs) + WeightedMedian(std::move(corrections));
}

double KnownCurve::Outside(const Near& near, double size) const {
  const bool below = near.gap == 0;
  const int end = below ? 0 : near.points() - 1;
  Curve own;
  own.sizes = near.sizes;
  for (const double log : near.logs) own.seconds.push_back(std::exp(log));
  std::vector<Weighted> moves = {{LogSecondsAt(own, size) - near.logs[end],
                                  Agreement().Weight(kPlainPrior)}};
  for (const Sister& sister : sisters_) {
    const std::vector<double> logs = SisterLogs(sister, near.sizes);
    const double move = SisterAt(sister, size) - logs[end];
    if (std::isnan(move)) continue;
    Agreement agreement;
    for (int p = 1; p < near.points(); ++p) {
      agreement.Add((near.logs[p] - near.logs[p - 1]) - (logs[p] - logs[p - 1]),
                    below ? p - 1 : end - p);
    }
    moves.push_back({move, agreement.Weight(PriorOf(sister))});
  }
  return near.logs[end] + WeightedMedian(std::move(moves));
}

}  // namespace paceline
