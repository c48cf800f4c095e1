// The few functions that the relaxation needs, out of + - * / and square roots
// alone: those round alike on every machine, the C library's exp does not.
// Pure.
#pragma once

#include <cmath>
#include <cstddef>

namespace paceline {

// exp(x) for x <= 0 within 1e-12 of itself; 0 below -700.  By squaring:
// exp(x) = exp(x / 1024)^1024, the inner one by its series.
inline double ExpOf(double x) {
  if (!(x > -700)) return 0;
  const double small = x / 1024;
  double power =
      1 +
      small *
          (1 + small * (1.0 / 2 +
                        small * (1.0 / 6 + small * (1.0 / 24 + small / 120))));
  for (int i = 0; i < 10; ++i) power *= power;
  return power;
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

}  // namespace paceline
