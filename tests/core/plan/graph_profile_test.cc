#include "core/plan/pipedream/graph_profile.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/random.h"
#include "core/plan/pipedream/state_space.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/status_checks.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

std::string Node(const std::string& id, const std::string& description = "L",
                 const std::string& numbers =
                     "forward_compute_time=1.000, backward_compute_time=2.000, "
                     "activation_size=8.000, parameter_size=4.000") {
  return absl::StrCat(id, " -- ", description, " -- ", numbers, "\n");
}

std::string Edge(const std::string& from, const std::string& to) {
  return absl::StrCat("\t", from, " -- ", to, "\n");
}

void ExpectWrong(const std::string& text, const std::string& said) {
  ExpectError(ParseGraphProfile(text).status(),
              absl::StatusCode::kInvalidArgument, HasSubstr(said));
}

std::string NumbersWith(const std::string& activation) {
  return absl::StrCat(
      "forward_compute_time=1.5, backward_compute_time=0.000, activation_size=",
      activation, ", parameter_size=-0.000");
}

GraphProfile Parsed(const std::string& text) {
  return Value(ParseGraphProfile(text));
}

// A to B and C, both to D.
std::string Diamond() {
  return Node("a") + Node("b") + Node("c") + Node("d") + Edge("a", "b") +
         Edge("a", "c") + Edge("b", "d") + Edge("c", "d");
}

// The lines of a profile, shortened:
// node ID [DESCRIPTION]
// numbers ID ACTIVATION
// edges FROM-TO...
// text LINE, with escapes as C has them
std::string ProfileText(const std::string& question) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(question, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 2));
    const std::string rest(
        line.substr(std::min(line.size(), words[0].size() + 1)));
    if (words[0] == "node") {
      text += Node(words[1], words.size() > 2 ? words[2] : "L");
    } else if (words[0] == "numbers") {
      text +=
          Node(words[1], "L", NumbersWith(words.size() > 2 ? words[2] : ""));
    } else if (words[0] == "edges") {
      for (const absl::string_view edge : absl::StrSplit(rest, ' ')) {
        text +=
            Edge(std::string(edge.substr(0, 1)), std::string(edge.substr(2)));
      }
    } else {
      std::string unescaped;
      EXPECT_TRUE(words[0] == "text" && absl::CUnescape(rest, &unescaped))
          << line;
      text += unescaped + "\n";
    }
  }
  return text;
}

std::string AnswerTo(const std::string& question) {
  const auto graph = ParseGraphProfile(ProfileText(question));
  if (!graph.ok()) return graph.status().ToString();
  std::string said;
  for (const ProfileNode& node : graph->nodes) {
    absl::StrAppend(&said, node.id, " '", node.description, "' of line ",
                    node.line, ": ", node.forward_seconds, " and ",
                    node.backward_seconds, " s, bytes ", node.output_bytes,
                    " of ", node.parameter_bytes, "\n");
  }
  absl::StrAppend(&said, "edges", graph->edges.empty() ? "" : " ",
                  absl::StrJoin(graph->edges, " ", absl::PairFormatter("-")),
                  "\n");
  const StateSpace space = *StatesOf(*graph);
  said += "states:\n";
  for (int s = 1; s < space.states; ++s) {
    absl::StrAppend(&said, "  nodes ",
                    absl::StrJoin(space.NodesBetween(0, s), " "), ": ",
                    space.seconds[s], " s, bytes ", space.boundary_bytes[s],
                    " of ", space.parameter_bytes[s], ", around");
    for (const int inner : space.inside[s]) absl::StrAppend(&said, " ", inner);
    said += "\n";
  }
  for (const LayerCost& layer : LayersOf(*graph, space)) {
    absl::StrAppend(&said, "layer ", layer.name, ": ", layer.forward_seconds,
                    " and ", layer.backward_seconds, " s, bytes ",
                    layer.output_bytes, " of ", layer.parameter_bytes,
                    ", keeps ", layer.kept_bytes, "\n");
  }
  return said;
}

TEST(ParseGraphProfile, ReadsGraphs) {
  ExpectAnswers("core/graph_profiles", AnswerTo);
}

TEST(ParseGraphProfile, RefusesALongCycle) {
  std::string ring;
  for (int i = 0; i < 30; ++i) ring += Node(absl::StrCat("n", i));
  for (int i = 0; i < 30; ++i) {
    ring += Edge(absl::StrCat("n", i), absl::StrCat("n", (i + 1) % 30));
  }
  ExpectWrong(ring, "a cycle of 30 nodes");
}

TEST(ParseGraphProfile, RefusesWhatIsLongerThanSane) {
  ExpectWrong(Node("a") + Node("b", std::string(kMostProfileLineBytes, 'x')),
              "line 2: ");
  std::string nodes;
  for (int i = 0; i <= kMostProfileNodes; ++i) nodes += Node(absl::StrCat(i));
  ExpectWrong(nodes, "line 10001: more than 10000 nodes");
  std::string edges;
  for (int i = 0; i <= kMostProfileEdges; ++i) edges += "\ta -- b\n";
  ExpectWrong(edges, "line 100001: more than 100000 edges");
}

TEST(ParseGraphProfile, SurvivesWhateverIsDoneToAFile) {
  const std::string good = Node("in", "Input") + Diamond() + Edge("in", "a");
  SplitMix64 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (uint64_t edits = 1 + random.Below(4); edits > 0; --edits) {
      const size_t at = random.Below(text.size());
      switch (random.Below(3)) {
        case 0:
          text[at] = static_cast<char>(random.Below(256));
          break;
        case 1:
          text.erase(at, 1 + random.Below(20));
          break;
        default:
          text.insert(at, text.substr(random.Below(text.size()), 20));
      }
      if (text.empty()) text = "x";
    }
    const auto graph = ParseGraphProfile(text);
    if (graph.ok()) {
      EXPECT_FALSE(graph->nodes.empty());
      EXPECT_TRUE(StatesOf(*graph).ok());
    } else {
      EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
    }
  }
}

TEST(StatesOf, OfTwoBranchesAreAGrid) {
  std::string text = Node("s");
  for (const char* const branch : {"a", "b"}) {
    const int nodes = *branch == 'a' ? 8 : 2;
    for (int i = 0; i < nodes; ++i) {
      text += Node(absl::StrCat(branch, i)) +
              Edge(i == 0 ? "s" : absl::StrCat(branch, i - 1),
                   absl::StrCat(branch, i));
    }
  }
  text += Node("t") + Edge("a7", "t") + Edge("b1", "t");

  const StateSpace space = *StatesOf(Parsed(text));

  EXPECT_EQ(space.states, 1 + 9 * 3 + 1);
}

TEST(StatesOf, RefuseAGraphThatHasTooMany) {
  std::string text = Node("s") + Node("t");
  for (int i = 0; i < 40; ++i) {
    text += Node(absl::StrCat(i)) + Edge("s", absl::StrCat(i)) +
            Edge(absl::StrCat(i), "t");
  }

  ExpectError(StatesOf(Parsed(text)).status(),
              absl::StatusCode::kInvalidArgument,
              HasSubstr("more than 3000 states"));
}

TEST(StatesOf, AllowExactlyAsManyAsAsked) {
  EXPECT_TRUE(StatesOf(Parsed(Diamond()), 6).ok());
  EXPECT_FALSE(StatesOf(Parsed(Diamond()), 5).ok());
}

TEST(PublishedProfiles, AreReadWhole) {
  const struct {
    const char* name;
    int states;
    double seconds;
  } kPublished[] = {{"vgg16", 40, 0.672535},
                    {"alexnet", 22, 0.085321},
                    {"squeezenet1_0", 99, 0.285366},
                    {"gnmt", 99, 0.089416},
                    {"resnet50", 240, 0.443419}};
  for (const auto& [name, states, whole] : kPublished) {
    const GraphProfile graph = Parsed(ReadFile(absl::StrCat(
        PACELINE_SOURCE_DIR, "/tests/data/pipedream/", name, ".txt")));
    const StateSpace space = *StatesOf(graph);

    EXPECT_EQ(space.states, states + 1) << name;
    EXPECT_NEAR(space.seconds[space.last()], whole, 1e-12) << name;
    double seconds = 0;
    for (const LayerCost& layer : LayersOf(graph, space)) {
      seconds += layer.forward_seconds + layer.backward_seconds;
    }
    EXPECT_NEAR(seconds, whole, 1e-12) << name;
  }
}

}  // namespace
}  // namespace paceline
