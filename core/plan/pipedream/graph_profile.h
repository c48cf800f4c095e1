// Parses layer profiles as published with PipeDream into a graph.  Values and a
// pure parser.
//
// The format (Narayanan et al. 2019, "PipeDream"; the files of its release) has
// a line for each node, then a line for each edge; edges start with a tab:
//   node2 -- Conv2d(3, 64) -- forward_compute_time=1.5,
//     backward_compute_time=2.5, activation_size=4096.0, parameter_size=64.000
//   <tab>node2 -- node3
// A node is one line in the file.  Times are milliseconds and sizes bytes of
// one mini-batch.  Several outputs are a list, "[4096.0; 8.0]", and count
// together.  The parser skips the optimizer's own additions, " -- stage_id=3".
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

struct ProfileNode {
  std::string id;
  std::string description;
  double forward_seconds = 0;
  double backward_seconds = 0;
  double output_bytes = 0;
  double parameter_bytes = 0;
  int line = 0;  // line of the text, from 1

  friend bool operator==(const ProfileNode&, const ProfileNode&) = default;
};

// A graph without cycles, with one sink and at least one node.
struct GraphProfile {
  std::vector<ProfileNode> nodes;          // in the order of the text
  std::vector<std::pair<int, int>> edges;  // from, to; sorted, each once

  friend bool operator==(const GraphProfile&, const GraphProfile&) = default;
};

inline constexpr size_t kMostProfileLineBytes = size_t{1} << 16;
inline constexpr int kMostProfileNodes = 10'000;
inline constexpr int kMostProfileEdges = 100'000;
// Larger milliseconds or bytes are a mistake; up to this, sums stay finite.
inline constexpr double kMostProfileNumber = 1e18;

// Returns the nodes that are on no cycle and behind none, each after those that
// it needs (Kahn 1962).  O(nodes + edges).
//   next  [nodes]: the ends of the edges from each
std::vector<int> TopologicalOrder(const std::vector<std::vector<int>>& next);

// Parses a profile.  Like the released optimizer, it leaves out sources whose
// description starts with "Input" (the first stage reads the data), and outputs
// ("__getitem__...") that no node uses.  Several other sources are legal; each
// belongs to the first stage that needs it.  Zeros are legal.
// O(text + edges log edges).
//
// Errors: InvalidArgument  with the line and its mistake: a line of another
// format; a number that is missing, negative, not finite or above
// kMostProfileNumber; a node twice; an edge to an unknown node; a cycle;
// several sinks; a line or a graph that is too long; an empty profile.
absl::StatusOr<GraphProfile> ParseGraphProfile(absl::string_view text);

}  // namespace paceline
