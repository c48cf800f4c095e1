// Where a profile's graph can be cut: its states, and the chain of layers
// through them.  Values and pure functions.
//
// A state is a set of nodes that holds, with each node, all that it needs: what
// has been computed at some moment.  Its last nodes form an antichain, hence
// "antichain states" (Narayanan et al. 2019, "PipeDream", and its released
// optimizer).  A stage is what one state has more than another inside it.
//
// One source, that with the most nodes behind it, is where states begin; what
// other sources lead to is part of the first state that needs it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/problem.h"

namespace paceline {

// States are numbered chain by chain: chains cover all of them, each state
// once, and each state of a chain is inside the next one.  A graph without
// branches has one chain.  State 0 is empty and inside all others.
struct StateSpace {
  int states = 0;
  // [chains + 1]: chain c holds the states chain_begin[c] ..
  // chain_begin[c + 1] - 1.
  std::vector<int> chain_begin;
  // [states x chains]: states of the chain strictly inside state s are
  // chain_begin[c] .. inside[s, c] - 1, those around it around[s, c] .. end of
  // the chain.
  std::vector<int> inside;
  std::vector<int> around;
  std::vector<int> in_order;  // [states]: none before one that is inside it
  int last = 0;               // all nodes

  // [states], sums over the nodes of the state, one mini-batch.
  std::vector<double> seconds;  // forward and backward
  std::vector<double> parameter_bytes;
  std::vector<double> output_bytes;  // of every node: what is kept
  // The bytes of nodes that something outside needs; of the last state, those
  // of its sink. The released optimizer also counts some that nothing outside
  // needs.
  std::vector<double> boundary_bytes;

  std::vector<int> node_rank;  // [nodes]: topological, from 0

  int words = 0;               // of 64 nodes
  std::vector<uint64_t> held;  // [states x words], a bit a node

  int chains() const { return static_cast<int>(chain_begin.size()) - 1; }
  int InsideEnd(int state, int chain) const {
    return inside[state * chains() + chain];
  }
  int AroundBegin(int state, int chain) const {
    return around[state * chains() + chain];
  }
  // Whether the nodes of `inner` are some, not all, of those of `outer`.
  bool IsInside(int inner, int outer) const;
  // Nodes that `outer` has and `inner` has not, ascending.  O(nodes).
  std::vector<int> NodesBetween(int inner, int outer) const;
};

inline constexpr int kMostStates = 3000;

// O(states x (edges + chains x nodes / 64)).
//
// Errors: InvalidArgument  more than `most_states` states: branches of many
// nodes side by side have exponentially many.
absl::StatusOr<StateSpace> StatesOf(const GraphProfile& graph,
                                    int most_states = kMostStates);

// A chain of layers for planners that know only chains: the longest chain of
// states, of several that with the least bytes over its boundaries.  A layer is
// what a state adds; its kept bytes are the outputs of all its nodes.
// O(states^2).
std::vector<LayerCost> LayersOf(const GraphProfile& graph,
                                const StateSpace& space);

}  // namespace paceline
