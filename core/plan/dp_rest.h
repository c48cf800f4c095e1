// The least that the stages before a cut can still cost, for every cut and set
// of devices used behind it: dp's recursion with each transfer replaced by the
// cheapest one that either end allows.  Immutable after construction.
#pragma once

#include <vector>

#include "core/plan/dp_edges.h"

namespace paceline {

// A pair that no placement of the rest is below in both.
struct RestCost {
  double sum = 0;
  double pace = 0;
};

class DpRest {
 public:
  // steps is lowered by what was done; below 0 it stopped in the middle and
  // nothing else may be asked.
  DpRest(const DpTable& table, const DpSets& sets, const DpEdges& edges,
         const DpLimit& limit, double& steps);

  struct Span {
    const RestCost* begin_cost;
    const RestCost* end_cost;
    const RestCost* begin() const { return begin_cost; }
    const RestCost* end() const { return end_cost; }
  };
  // Layers [0, cut) without the devices in `used`, in `stages` stages (0 when
  // any number is allowed).  Empty: impossible, or not below the limit.
  Span At(int cut, int used, int stages) const {
    const size_t at = Index(cut, used, stages);
    return {costs_.data() + begins_[at], costs_.data() + ends_[at]};
  }

 private:
  size_t Index(int cut, int used, int stages) const {
    return (static_cast<size_t>(cut) * sets_ + used) * stage_counts_ + stages;
  }

  size_t sets_;
  size_t stage_counts_;
  std::vector<RestCost> costs_;
  std::vector<size_t> begins_;  // [layers][sets][stage counts]
  std::vector<size_t> ends_;
};

}  // namespace paceline
