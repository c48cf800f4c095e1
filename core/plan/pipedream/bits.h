// Sets of numbers as bits.  Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace paceline {

inline constexpr int kBits = 64;

using Bits = std::vector<uint64_t>;

inline bool Has(const uint64_t* bits, int number) {
  return (bits[number / kBits] >> (number % kBits) & 1) != 0;
}

inline void Add(uint64_t* bits, int number) {
  bits[number / kBits] |= uint64_t{1} << (number % kBits);
}

}  // namespace paceline
