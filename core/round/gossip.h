// Gossip: members average their parameters in pairs instead of agreeing on a
// gradient (DESIGN 7.11).  It promises convergence, not equality.  Pure.
//
// Source: randomised pairwise averaging, Boyd et al. 2006 ("Randomized gossip
// algorithms"); with gradient steps between, as in AD-PSGD of Lian et al. 2018,
// but the pairs of a step are disjoint, and each step's are drawn anew, so that
// nobody waits for two partners.  An averaging keeps the sum of all members'
// parameters, up to rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/round/view.h"

namespace paceline {

// Disjoint pairs of `members`, which are sorted by id, drawn from (seed, step):
// the same on every member.  The first of a pair is the lower one; pairs are in
// the order of their first.  With an odd number of members one is left out.
// O(n log n).
std::vector<std::pair<MemberId, MemberId>> GossipPairs(
    const std::vector<MemberId>& members, uint64_t seed, int64_t step);

// Whom `self` meets in that step; nothing: it is left out, or no member.
std::optional<MemberId> GossipPartner(const std::vector<MemberId>& members,
                                      uint64_t seed, int64_t step,
                                      const MemberId& self);

// mine = (mine + theirs) / 2, float32.  Both partners get the same bytes, since
// a sum of two does not depend on their order; where it overflows, halves are
// added.  Same sizes.
void AverageWith(absl::Span<float> mine, absl::Span<const float> theirs);

}  // namespace paceline
