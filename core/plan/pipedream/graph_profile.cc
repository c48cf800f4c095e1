#include "core/plan/pipedream/graph_profile.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/errors.h"

namespace paceline {
namespace {

constexpr absl::string_view kBetween = " -- ";
constexpr double kMillisecondsPerSecond = 1000;

struct Edge {
  std::string from;
  std::string to;
  int line = 0;
};

struct Lines {
  std::vector<ProfileNode> nodes;
  std::vector<Edge> edges;
};

// Messages show only a part of a file's text, without control characters.
std::string Shown(absl::string_view text) {
  constexpr size_t kMostShown = 60;
  const absl::string_view part = text.substr(0, kMostShown);
  return absl::StrCat("'", absl::CHexEscape(part),
                      text.size() > kMostShown ? "...'" : "'");
}

template <typename... Parts>
absl::Status Wrong(int line, const Parts&... parts) {
  return InvalidArgument("profile, line ", line, ": ", parts...);
}

absl::StatusOr<double> Number(absl::string_view name, absl::string_view text,
                              int line) {
  double number = 0;
  if (!absl::SimpleAtod(text, &number)) {
    return Wrong(line, name, " is ", Shown(text), ", need a number");
  }
  if (!std::isfinite(number) || number < 0 || number > kMostProfileNumber) {
    return Wrong(line, name, " is ", number, ", need 0 to ",
                 kMostProfileNumber);
  }
  return number;
}

// Parses "4096.0" or "[4096.0; 8.0]".
absl::StatusOr<double> Sum(absl::string_view name, absl::string_view text,
                           int line) {
  if (!absl::ConsumePrefix(&text, "[")) return Number(name, text, line);
  if (!absl::ConsumeSuffix(&text, "]")) {
    return Wrong(line, name, " is a list without its ']'");
  }
  double sum = 0;
  for (const absl::string_view each : absl::StrSplit(text, ';')) {
    PACELINE_ASSIGN_OR_RETURN(const double number, Number(name, each, line));
    sum += number;
  }
  return sum;
}

// Takes "name=value" and the comma after it off the front of `text`.
absl::StatusOr<double> TakeField(absl::string_view name,
                                 absl::string_view& text, int line) {
  const absl::string_view field = text.substr(0, text.find(", "));
  text.remove_prefix(std::min(text.size(), field.size() + 2));
  absl::string_view value = field;
  if (!absl::ConsumePrefix(&value, name) || !absl::ConsumePrefix(&value, "=")) {
    return Wrong(line, "need ", name, "=NUMBER, got ", Shown(field));
  }
  return Sum(name, value, line);
}

absl::Status TakeNumbers(absl::string_view text, ProfileNode& node) {
  const int line = node.line;
  PACELINE_ASSIGN_OR_RETURN(const double forward,
                            TakeField("forward_compute_time", text, line));
  PACELINE_ASSIGN_OR_RETURN(const double backward,
                            TakeField("backward_compute_time", text, line));
  PACELINE_ASSIGN_OR_RETURN(node.output_bytes,
                            TakeField("activation_size", text, line));
  PACELINE_ASSIGN_OR_RETURN(node.parameter_bytes,
                            TakeField("parameter_size", text, line));
  if (!text.empty()) {
    return Wrong(line, "too much after parameter_size: ", Shown(text));
  }
  node.forward_seconds = forward / kMillisecondsPerSecond;
  node.backward_seconds = backward / kMillisecondsPerSecond;
  return absl::OkStatus();
}

absl::StatusOr<ProfileNode> NodeOf(absl::string_view text, int line) {
  const size_t id_end = text.find(kBetween);
  // Search from the back: a description is free text.
  const size_t numbers = text.rfind(" -- forward_compute_time=");
  if (id_end == 0 || numbers == absl::string_view::npos || numbers <= id_end) {
    return Wrong(line,
                 "need 'id -- description -- forward_compute_time=..., "
                 "backward_compute_time=..., activation_size=..., "
                 "parameter_size=...', or an edge that starts with a tab; got ",
                 Shown(text));
  }
  ProfileNode node;
  node.line = line;
  node.id = std::string(text.substr(0, id_end));
  const size_t description = id_end + kBetween.size();
  node.description =
      std::string(text.substr(description, numbers - description));
  absl::string_view fields = text.substr(numbers + kBetween.size());
  const size_t rest = fields.find(" -- stage_id=");
  if (rest != absl::string_view::npos) fields = fields.substr(0, rest);
  PACELINE_RETURN_IF_ERROR(TakeNumbers(fields, node));
  return node;
}

absl::StatusOr<Edge> EdgeOf(absl::string_view text, int line) {
  const std::vector<std::string> ends = absl::StrSplit(text, kBetween);
  if (ends.size() != 2 || ends[0].empty() || ends[1].empty()) {
    return Wrong(line, "need '<tab>from -- to', got ", Shown(text));
  }
  return Edge{ends[0], ends[1], line};
}

absl::Status AddLine(absl::string_view text, int line, Lines& lines) {
  if (text.size() > kMostProfileLineBytes) {
    return Wrong(line, text.size(), " bytes long, at most ",
                 kMostProfileLineBytes, " are read");
  }
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  if (stripped.empty()) return absl::OkStatus();
  if (text[0] == '\t') {
    PACELINE_ASSIGN_OR_RETURN(Edge edge, EdgeOf(stripped, line));
    lines.edges.push_back(std::move(edge));
  } else {
    PACELINE_ASSIGN_OR_RETURN(ProfileNode node, NodeOf(stripped, line));
    lines.nodes.push_back(std::move(node));
  }
  if (lines.nodes.size() > kMostProfileNodes) {
    return Wrong(line, "more than ", kMostProfileNodes, " nodes");
  }
  if (lines.edges.size() > kMostProfileEdges) {
    return Wrong(line, "more than ", kMostProfileEdges, " edges");
  }
  return absl::OkStatus();
}

absl::StatusOr<Lines> LinesOf(absl::string_view text) {
  Lines lines;
  int line = 0;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    PACELINE_RETURN_IF_ERROR(AddLine(each, ++line, lines));
  }
  if (lines.nodes.empty()) {
    return InvalidArgument(
        "profile: there is no node in it; need lines 'id -- description -- "
        "forward_compute_time=..., ...'");
  }
  return lines;
}

using Index = std::map<std::string, int>;

absl::StatusOr<Index> IndexOf(const std::vector<ProfileNode>& nodes) {
  Index index;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto [known, is_new] =
        index.emplace(nodes[i].id, static_cast<int>(i));
    if (is_new) continue;
    return Wrong(nodes[i].line, "node ", Shown(nodes[i].id),
                 " is there already, in line ", nodes[known->second].line);
  }
  return index;
}

absl::StatusOr<std::vector<std::pair<int, int>>> Resolve(
    const std::vector<Edge>& edges, const Index& index) {
  std::vector<std::pair<int, int>> resolved;
  for (const Edge& edge : edges) {
    const auto from = index.find(edge.from);
    const auto to = index.find(edge.to);
    if (from == index.end() || to == index.end()) {
      return Wrong(edge.line, "an edge names node ",
                   Shown(from == index.end() ? edge.from : edge.to),
                   ", which no line describes");
    }
    resolved.emplace_back(from->second, to->second);
  }
  return resolved;
}

// Finds nodes that are on a cycle or behind one.
std::vector<bool> Entangled(int nodes,
                            const std::vector<std::pair<int, int>>& edges) {
  std::vector<std::vector<int>> next(nodes);
  for (const auto& [from, to] : edges) next[from].push_back(to);
  std::vector<bool> entangled(nodes, true);
  for (const int node : TopologicalOrder(next)) entangled[node] = false;
  return entangled;
}

// Each entangled node has an edge from another one, so walking back along these
// edges meets a node twice.
absl::Status CycleError(const Lines& lines,
                        const std::vector<std::pair<int, int>>& edges,
                        const std::vector<bool>& entangled) {
  const int nodes = static_cast<int>(lines.nodes.size());
  std::vector<int> edge_into(nodes, -1);
  for (size_t e = 0; e < edges.size(); ++e) {
    if (entangled[edges[e].first]) {
      edge_into[edges[e].second] = static_cast<int>(e);
    }
  }
  int node = static_cast<int>(
      std::find(entangled.begin(), entangled.end(), true) - entangled.begin());
  for (int steps = 0; steps < nodes; ++steps) {
    node = edges[edge_into[node]].first;
  }
  std::vector<std::string> names = {lines.nodes[node].id};
  int line = 0;
  int at = node;
  do {
    line = std::max(line, lines.edges[edge_into[at]].line);
    at = edges[edge_into[at]].first;
    names.push_back(lines.nodes[at].id);
  } while (at != node);
  std::reverse(names.begin(), names.end());
  constexpr size_t kMostNames = 8;
  const size_t length = names.size() - 1;
  if (names.size() > kMostNames) names.resize(kMostNames);
  return Wrong(line, "the edge closes a cycle of ", length,
               " nodes: ", absl::CHexEscape(absl::StrJoin(names, " -> ")),
               length >= kMostNames ? " -> ..." : "");
}

// Keeps the nodes with `kept`, and the edges between them.
GraphProfile Only(const GraphProfile& graph, const std::vector<bool>& kept) {
  GraphProfile part;
  std::vector<int> number(graph.nodes.size(), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!kept[i]) continue;
    number[i] = static_cast<int>(part.nodes.size());
    part.nodes.push_back(graph.nodes[i]);
  }
  for (const auto& [from, to] : graph.edges) {
    if (!kept[from] || !kept[to]) continue;
    part.edges.emplace_back(number[from], number[to]);
  }
  std::sort(part.edges.begin(), part.edges.end());
  part.edges.erase(std::unique(part.edges.begin(), part.edges.end()),
                   part.edges.end());
  return part;
}

GraphProfile WithoutInputs(const GraphProfile& graph) {
  std::vector<bool> kept(graph.nodes.size(), false);
  for (const auto& [from, to] : graph.edges) kept[to] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!absl::StartsWith(graph.nodes[i].description, "Input")) kept[i] = true;
  }
  return Only(graph, kept);
}

std::vector<int> SinksOf(const GraphProfile& graph) {
  std::vector<bool> used(graph.nodes.size(), false);
  for (const auto& [from, to] : graph.edges) used[from] = true;
  std::vector<int> sinks;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) sinks.push_back(static_cast<int>(i));
  }
  return sinks;
}

// Does not drop an output that is the only end of the graph: it is the result.
GraphProfile WithoutUnusedOutputs(const GraphProfile& graph) {
  std::vector<int> ends = SinksOf(graph);
  if (ends.size() == 1) return graph;
  std::vector<std::vector<int>> from_of(graph.nodes.size());
  std::vector<int> uses(graph.nodes.size(), 0);
  for (const auto& [from, to] : graph.edges) {
    from_of[to].push_back(from);
    ++uses[from];
  }
  std::vector<bool> kept(graph.nodes.size(), true);
  while (!ends.empty()) {
    const int end = ends.back();
    ends.pop_back();
    if (!absl::StartsWith(graph.nodes[end].description, "__getitem__")) {
      continue;
    }
    kept[end] = false;
    for (const int from : from_of[end]) {
      if (--uses[from] == 0) ends.push_back(from);
    }
  }
  return Only(graph, kept);
}

absl::Status CheckSinks(const GraphProfile& graph) {
  const std::vector<int> sinks = SinksOf(graph);
  if (sinks.size() == 1) return absl::OkStatus();
  const ProfileNode& first = graph.nodes[sinks[0]];
  const ProfileNode& second = graph.nodes[sinks[1]];
  return Wrong(second.line, "nothing uses node ", Shown(second.id), ", nor ",
               Shown(first.id), " in line ", first.line, ": ", sinks.size(),
               " sinks, need 1; lead them into one node");
}

}  // namespace

std::vector<int> TopologicalOrder(const std::vector<std::vector<int>>& next) {
  std::vector<int> missing(next.size(), 0);
  for (const std::vector<int>& ends : next) {
    for (const int to : ends) ++missing[to];
  }
  std::vector<int> order;
  for (size_t node = 0; node < next.size(); ++node) {
    if (missing[node] == 0) order.push_back(static_cast<int>(node));
  }
  for (size_t at = 0; at < order.size(); ++at) {
    for (const int to : next[order[at]]) {
      if (--missing[to] == 0) order.push_back(to);
    }
  }
  return order;
}

absl::StatusOr<GraphProfile> ParseGraphProfile(absl::string_view text) {
  PACELINE_ASSIGN_OR_RETURN(Lines lines, LinesOf(text));
  PACELINE_ASSIGN_OR_RETURN(const Index index, IndexOf(lines.nodes));
  GraphProfile graph;
  PACELINE_ASSIGN_OR_RETURN(graph.edges, Resolve(lines.edges, index));
  const std::vector<bool> entangled =
      Entangled(static_cast<int>(lines.nodes.size()), graph.edges);
  if (std::find(entangled.begin(), entangled.end(), true) != entangled.end()) {
    return CycleError(lines, graph.edges, entangled);
  }
  graph.nodes = std::move(lines.nodes);
  graph = WithoutUnusedOutputs(WithoutInputs(graph));
  if (graph.nodes.empty()) {
    return InvalidArgument(
        "profile: all its nodes are inputs or unused outputs; need one that "
        "computes");
  }
  PACELINE_RETURN_IF_ERROR(CheckSinks(graph));
  return graph;
}

}  // namespace paceline
