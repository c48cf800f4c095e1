#include "core/plan/pipedream/state_space.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr int kBits = 64;

bool Has(const NodeSet& held, int number) {
  return (held[number / kBits] >> (number % kBits) & 1) != 0;
}

void AddAll(const NodeSet& more, NodeSet& held) {
  for (size_t w = 0; w < held.size(); ++w) held[w] |= more[w];
}

int Count(const NodeSet& held) {
  int count = 0;
  for (const uint64_t word : held) count += std::popcount(word);
  return count;
}

bool Within(const NodeSet& inner, const NodeSet& outer) {
  for (size_t w = 0; w < inner.size(); ++w) {
    if ((inner[w] & ~outer[w]) != 0) return false;
  }
  return true;
}

struct Links {
  std::vector<std::vector<int>> next;
  std::vector<int> order;       // topological
  std::vector<NodeSet> needed;  // [nodes]: the node and all nodes that it needs
  std::vector<bool> is_source;
};

Links LinksOf(const GraphProfile& graph) {
  const int nodes = static_cast<int>(graph.nodes.size());
  const int words = (nodes + kBits - 1) / kBits;
  Links links{std::vector<std::vector<int>>(nodes),
              {},
              std::vector<NodeSet>(nodes, NodeSet(words, 0)),
              std::vector<bool>(nodes, true)};
  for (const auto& [from, to] : graph.edges) {
    links.next[from].push_back(to);
    links.is_source[to] = false;
  }
  links.order = TopologicalOrder(links.next);
  for (const int node : links.order) {
    links.needed[node][node / kBits] |= uint64_t{1} << (node % kBits);
    for (const int to : links.next[node]) {
      AddAll(links.needed[node], links.needed[to]);
    }
  }
  return links;
}

// Returns the source that most nodes need; of several the first.
int FirstSource(const Links& links) {
  const int nodes = static_cast<int>(links.next.size());
  int best = -1;
  int most = 0;
  for (int source = 0; source < nodes; ++source) {
    if (!links.is_source[source]) continue;
    int needing = 0;
    for (const NodeSet& needed : links.needed) {
      needing += Has(needed, source);
    }
    if (needing <= most) continue;
    best = source;
    most = needing;
  }
  return best;
}

absl::Status TooMany(int most_states) {
  return InvalidArgument(
      "the profile has more than ", most_states,
      " states where it could be cut: branches side by side multiply; merge "
      "nodes of a branch into one, or give the branches as one node");
}

// Returns nodes outside `held` with an edge from a node in it, ascending.
std::set<int> Frontier(const Links& links, const NodeSet& held) {
  std::set<int> frontier;
  for (size_t node = 0; node < links.next.size(); ++node) {
    if (!Has(held, static_cast<int>(node))) continue;
    for (const int to : links.next[node]) {
      if (!Has(held, to)) frontier.insert(to);
    }
  }
  return frontier;
}

// Returns all states.
absl::StatusOr<std::vector<NodeSet>> Enumerate(const Links& links,
                                               int most_states) {
  const NodeSet& first = links.needed[FirstSource(links)];
  std::vector<NodeSet> found = {NodeSet(first.size(), 0), first};
  std::set<NodeSet> known(found.begin(), found.end());
  for (size_t at = 1; at < found.size(); ++at) {
    const NodeSet from = found[at];
    for (const int to : Frontier(links, from)) {
      NodeSet state = from;
      AddAll(links.needed[to], state);
      if (!known.insert(state).second) continue;
      if (static_cast<int>(known.size()) > most_states) {
        return TooMany(most_states);
      }
      found.push_back(std::move(state));
    }
  }
  return found;
}

// In higher precision, because results are compared to the last digits.
double SecondsOf(const GraphProfile& graph, const NodeSet& held) {
  long double seconds = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!Has(held, static_cast<int>(i))) continue;
    seconds += graph.nodes[i].forward_seconds;
    seconds += graph.nodes[i].backward_seconds;
  }
  return static_cast<double>(seconds);
}

// In higher precision, as SecondsOf().
void AddUp(const GraphProfile& graph, const Links& links, StateSpace& space) {
  const int nodes = static_cast<int>(graph.nodes.size());
  for (int s = 0; s < space.states; ++s) {
    const NodeSet& held = space.held[s];
    long double parameters = 0, outputs = 0, boundary = 0;
    for (int i = 0; i < nodes; ++i) {
      if (!Has(held, i)) continue;
      const ProfileNode& node = graph.nodes[i];
      parameters += node.parameter_bytes;
      outputs += node.output_bytes;
      const std::vector<int>& next = links.next[i];
      const bool leaves =
          next.empty() || std::any_of(next.begin(), next.end(),
                                      [&](int to) { return !Has(held, to); });
      if (leaves) boundary += node.output_bytes;
    }
    space.parameter_bytes.push_back(static_cast<double>(parameters));
    space.output_bytes.push_back(static_cast<double>(outputs));
    space.boundary_bytes.push_back(static_cast<double>(boundary));
  }
}

struct Path {
  int states = 0;
  double boundary_bytes = 0;
  int from = -1;
};

// Returns the longest chain of states; of equally long ones the lighter.
std::vector<int> LongestChain(const StateSpace& space) {
  std::vector<Path> best(space.states);
  for (int s = 0; s < space.states; ++s) {
    for (const int k : space.inside[s]) {
      const Path path{best[k].states + 1,
                      best[k].boundary_bytes + space.boundary_bytes[s], k};
      if (path.states < best[s].states ||
          (path.states == best[s].states &&
           path.boundary_bytes >= best[s].boundary_bytes)) {
        continue;
      }
      best[s] = path;
    }
  }
  std::vector<int> chain;
  for (int s = space.last(); s != -1; s = best[s].from) chain.push_back(s);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::string NameOf(const GraphProfile& graph, const std::vector<int>& nodes) {
  constexpr size_t kMostNames = 3;
  std::string name;
  for (size_t i = 0; i < std::min(nodes.size(), kMostNames); ++i) {
    absl::StrAppend(&name, i == 0 ? "" : "+", graph.nodes[nodes[i]].id);
  }
  if (nodes.size() > kMostNames) {
    absl::StrAppend(&name, "+", nodes.size() - kMostNames, " more");
  }
  return name;
}

}  // namespace

std::vector<int> StateSpace::NodesBetween(int inner, int outer) const {
  std::vector<int> nodes;
  for (size_t w = 0; w < held[outer].size(); ++w) {
    uint64_t left = held[outer][w] & ~held[inner][w];
    for (; left != 0; left &= left - 1) {
      nodes.push_back(static_cast<int>(w) * kBits + std::countr_zero(left));
    }
  }
  return nodes;
}

absl::StatusOr<StateSpace> StatesOf(const GraphProfile& graph,
                                    int most_states) {
  const Links links = LinksOf(graph);
  PACELINE_ASSIGN_OR_RETURN(std::vector<NodeSet> found,
                            Enumerate(links, most_states));
  std::ranges::sort(found, {}, [&graph](const NodeSet& held) {
    return std::tuple(SecondsOf(graph, held), Count(held), held);
  });
  StateSpace space;
  space.states = static_cast<int>(found.size());
  space.inside.resize(found.size());
  for (int s = 0; s < space.states; ++s) {
    space.seconds.push_back(SecondsOf(graph, found[s]));
    for (int k = 0; k < s; ++k) {
      if (Within(found[k], found[s])) space.inside[s].push_back(k);
    }
  }
  space.held = std::move(found);
  space.node_rank.resize(graph.nodes.size());
  for (size_t i = 0; i < links.order.size(); ++i) {
    space.node_rank[links.order[i]] = static_cast<int>(i);
  }
  AddUp(graph, links, space);
  return space;
}

std::vector<LayerCost> LayersOf(const GraphProfile& graph,
                                const StateSpace& space) {
  const std::vector<int> chain = LongestChain(space);
  std::vector<LayerCost> layers;
  for (size_t i = 1; i < chain.size(); ++i) {
    const std::vector<int> nodes = space.NodesBetween(chain[i - 1], chain[i]);
    LayerCost layer;
    layer.name = NameOf(graph, nodes);
    for (const int n : nodes) {
      layer.forward_seconds += graph.nodes[n].forward_seconds;
      layer.backward_seconds += graph.nodes[n].backward_seconds;
      layer.parameter_bytes += graph.nodes[n].parameter_bytes;
      layer.kept_bytes += graph.nodes[n].output_bytes;
    }
    layer.output_bytes = space.boundary_bytes[chain[i]];
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace paceline
