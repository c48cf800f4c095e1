// Randomness that is the same on every machine: std::shuffle and the standard
// distributions are not.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace paceline {

// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number
// generators", figure 14).  Thread-compatible.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Passes over as many numbers as that many calls of Next() would give.  O(1).
  void Skip(uint64_t count) { state_ += count * 0x9e3779b97f4a7c15u; }

  // Uniform in [0, bound) by Lemire's multiply-shift without rejection: the
  // bias is below bound / 2^64.  bound > 0.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

  // Uniform in [0, 1) with 24 bits, exactly representable as float.
  float Unit() { return static_cast<float>(Next() >> 40) * 0x1.0p-24f; }

 private:
  uint64_t state_;
};

// One seed out of several numbers, e.g. (seed, step, micro_batch, layer).
// The order of the words matters.
inline uint64_t MixSeed(std::initializer_list<uint64_t> words) {
  uint64_t seed = 0x5061636c696e65u;
  for (const uint64_t word : words) seed = SplitMix64(seed ^ word).Next();
  return seed;
}

}  // namespace paceline
