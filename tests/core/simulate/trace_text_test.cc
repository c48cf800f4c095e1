#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "core/base/random.h"
#include "core/schedule/schedule.h"
#include "core/simulate/simulation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/core/simulate/chain.h"
#include "tests/core/simulate/trace_format.h"

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

std::string Joined(const std::vector<std::string>& problems) {
  return absl::StrJoin(problems, "\n");
}

// Times of chance: sums that no decimal ends.
TEST(TraceText, IsWhatTheFormatSaysUnderEverySchedule) {
  SplitMix64 random(5);
  for (const std::string& schedule : ScheduleNames()) {
    for (const bool training : {true, false}) {
      for (int round = 0; round < 8; ++round) {
        Chain chain = Chain::Equal(4, 8, training);
        for (LayerCost& layer : chain.problem.layers) {
          layer.forward_seconds = 1e-4 * random.Unit();
          layer.backward_seconds = 2e-4 * random.Unit();
          layer.output_bytes = std::floor(1e4 * random.Unit());
          layer.parameter_bytes = 100;
        }
        chain.Link(1e8 * (0.1 + random.Unit()), 1e-5 * random.Unit());
        for (Device& device : chain.problem.devices) {
          device.frame_seconds = 1e-5 * random.Unit();
        }
        chain.options.schedule = schedule;
        chain.options.steps = 2;
        chain.options.keep_trace = true;

        const auto problems = TraceFormat::ProblemsOf(
            TraceText(chain.problem, chain.Run().trace));

        ASSERT_TRUE(problems.empty()) << schedule << ": " << Joined(problems);
      }
    }
  }
}

TEST(TraceText, OfReplicasAndAFailureIsWhatTheFormatSays) {
  Chain chain = Traced();
  chain.placement = {{{0, 3}, {0, 1, 2}, {0.5, 0.3, 0.2}}};
  chain.options.optimizer_seconds = {1};
  chain.options.steps = 2;
  chain.options.failures = {
      {.at_seconds = 2, .device = 1, .recover_after_seconds = 3}};

  const auto problems =
      TraceFormat::ProblemsOf(TraceText(chain.problem, chain.Run().trace));

  EXPECT_TRUE(problems.empty()) << Joined(problems);
}

// The check itself: each thing that would not open, or look wrong, is found.
TEST(TraceFormat, FindsWhatIsBroken) {
  const Chain chain = Traced();
  const std::string good = TraceText(chain.problem, chain.Run().trace);
  ASSERT_TRUE(TraceFormat::ProblemsOf(good).empty());
  const json whole = json::parse(good);
  const auto first = [&](const char* phase) {
    size_t index = 0;
    while (whole["traceEvents"][index]["ph"] != phase) ++index;
    return index;
  };
  const auto broken = [&](const char* phase, const auto& change) {
    json trace = whole;
    change(trace["traceEvents"][first(phase)]);
    return !TraceFormat::ProblemsOf(trace.dump()).empty();
  };

  EXPECT_FALSE(TraceFormat::ProblemsOf(good.substr(0, 300)).empty());
  EXPECT_FALSE(TraceFormat::ProblemsOf("[]").empty());
  for (const char* key : {"name", "ph", "pid", "tid", "ts", "dur"}) {
    EXPECT_TRUE(broken("X", [&](json& event) { event.erase(key); })) << key;
  }
  EXPECT_TRUE(broken("X", [](json& event) { event["dur"] = -0.001; }));
  EXPECT_TRUE(broken("X", [](json& event) { event["dur"] = "1"; }));
  EXPECT_TRUE(broken("X", [](json& event) { event["dur"] = 6e5; }));
  EXPECT_TRUE(broken("X", [](json& event) { event["ts"] = 9e9; }));
  EXPECT_TRUE(broken("X", [](json& event) { event["ph"] = "Q"; }));
  EXPECT_TRUE(broken("X", [](json& event) { event["tid"] = 77; }));
  EXPECT_TRUE(broken("X", [](json& event) { event["pid"] = 77; }));
  EXPECT_TRUE(broken("C", [](json& event) { event["args"] = json::object(); }));
  EXPECT_TRUE(broken("C", [](json& event) { event["args"]["bytes"] = "1"; }));
  EXPECT_TRUE(broken("M", [](json& event) { event["args"] = nullptr; }));
  EXPECT_TRUE(broken("M", [](json& event) { event["name"] = "proces_name"; }));
}

}  // namespace
}  // namespace paceline
