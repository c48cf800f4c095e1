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

using Held = std::vector<uint64_t>;  // nodes, a bit each

bool Has(const uint64_t* bits, int number) {
  return (bits[number / kBits] >> (number % kBits) & 1) != 0;
}

void Add(uint64_t* bits, int number) {
  bits[number / kBits] |= uint64_t{1} << (number % kBits);
}

int Count(const Held& held) {
  int count = 0;
  for (const uint64_t word : held) count += std::popcount(word);
  return count;
}

bool Within(const Held& inner, const Held& outer) {
  for (size_t w = 0; w < inner.size(); ++w) {
    if ((inner[w] & ~outer[w]) != 0) return false;
  }
  return true;
}

struct Links {
  std::vector<std::vector<int>> next;
  std::vector<int> order;    // topological
  std::vector<Held> needed;  // [nodes]: the node and all nodes that it needs
  std::vector<bool> is_source;
};

Links LinksOf(const GraphProfile& graph, int words) {
  const int nodes = static_cast<int>(graph.nodes.size());
  Links links{std::vector<std::vector<int>>(nodes),
              {},
              std::vector<Held>(nodes, Held(words, 0)),
              std::vector<bool>(nodes, true)};
  for (const auto& [from, to] : graph.edges) {
    links.next[from].push_back(to);
    links.is_source[to] = false;
  }
  links.order = TopologicalOrder(links.next);
  for (const int node : links.order) {
    Add(links.needed[node].data(), node);
    for (const int to : links.next[node]) {
      for (int w = 0; w < words; ++w) {
        links.needed[to][w] |= links.needed[node][w];
      }
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
    for (const Held& needed : links.needed) {
      needing += Has(needed.data(), source);
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
std::vector<int> Frontier(const Links& links, const Held& held) {
  std::vector<int> frontier;
  for (size_t node = 0; node < links.next.size(); ++node) {
    if (!Has(held.data(), static_cast<int>(node))) continue;
    for (const int to : links.next[node]) {
      if (!Has(held.data(), to)) frontier.push_back(to);
    }
  }
  std::sort(frontier.begin(), frontier.end());
  frontier.erase(std::unique(frontier.begin(), frontier.end()), frontier.end());
  return frontier;
}

// Returns all states.
absl::StatusOr<std::vector<Held>> Enumerate(const Links& links, int words,
                                            int most_states) {
  std::vector<Held> found = {Held(words, 0), links.needed[FirstSource(links)]};
  std::set<Held> known(found.begin(), found.end());
  for (size_t at = 1; at < found.size(); ++at) {
    const Held from = found[at];
    for (const int to : Frontier(links, from)) {
      Held state = from;
      for (int w = 0; w < words; ++w) state[w] |= links.needed[to][w];
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
double SecondsOf(const GraphProfile& graph, const Held& held) {
  long double seconds = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!Has(held.data(), static_cast<int>(i))) continue;
    seconds += graph.nodes[i].forward_seconds;
    seconds += graph.nodes[i].backward_seconds;
  }
  return static_cast<double>(seconds);
}

// O(states^2 x nodes / 64).
StateSpace Numbered(const std::vector<Held>& found, int words) {
  StateSpace space;
  space.states = static_cast<int>(found.size());
  space.words = words;
  space.inside.resize(found.size());
  for (int s = 0; s < space.states; ++s) {
    space.held.insert(space.held.end(), found[s].begin(), found[s].end());
    for (int k = 0; k < s; ++k) {
      if (Within(found[k], found[s])) space.inside[s].push_back(k);
    }
  }
  return space;
}

// In higher precision, as SecondsOf().
void AddUp(const GraphProfile& graph, const Links& links, StateSpace& space) {
  const int nodes = static_cast<int>(graph.nodes.size());
  for (int s = 0; s < space.states; ++s) {
    const uint64_t* const held = &space.held[s * space.words];
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
  for (int w = 0; w < words; ++w) {
    uint64_t left = held[outer * words + w] & ~held[inner * words + w];
    for (; left != 0; left &= left - 1) {
      nodes.push_back(w * kBits + std::countr_zero(left));
    }
  }
  return nodes;
}

absl::StatusOr<StateSpace> StatesOf(const GraphProfile& graph,
                                    int most_states) {
  const int words = static_cast<int>(graph.nodes.size() + kBits - 1) / kBits;
  const Links links = LinksOf(graph, words);
  PACELINE_ASSIGN_OR_RETURN(std::vector<Held> found,
                            Enumerate(links, words, most_states));
  std::ranges::sort(found, {}, [&graph](const Held& held) {
    return std::tuple(SecondsOf(graph, held), Count(held), held);
  });
  StateSpace space = Numbered(found, words);
  for (const Held& held : found) {
    space.seconds.push_back(SecondsOf(graph, held));
  }
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
