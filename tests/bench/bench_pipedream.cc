// How long planning by the pipedream cost model takes: published profiles as
// the released optimizer was run on them, and made ones of 1,000 states.  With
// --check ends with 1 when one takes more CPU than it may, in its fastest run.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "core/base/check.h"
#include "core/base/random.h"
#include "core/plan/pipedream_model.h"
#include "tests/bench/checked_main.h"

namespace paceline {
namespace {

bool has_run = false;
bool is_too_slow = false;

GraphProfile Published(const std::string& name) {
  std::ifstream file(absl::StrCat(PACELINE_SOURCE_DIR, "/tests/data/pipedream/",
                                  name, ".txt"));
  std::stringstream text;
  text << file.rdbuf();
  auto graph = ParseGraphProfile(text.str());
  PACELINE_CHECK(graph.ok(), graph.status().ToString());
  return *std::move(graph);
}

int AddNode(GraphProfile& graph, SplitMix64& random,
            const std::vector<int>& from) {
  const int node = static_cast<int>(graph.nodes.size());
  graph.nodes.push_back({absl::StrCat("node", node), "made",
                         random.Unit() * 5e-3, random.Unit() * 8e-3,
                         random.Unit() * 2e8, random.Unit() * 2e7, node + 1});
  for (const int each : from) graph.edges.emplace_back(each, node);
  return node;
}

// Blocks of `branches` branches side by side, of as many nodes, after one
// another.
GraphProfile Made(int blocks, int branches, int nodes) {
  GraphProfile graph;
  SplitMix64 random(1);
  int end = AddNode(graph, random, {});
  for (int block = 0; block < blocks; ++block) {
    std::vector<int> ends;
    for (int branch = 0; branch < branches; ++branch) {
      int at = end;
      for (int i = 0; i < nodes; ++i) at = AddNode(graph, random, {at});
      ends.push_back(at);
    }
    end = AddNode(graph, random, ends);
  }
  return graph;
}

struct Case {
  std::string name;
  GraphProfile graph;
  std::vector<int> sizes;
  double most_seconds;
};

void Plan(benchmark::State& state, const Case& each) {
  const GraphProfile& graph = each.graph;
  const std::vector<int>& sizes = each.sizes;
  double fastest_seconds = HUGE_VAL;
  PipedreamRequest request;
  request.machines = {sizes, {1e10, 1.25e9}, 0};
  if (sizes.size() == 1) request.machines.bytes_per_second = {1.25e9};
  request.count_transfers = state.range(0) != 0;
  for (auto _ : state) {
    const std::clock_t begin = std::clock();
    const auto space = StatesOf(graph);
    PACELINE_CHECK(space.ok(), space.status().ToString());
    const auto answer = PlanPipedream(graph, *space, request);
    PACELINE_CHECK(answer.ok(), answer.status().ToString());
    fastest_seconds =
        std::min(fastest_seconds,
                 static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    state.counters["states"] = space->states;
    state.counters["chains"] = space->chains();
    state.counters["speed_up"] = answer->speed_up;
  }
  has_run = true;
  if (fastest_seconds <= each.most_seconds) return;
  std::fprintf(stderr, "%s takes %.4f s, at most %.4f s are allowed\n",
               each.name.c_str(), fastest_seconds, each.most_seconds);
  is_too_slow = true;
}

void Add(const Case& each) {
  benchmark::RegisterBenchmark(
      each.name.c_str(), [each](benchmark::State& state) { Plan(state, each); })
      ->ArgName("transfers")
      ->Arg(0)
      ->Arg(1)
      ->Unit(benchmark::kMillisecond);
}

void AddAll() {
  for (const std::string name :
       {"vgg16", "alexnet", "squeezenet1_0", "gnmt", "resnet50"}) {
    const double most_seconds = name == "resnet50" ? 0.1 : 0.05;
    Add({name + "/16", Published(name), {16}, most_seconds});
    Add({name + "/4x4", Published(name), {4, 4}, most_seconds});
  }
  for (const int size : {8, 16}) {
    const std::string on = absl::StrCat("/", size, "x", size);
    const std::vector<int> sizes = {size, size};
    const double most_seconds = size == 8 ? 2 : HUGE_VAL;  // 16x16: shown
    Add({"chain_of_1000" + on, Made(998, 1, 0), sizes, most_seconds});
    Add({"2_branches" + on, Made(55, 2, 3), sizes, most_seconds});
    Add({"4_branches" + on, Made(11, 4, 2), sizes, HUGE_VAL});
    Add({"one_block" + on, Made(1, 2, 30), sizes, most_seconds});
  }
}

}  // namespace
}  // namespace paceline

int main(int argc, char** argv) {
  paceline::AddAll();
  return paceline::CheckedMain(
      argc, argv, [] { return paceline::has_run && !paceline::is_too_slow; });
}
