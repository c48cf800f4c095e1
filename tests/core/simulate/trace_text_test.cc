#include "core/simulate/trace_text.h"

#include <map>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/simulate/chain.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::IsSupersetOf;

Chain Traced() {
  Chain chain = Chain::Equal(3, 4, true);
  chain.Bytes(100, 50, 20);
  chain.Link(400, 0.125);
  for (Device& device : chain.problem.devices) device.frame_seconds = 0.0625;
  chain.options.load_seconds = 0.5;
  chain.options.optimizer_seconds = {1, 1, 1};
  chain.options.keep_trace = true;
  return chain;
}

json Parse(const PlanProblem& problem, const SimulationTrace& trace) {
  return json::parse(TraceText(problem, trace))["traceEvents"];
}

// Events only: a temporary's member would not outlive a range-for's head.
json EventsOf(const Chain& chain) {
  return Parse(chain.problem, chain.Run().trace);
}

TEST(TraceText, IsJsonWithEventsInTheOrderOfTime) {
  double last = 0;
  int events = 0;
  for (const json& event : EventsOf(Traced())) {
    if (event["ph"] == "M") continue;
    EXPECT_GE(event["ts"].get<double>(), last);
    last = event["ts"];
    ++events;
  }
  EXPECT_GT(events, 100);
}

TEST(TraceText, NamesWhatIsDone) {
  std::set<std::string> names;
  for (const json& event : EventsOf(Traced())) {
    if (event["ph"] == "X") names.insert(event["name"]);
  }

  EXPECT_THAT(names, IsSupersetOf({"LOAD 0", "F 0", "F 3", "B 0", "B 3", "STEP",
                                   "send F 2", "receive F 2", "send B 1",
                                   "receive B 1"}));
}

TEST(TraceText, NamesDevicesAndTracks) {
  std::map<std::pair<int, int>, std::string> threads;
  std::set<std::string> processes;
  for (const json& event : EventsOf(Traced())) {
    if (event["name"] == "thread_name") {
      threads[{event["pid"], event["tid"]}] = event["args"]["name"];
    }
    if (event["name"] == "process_name") {
      processes.insert(event["args"]["name"].get<std::string>());
    }
  }

  EXPECT_EQ(processes, (std::set<std::string>{"d0", "d1", "d2"}));
  EXPECT_EQ((threads[{1, 0}]), "compute");
  EXPECT_EQ((threads[{1, 2}]), "to d0");
  EXPECT_EQ((threads[{1, 3}]), "to d2");
  EXPECT_EQ((threads[{2, 2}]), "to d1");
}

TEST(TraceText, SlicesOfOneTrackDoNotOverlap) {
  std::map<std::pair<int, int>, double> free_at;
  for (const json& event : EventsOf(Traced())) {
    if (event["ph"] != "X") continue;
    double& free = free_at[{event["pid"], event["tid"]}];
    EXPECT_GE(event["ts"].get<double>(), free - 0.01) << event;
    free = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_GE(free_at.size(), 6u);
}

TEST(TraceText, SlicesSayWhenStageAndStep) {
  Chain chain = Chain::Equal(2, 3, false);
  chain.options.keep_trace = true;
  chain.options.steps = 2;

  bool found = false;
  for (const json& event : EventsOf(chain)) {
    if (event["ph"] != "X" || event["name"] != "F 1" || event["pid"] != 1 ||
        event["args"]["step"] != 1) {
      continue;
    }
    found = true;
    EXPECT_DOUBLE_EQ(event["ts"], 5e6);
    EXPECT_DOUBLE_EQ(event["dur"], 1e6);
    EXPECT_EQ(event["args"]["stage"], 1);
  }
  EXPECT_TRUE(found);
}

TEST(TraceText, MemoryIsACounterWhosePeakIsTheResults) {
  const Chain chain = Traced();
  const SimulationResult result = chain.Run();

  std::map<int, double> peak;
  for (const json& event : Parse(chain.problem, result.trace)) {
    if (event["ph"] != "C") continue;
    double& most = peak[event["pid"]];
    most = std::max(most, event["args"]["bytes"].get<double>());
  }
  for (int d = 0; d < 3; ++d) {
    EXPECT_DOUBLE_EQ(peak[d], result.devices[d].peak_bytes);
  }
}

TEST(TraceText, NamesOfDevicesMayHoldAnything) {
  Chain chain = Chain::Equal(1, 1, false);
  chain.problem.devices[0].name = "a\"b\\c\n\x01 ü";
  chain.options.keep_trace = true;

  std::vector<std::string> names;
  for (const json& event : EventsOf(chain)) {
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
  }

  EXPECT_THAT(names, Contains("a\"b\\c\n\x01 ü"));
}

TEST(TraceText, OfNothingIsStillJson) {
  const json events = Parse(PlanProblem(), SimulationTrace());

  EXPECT_TRUE(events.is_array());
  EXPECT_TRUE(events.empty());
}

TEST(TraceText, ShowsWhatAFailureCut) {
  Chain chain = Chain::Equal(1, 4, false);
  chain.options.keep_trace = true;
  chain.options.failures = {{.at_seconds = 1.5, .device = 0}};

  json cut;
  for (const json& event : EventsOf(chain)) {
    if (event["name"] == "F 1") cut = event;
  }

  EXPECT_DOUBLE_EQ(cut["ts"], 1e6);
  EXPECT_DOUBLE_EQ(cut["dur"], 0.5e6);
}

}  // namespace
}  // namespace paceline
