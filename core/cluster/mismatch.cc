#include "core/cluster/mismatch.h"

#include <algorithm>

namespace paceline {

MismatchVerdict DecideMismatch(const View& view,
                               const std::map<MemberId, uint64_t>& states) {
  std::map<uint64_t, size_t> camps;
  for (const auto& [member, hash] : states) {
    if (hash != 0 && Contains(view, member)) ++camps[hash];
  }
  MismatchVerdict verdict;
  if (camps.size() < 2) return verdict;
  for (const auto& [hash, members] : camps) {
    verdict.majority = std::max(verdict.majority, members);
  }
  const auto is_most = [&](const auto& camp) {
    return camp.second == verdict.majority;
  };
  verdict.torn = std::count_if(camps.begin(), camps.end(), is_most) > 1;
  if (verdict.torn) return verdict;
  for (const auto& [member, hash] : states) {
    if (hash != 0 && Contains(view, member) &&
        camps.at(hash) < verdict.majority) {
      verdict.minority.push_back(member);
    }
  }
  return verdict;
}

}  // namespace paceline
