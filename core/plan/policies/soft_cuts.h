// Where a chain is cut, made soft.  Pure.
//
// The widths of the stages are a softmax of logits, so that cuts keep their
// order and each stage at least one layer.  A cut at position p sits before
// layer j with weight ~ exp(-(p - j)^2 / (2 width^2)), j among those that leave
// the stages on both sides a layer each.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/cost_table.h"

namespace paceline {

// The few functions that the relaxation needs, out of + - * / and square roots
// alone: those round alike on every machine, the C library's exp does not.

// exp(x) for x <= 0 within 1e-12 of itself; 0 below -700.  2^k exp(r) with |r|
// <= log(2) / 2, the latter by its series.
inline double ExpOf(double x) {
  constexpr double kLog2 = 0.69314718055994530942;
  if (!(x > -700)) return 0;
  const int64_t twos = static_cast<int64_t>(x / kLog2 - 0.5);
  const double rest = x - static_cast<double>(twos) * kLog2;
  double series = 1;
  for (int term = 11; term > 0; --term) series = 1 + series * rest / term;
  // 2^twos as its bits: above -1011, so never subnormal.
  return series *
         std::bit_cast<double>(static_cast<uint64_t>(1023 + twos) << 52);
}

// x^(2^exponent) and x^(1 / 2^exponent), x >= 0.
inline double PowerOf(double x, int exponent) {
  for (int i = 0; i < exponent; ++i) x *= x;
  return x;
}
inline double RootOf(double x, int exponent) {
  for (int i = 0; i < exponent; ++i) x = std::sqrt(x);
  return x;
}

// Probabilities proportional to exp(logits / temperature), into `out`.
inline void Softmax(const double* logits, size_t count, double temperature,
                    double* out) {
  double most = logits[0];
  for (size_t i = 1; i < count; ++i) most = logits[i] > most ? logits[i] : most;
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    out[i] = ExpOf((logits[i] - most) / temperature);
    total += out[i];
  }
  for (size_t i = 0; i < count; ++i) out[i] /= total;
}

// The way back: adds to `to_logits` what `to_out` means for them.
inline void SoftmaxBack(const double* out, const double* to_out, size_t count,
                        double temperature, double* to_logits) {
  double mean = 0;
  for (size_t i = 0; i < count; ++i) mean += out[i] * to_out[i];
  for (size_t i = 0; i < count; ++i) {
    to_logits[i] += out[i] * (to_out[i] - mean) / temperature;
  }
}

// Thread-compatible.  The table must outlive it.
class SoftCuts {
 public:
  // 1 <= stages <= layers.
  SoftCuts(const CostTable& table, int stages);

  // The features of a cut are the sums over the layers before it (seconds by
  // rows of the table, and bytes as StageAmounts has them), and the bytes over
  // it.
  int features() const { return rows_ + 5; }
  int SecondsFeature(int row) const { return row; }
  int ParametersFeature() const { return rows_; }
  int KeptFeature() const { return rows_ + 1; }
  int BytesFeature() const { return rows_ + 2; }
  int FixedFeature() const { return rows_ + 3; }
  int OutputsFeature() const { return rows_ + 4; }

  // logits: [stages].  O(stages x features x min(width, layers)).
  void Forward(const double* logits, double width);

  // Means under the weights; cuts 0 and `stages` are the ends of the chain.
  double Mean(int feature, int cut) const { return mean_[At(feature, cut)]; }
  size_t At(int feature, int cut) const {
    return static_cast<size_t>(feature) * static_cast<size_t>(stages_ + 1) +
           static_cast<size_t>(cut);
  }

  // to_mean: [features x (stages + 1)], by At().  Adds to gradient [stages].
  void Backward(const std::vector<double>& to_mean, double* gradient);

  // The nearest layer to each cut, ascending: [stages + 1], from 0 to layers.
  std::vector<int> Nearest(const double* logits);

 private:
  double Feature(int feature, int layer) const;
  void Place(const double* logits);
  void Soften(int cut, double width);

  const CostTable& table_;
  const int stages_;
  const int layers_;
  const int rows_;
  std::vector<double> widths_;              // [stages]: parts of what is free
  std::vector<double> position_;            // [stages + 1]
  std::vector<double> mean_, slope_;        // [features][stages + 1]
  std::vector<double> weight_, to_widths_;  // scratch
};

}  // namespace paceline
