// The few functions that the relaxation needs, out of + - * / and square roots
// alone: those round alike on every machine, the C library's exp does not.
// Pure.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace paceline {

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

}  // namespace paceline
