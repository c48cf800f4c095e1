// Least squares with a penalty, for a handful of coefficients.
#pragma once

#include <array>
#include <vector>

namespace paceline {

// Of one layer time: constant, log FLOPs, log bytes, log threads, log bytes of
// an element, is backward.
constexpr int kLayerTerms = 6;
using LayerTerms = std::array<double, kLayerTerms>;

struct RidgeSample {
  LayerTerms terms = {};
  double value = 0;
};

// Minimises sum (value - c . t)^2 + sum penalty_i * c_i^2, where t are the
// terms less their mean, the constant excepted: so a leftover that all samples
// share goes to the constant, and not to slopes that run away elsewhere.
// Immutable.
class Ridge {
 public:
  // Penalties > 0, so that there is always one answer; without a sample all
  // coefficients are 0.  O(samples).
  static Ridge Fit(const std::vector<RidgeSample>& samples,
                   const LayerTerms& penalties);

  double At(const LayerTerms& terms) const;
  // t' (X'X + P)^-1 t: variance of At() over that of one sample.
  // Grows with the distance from what was seen.
  double Leverage(const LayerTerms& terms) const;

 private:
  LayerTerms Centered(const LayerTerms& terms) const;

  LayerTerms center_ = {};
  LayerTerms coefficients_ = {};
  // Cholesky factor of X'X + P, row by row below the diagonal.
  std::array<LayerTerms, kLayerTerms> factor_ = {};
};

}  // namespace paceline
