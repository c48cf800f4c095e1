#include "core/round/gossip.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/random.h"

namespace paceline {
namespace {

// Keeps these draws apart from others of (seed, small number).
constexpr uint64_t kGossipStream = 0x676f73736970;  // "gossip"

}  // namespace

std::vector<std::pair<MemberId, MemberId>> GossipPairs(
    const std::vector<MemberId>& members, uint64_t seed, int64_t step) {
  std::vector<MemberId> order = members;
  SplitMix64 random(
      MixSeed({kGossipStream, seed, static_cast<uint64_t>(step)}));
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  std::vector<std::pair<MemberId, MemberId>> pairs;
  for (size_t i = 0; i + 1 < order.size(); i += 2) {
    pairs.push_back(std::minmax(order[i], order[i + 1]));
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

std::optional<MemberId> GossipPartner(const std::vector<MemberId>& members,
                                      uint64_t seed, int64_t step,
                                      const MemberId& self) {
  for (const auto& [first, second] : GossipPairs(members, seed, step)) {
    if (first == self) return second;
    if (second == self) return first;
  }
  return std::nullopt;
}

void AverageWith(absl::Span<float> mine, absl::Span<const float> theirs) {
  PACELINE_CHECK(mine.size() == theirs.size(),
                 absl::StrCat("mine=", mine.size(), " theirs=", theirs.size()));
  for (size_t i = 0; i < mine.size(); ++i) {
    const float sum = mine[i] + theirs[i];
    const float half = 0.5f * mine[i] + 0.5f * theirs[i];
    mine[i] = std::isinf(sum) ? half : 0.5f * sum;
  }
}

}  // namespace paceline
