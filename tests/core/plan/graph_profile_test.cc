#include "core/plan/pipedream/graph_profile.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/plan/pipedream/state_space.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

TEST(ParseGraphProfile, ReadsMillisecondsBytesAndEdges) {
  const GraphProfile graph = Parsed(Node("a", "Conv2d(3, 64, bias=False)") +
                                    Node("b") + Edge("a", "b"));

  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[0], (ProfileNode{"a", "Conv2d(3, 64, bias=False)",
                                         0.001, 0.002, 8, 4, 1}));
  EXPECT_EQ(graph.edges, (std::vector<std::pair<int, int>>{{0, 1}}));
}

TEST(ParseGraphProfile, AddsUpListsOfOutputs) {
  EXPECT_EQ(Parsed(Node("a", "L", NumbersWith("[4.0; 2.0; 1]")))
                .nodes[0]
                .output_bytes,
            7);
}

TEST(ParseGraphProfile, AllowsZerosCarriageReturnsEmptyLinesAndStageIds) {
  const GraphProfile graph =
      Parsed("\r\n" + Node("a", "", NumbersWith("0.0")) + "\n\r\n" +
             Node("b", "x -- y", NumbersWith("1") + " -- stage_id=3") +
             "\ta -- b\r\n\n");

  ASSERT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[1].description, "x -- y");
  EXPECT_EQ(graph.nodes[1].line, 5);
}

TEST(ParseGraphProfile, AllowsAnEdgeTwiceAndBeforeItsNodes) {
  const GraphProfile graph =
      Parsed(Edge("a", "b") + Edge("a", "b") + Node("a") + Node("b"));

  EXPECT_EQ(graph.edges.size(), 1u);
}

TEST(ParseGraphProfile, LeavesOutInputsAndOutputsThatNothingUses) {
  const GraphProfile graph =
      Parsed(Node("in", "Input0") + Node("a", "LSTM(2)") +
             Node("b", "__getitem__(1)") + Node("c", "__getitem__(0)") +
             Node("d", "Input like") + Edge("in", "a") + Edge("a", "b") +
             Edge("a", "c") + Edge("c", "d"));

  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[2].id, "d");
  EXPECT_EQ(graph.edges.size(), 2u);
}

TEST(ParseGraphProfile, KeepsAnOutputThatIsTheOnlyEnd) {
  EXPECT_EQ(Parsed(Node("a") + Node("b", "__getitem__(0)") + Edge("a", "b"))
                .nodes.size(),
            2u);
}

TEST(ParseGraphProfile, RefusesGarbageWithItsLine) {
  ExpectWrong(Node("a") + "what is this\n", "line 2: need 'id -- desc");
  ExpectWrong(Node("a") + std::string("\x01\x7f\0\xff", 4) + "\n",
              "\\x01\\x7f\\x00\\xff");
  ExpectWrong(Node("a") + "\tnonsense\n", "line 2: need '<tab>from -- to'");
  ExpectWrong(Node("a") + "\ta -- b -- c\n", "line 2: need '<tab>from -- to'");
  ExpectWrong(" -- L -- forward_compute_time=1\n", "line 1: need 'id");
}

TEST(ParseGraphProfile, RefusesNumbersThatAreNone) {
  for (const char* const bad : {"-1", "nan", "inf", "-inf", "1e19", "1e999"}) {
    ExpectWrong("\n" + Node("a", "L", NumbersWith(bad)),
                "line 2: activation_size is ");
  }
  for (const char* const bad : {"", "x", "1.5.2", "[1; ]", "[]", "0x", "1 2"}) {
    ExpectWrong(Node("a", "L", NumbersWith(bad)), "need a number");
  }
  ExpectWrong(Node("a", "L", NumbersWith("[1; 2")), "without its ']'");
  ExpectWrong(Node("a", "L", NumbersWith("[1; -2]")), "is -2, need 0 to");
}

TEST(ParseGraphProfile, RefusesNumbersThatAreMissingOrTooMany) {
  ExpectWrong(Node("a", "L", "forward_compute_time=1"),
              "line 1: need backward_compute_time=NUMBER, got ''");
  ExpectWrong(Node("a", "L",
                   "forward_compute_time=1, backward_compute_time=1, "
                   "activation_size=1"),
              "need parameter_size=NUMBER, got ''");
  ExpectWrong(Node("a", "L",
                   "forward_compute_time=1, activation_size=1, "
                   "parameter_size=1"),
              "need backward_compute_time=NUMBER, got 'activation_size=1'");
  ExpectWrong(Node("a", "L", NumbersWith("1") + ", more=1"),
              "too much after parameter_size: 'more=1'");
}

TEST(ParseGraphProfile, RefusesWhatIsNoGraphOfOneSink) {
  ExpectWrong("", "no node");
  ExpectWrong("\n \n\t\n", "no node");
  ExpectWrong(Node("a", "Input0"), "inputs or unused outputs");
  ExpectWrong(Node("a", "__getitem__") + Node("b", "__getitem__"),
              "inputs or unused outputs");
  ExpectWrong(Node("a") + Node("b") + Node("a"),
              "line 3: node 'a' is there already, in line 1");
  ExpectWrong(Node("a") + Edge("a", "b"), "line 2: an edge names node 'b'");
  ExpectWrong(Node("a") + Edge("c", "a"), "line 2: an edge names node 'c'");
  ExpectWrong(
      Node("a") + Node("b") + Node("c") + Edge("a", "b") + Edge("a", "c"),
      "line 3: nothing uses node 'c', nor 'b' in line 2: 2 sinks");
}

TEST(ParseGraphProfile, RefusesCyclesAndNamesThem) {
  ExpectWrong(Node("a") + Edge("a", "a"),
              "line 2: the edge closes a cycle of 1");
  ExpectWrong(Node("s") + Node("a") + Node("b") + Node("t") + Edge("s", "a") +
                  Edge("b", "a") + Edge("a", "b") + Edge("b", "t"),
              "line 7: the edge closes a cycle of 2 nodes: a -> b -> a");
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

TEST(StatesOf, OfAChainAreItsPrefixes) {
  const GraphProfile graph = Parsed(Node("c") + Node("b") + Node("a") +
                                    Edge("a", "b") + Edge("b", "c"));

  const StateSpace space = *StatesOf(graph);

  EXPECT_EQ(space.states, 4);
  EXPECT_EQ(space.chains(), 1);
  EXPECT_EQ(space.NodesBetween(0, 1), std::vector<int>{2});
  EXPECT_DOUBLE_EQ(space.seconds[2], 2 * 0.003);
  EXPECT_EQ(space.parameter_bytes[3], 12);
  EXPECT_EQ(space.boundary_bytes[2], 8);
}

TEST(StatesOf, OfBranchesAreTheirCombinations) {
  const GraphProfile graph = Parsed(Diamond());

  const StateSpace space = *StatesOf(graph);

  // none, a, ab, ac, abc, abcd.
  EXPECT_EQ(space.states, 6);
  EXPECT_EQ(space.chains(), 2);
  int unrelated = 0;
  for (int s = 0; s < space.states; ++s) {
    for (int k = 0; k < s; ++k) {
      unrelated += !space.IsInside(k, s) && !space.IsInside(s, k);
    }
  }
  EXPECT_EQ(unrelated, 1);
}

TEST(StatesOf, CountOnlyWhatSomethingOutsideNeedsAsBoundary) {
  // a feeds b, c; in the state {a, b, c} nothing outside needs a any more, in
  // {a, b} c does.
  const GraphProfile graph = Parsed(Diamond());

  const StateSpace space = *StatesOf(graph);

  for (int s = 1; s < space.states; ++s) {
    const size_t nodes = space.NodesBetween(0, s).size();
    EXPECT_EQ(space.boundary_bytes[s], nodes == 2 || nodes == 3 ? 16 : 8);
  }
}

TEST(StatesOf, PullInOtherSourcesWithWhatNeedsThem) {
  // x is a source of its own, needed by c.
  const GraphProfile graph =
      Parsed(Node("x") + Node("a") + Node("b") + Node("c") + Edge("a", "b") +
             Edge("b", "c") + Edge("x", "c") + Edge("a", "c"));

  const StateSpace space = *StatesOf(graph);

  EXPECT_EQ(space.states, 4);
  EXPECT_EQ(space.NodesBetween(2, 3), (std::vector<int>{0, 3}));
}

TEST(StatesOf, CoverAGridByAsFewChainsAsItIsWide) {
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
  EXPECT_EQ(space.chains(), 3);
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

TEST(LayersOf, HoldEachNodeOnceInALongestChain) {
  const GraphProfile graph = Parsed(Diamond());

  const std::vector<LayerCost> layers = LayersOf(graph, *StatesOf(graph));

  ASSERT_EQ(layers.size(), 4u);
  for (const LayerCost& layer : layers) {
    EXPECT_DOUBLE_EQ(layer.forward_seconds, 0.001);
    EXPECT_DOUBLE_EQ(layer.backward_seconds, 0.002);
    EXPECT_EQ(layer.parameter_bytes, 4);
    EXPECT_EQ(layer.kept_bytes, 8);
  }
  EXPECT_EQ(layers[0].name, "a");
  EXPECT_EQ(layers[1].output_bytes, 16);
  EXPECT_EQ(layers[3].output_bytes, 8);
}

TEST(LayersOf, PreferTheOrderWithTheLightestBoundaries) {
  // The branch that shrinks what is sent goes first.
  const GraphProfile graph = Parsed(
      Node("a") + Node("big", "L", NumbersWith("900")) +
      Node("small", "L", NumbersWith("1")) + Node("d") + Edge("a", "big") +
      Edge("a", "small") + Edge("big", "d") + Edge("small", "d"));

  EXPECT_EQ(LayersOf(graph, *StatesOf(graph))[1].name, "small");
}

TEST(LayersOf, NamePartOfManyNodes) {
  const GraphProfile graph =
      Parsed(Node("a") + Node("v") + Node("w") + Node("x") + Node("y") +
             Node("z") + Edge("a", "z") + Edge("v", "z") + Edge("w", "z") +
             Edge("x", "z") + Edge("y", "z"));

  EXPECT_EQ(LayersOf(graph, *StatesOf(graph))[1].name, "v+w+x+2 more");
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
    EXPECT_NEAR(space.seconds[space.last], whole, 1e-12) << name;
    double seconds = 0;
    for (const LayerCost& layer : LayersOf(graph, space)) {
      seconds += layer.forward_seconds + layer.backward_seconds;
    }
    EXPECT_NEAR(seconds, whole, 1e-12) << name;
  }
}

}  // namespace
}  // namespace paceline
