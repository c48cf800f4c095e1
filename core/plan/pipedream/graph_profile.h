// Layer profiles as published with PipeDream: text -> graph.  Values and a pure
// parser.
//
// The format (Narayanan et al. 2019, "PipeDream"; the files of its release), a
// line a node, then a line an edge; edges start with a tab:
//   node2 -- Conv2d(3, 64) -- forward_compute_time=1.5,
//     backward_compute_time=2.5, activation_size=4096.0, parameter_size=64.000
//   <tab>node2 -- node3
// (a node's text is one line there).  Milliseconds and bytes of one mini-batch;
// several outputs are a list, "[4096.0; 8.0]", and count together; what the
// optimizer wrote back, " -- stage_id=3", is skipped.
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
  int line = 0;  // of the text, from 1

  friend bool operator==(const ProfileNode&, const ProfileNode&) = default;
};

// No cycles, one sink, at least one node.
struct GraphProfile {
  std::vector<ProfileNode> nodes;          // in the order of the text
  std::vector<std::pair<int, int>> edges;  // from, to; sorted, each once

  friend bool operator==(const GraphProfile&, const GraphProfile&) = default;
};

inline constexpr size_t kMostProfileLineBytes = size_t{1} << 16;
inline constexpr int kMostProfileNodes = 10'000;
inline constexpr int kMostProfileEdges = 100'000;
// Milliseconds and bytes beyond this are a slip; below it, sums stay finite.
inline constexpr double kMostProfileNumber = 1e18;

// As the released optimizer does, leaves out sources whose description starts
// with "Input" (the data is read where the first stage is), and outputs
// ("__getitem__...") that nothing uses.  Several other sources are legal; each
// belongs to the first stage that needs it.  Zeros are legal.
// O(text + edges log edges).
//
// Errors: InvalidArgument  with the line and what is wrong there: not a line of
// this format, a number that is missing, negative, not finite or absurd, a node
// twice, an edge to an unknown node, a cycle, several sinks, a line or a graph
// that is too long, nothing in it.
absl::StatusOr<GraphProfile> ParseGraphProfile(absl::string_view text);

}  // namespace paceline
