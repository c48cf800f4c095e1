// The states of a profile's graph, between which it can be cut, and the chain
// of layers through them.  Values and pure functions.
//
// A state is a set of nodes that holds, with each node, all nodes that it
// needs: the nodes computed at some moment.
//
//      a --> b --> d      states: {} {a} {a,b} {a,c} {a,b,c} {a,b,c,d}
//       \--> c --/
//
// Its last nodes form an antichain, hence "antichain states" (Narayanan et al.
// 2019, "PipeDream", and its released optimizer).  A stage holds the nodes that
// one state has more than another state inside it.
//
// States begin at one source, the one that most nodes need.  Nodes of other
// sources belong to the first state that needs them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/pipedream/graph_profile.h"
#include "core/plan/problem.h"

namespace paceline {

using NodeSet = std::vector<uint64_t>;  // a bit a node

// States are numbered by their seconds, and by their nodes where these are
// equal: each comes after all that are inside it.  State 0 is empty and inside
// all others; the last one has all nodes.
struct StateSpace {
  int states = 0;
  std::vector<std::vector<int>> inside;  // [states]: strictly, ascending

  // [states], sums over the nodes of the state, one mini-batch.
  std::vector<double> seconds;  // forward and backward
  std::vector<double> parameter_bytes;
  std::vector<double> output_bytes;  // of every node: kept for backward
  // Output bytes of nodes that a node outside needs; in the last state, those
  // of its sink.  The released optimizer also counts some that no node outside
  // needs.
  std::vector<double> boundary_bytes;

  std::vector<int> node_rank;  // [nodes]: topological, from 0

  std::vector<NodeSet> held;  // [states]

  int last() const { return states - 1; }
  // Returns the nodes that `outer` has and `inner` has not, ascending.
  // O(nodes).
  std::vector<int> NodesBetween(int inner, int outer) const;
};

inline constexpr int kMostStates = 3000;

// Returns the states of a graph.
// O(states x (edges + states x nodes / 64)).
//
// Errors: InvalidArgument  more than `most_states` states: parallel branches of
// many nodes have exponentially many.
absl::StatusOr<StateSpace> StatesOf(const GraphProfile& graph,
                                    int most_states = kMostStates);

// Returns a chain of layers for planners that know only chains: the longest
// chain of states, of several the one with the least bytes over its boundaries.
// A layer holds the nodes that a state adds; its kept bytes are the outputs of
// all its nodes.
// O(states^2).
std::vector<LayerCost> LayersOf(const GraphProfile& graph,
                                const StateSpace& space);

}  // namespace paceline
