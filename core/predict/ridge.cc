#include "core/predict/ridge.h"

#include <cmath>

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

}  // namespace paceline
