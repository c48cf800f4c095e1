// Sums of bytes that a hostile spec must not wrap around into a number that
// fits.
#pragma once

#include <cstdint>
#include <limits>

namespace paceline {

// INT64_MAX when the sum (product) does not fit; arguments at least 0.
inline int64_t AddBytes(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum)
             ? std::numeric_limits<int64_t>::max()
             : sum;
}

inline int64_t MultiplyBytes(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<int64_t>::max()
             : product;
}

}  // namespace paceline
