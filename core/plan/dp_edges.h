// The stages that an exact search may lay: every range on every set of
// devices, with what is known of them before their neighbours are.  Immutable
// after construction.
#pragma once

#include <vector>

#include "core/plan/dp_classes.h"
#include "core/plan/dp_table.h"

namespace paceline {

// A stage of layers [first, last) on a set; last is that of its list.
struct DpEdge {
  int first = 0;
  int min_later = 0;   // devices in later stages with which it fits: from so
  int max_later = 0;   // many on, and up to so many
  int shares = 0;      // where its shares start
  double seconds = 0;  // t
  // The least that its boundaries take, whoever is on the other side.
  TransferCost before;
  TransferCost after;

  bool FitsBefore(int later) const {
    return min_later <= later && later <= max_later;
  }
};

// A cost below which a placement must stay to be of interest, and what its
// other layers take at least.
struct DpLimit {
  double seconds = 0;
  std::vector<double> least_sum;  // [layers + 1]: of layers [0, l)
};

class DpEdges {
 public:
  // Edges that fit and with which a placement can stay below the limit.
  // O(layers^2 x sets x classes).
  DpEdges(const DpTable& table, const DpSets& sets, const DpLimit& limit);

  struct Span {
    const DpEdge* begin_edge;
    const DpEdge* end_edge;
    const DpEdge* begin() const { return begin_edge; }
    const DpEdge* end() const { return end_edge; }
  };
  // Those that end at `last` on `set`, the shortest first.
  Span At(int last, int set) const {
    const size_t at = static_cast<size_t>(last) * sets_ + set;
    return {edges_.data() + begins_[at], edges_.data() + begins_[at + 1]};
  }
  // [counts of the set]: the share of one device of each class.
  const double* Shares(const DpEdge& edge) const {
    return shares_.data() + edge.shares;
  }
  // A set's shares are the same on every range.
  bool shares_are_fixed() const { return shares_are_fixed_; }

 private:
  int sets_ = 0;
  bool shares_are_fixed_ = true;
  std::vector<DpEdge> edges_;
  std::vector<int> begins_;  // [layers + 1][sets], and the end
  std::vector<double> shares_;
};

// Between stages on `left` and `right`, cut before layer `cut`.
// O(classes^2).
TransferCost TransferOf(const DpTable& table, const DpSets& sets, int cut,
                        const ClassSet& left, const double* left_shares,
                        const ClassSet& right, const double* right_shares);

}  // namespace paceline
