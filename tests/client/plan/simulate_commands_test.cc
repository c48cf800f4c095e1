#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/plan/plan.h"
#include "client/dispatch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/command_line.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::ElementsAre;

SimulatedPlan Plan(const MachineFlags& flags) {
  return MakeSimulatedPlan(flags, nullptr).value();
}

// Two devices whose step takes (4 + 1) x 3 s.
MachineFlags TwoDevices() {
  MachineFlags flags;
  flags.devices = 2;
  flags.forward_seconds = 1;
  flags.bandwidths = {HUGE_VAL};
  flags.latency_seconds = 0;
  return flags;
}

json Simulated(const SimulateFlags& flags, const SimulatedPlan& plan) {
  CommandBed bed(OutputFormat::kJson);
  EXPECT_EQ(bed.Code(SimulateCommand(bed.console, flags, plan)), kExitOk);
  EXPECT_EQ(bed.err.str(), "");
  return bed.Output();
}

json Simulated(const SimulateFlags& flags) {
  return Simulated(flags, Plan(flags.machines));
}

SimulateFlags FourMicroBatches() {
  SimulateFlags flags;
  flags.machines = TwoDevices();
  flags.micro_batches = 4;
  return flags;
}

// --- simulated machines -----------------------------------------------------

TEST(SimulatedMachines, IsFourEqualDevicesByDefault) {
  const SimulatedPlan plan = Plan({});

  EXPECT_EQ(plan.problem.devices.size(), 4u);
  EXPECT_EQ(plan.problem.layers.size(), 4u);
  ASSERT_EQ(plan.placement.size(), 4u);
  EXPECT_THAT(plan.placement[3].devices, ElementsAre(3));
  EXPECT_DOUBLE_EQ(plan.problem.layers[0].backward_seconds, 0.02);
}

TEST(SimulatedMachines, HasADeviceForEachSpeedOrOneSpeedForAll) {
  const auto speeds = [](const MachineFlags& flags) {
    std::vector<double> all;
    for (const Device& device : Plan(flags).problem.devices) {
      all.push_back(device.speed);
    }
    return all;
  };
  MachineFlags each, all;
  each.speeds = {1, 0.5, 2};
  all.devices = 3;
  all.speeds = {2};

  EXPECT_THAT(speeds(each), ElementsAre(1, 0.5, 2));
  EXPECT_THAT(speeds(all), ElementsAre(2, 2, 2));
}

TEST(SimulatedMachines, ALinkIsAsFastAsItsSlowerPort) {
  MachineFlags flags;
  flags.bandwidths = {100, 10, 50};

  const PlanProblem problem = Plan(flags).problem;

  EXPECT_EQ(problem.links[0][2].bytes_per_second, 50);
  EXPECT_EQ(problem.links[2][1].bytes_per_second, 10);
}

TEST(SimulatedMachines, SpreadsLayersAndStages) {
  MachineFlags flags;
  flags.devices = 2;
  flags.layers = 8;
  flags.stages = 3;
  MachineFlags few_layers;
  few_layers.devices = 5;
  few_layers.layers = 2;

  EXPECT_EQ(
      Plan(flags).placement,
      (Placement{{{0, 3}, {0}, {1}}, {{3, 6}, {0}, {1}}, {{6, 8}, {1}, {1}}}));
  EXPECT_EQ(Plan(few_layers).placement.size(), 2u);
}

TEST(SimulatedMachines, TakesAModelsLayersByTheirFlops) {
  JobSpec spec;
  spec.model.name = "lenet";
  spec.train.optimizer.name = "adamw";
  MachineFlags flags;
  flags.devices = 2;
  flags.micro_batch_samples = 8;
  flags.flops_per_second = 1e6;

  const auto plan = MakeSimulatedPlan(flags, &spec).value();

  const auto model = DescribeModel(spec.model, {1, 28, 28}, 10);
  ASSERT_EQ(plan.problem.layers.size(), model->layers.size());
  const LayerCost& layer = plan.problem.layers[0];
  EXPECT_DOUBLE_EQ(layer.forward_seconds,
                   8 * model->layers[0].forward_flops / 1e6);
  EXPECT_DOUBLE_EQ(layer.output_bytes, 8.0 * model->layers[0].output_bytes);
  EXPECT_DOUBLE_EQ(plan.problem.parameter_copies, 4);
  EXPECT_EQ(plan.options.micro_batch_samples, 8);
}

// --- --slow and --fail ------------------------------------------------------

TEST(SlowFlag, NamesADeviceByNameOrNumber) {
  PlanProblem problem = Plan(TwoDevices()).problem;
  problem.devices[1].name = "pi@home";  // the last '@' ends a name

  for (const char* text : {"pi@home@2.5=3:10", "1@2.5=3:10"}) {
    const auto slow = ParseSlowDown(text, problem).value();

    EXPECT_EQ(slow.device, 1);
    EXPECT_EQ(slow.at_seconds, 2.5);
    EXPECT_EQ(slow.factor, 3);
    EXPECT_EQ(slow.for_seconds, 10);
  }
  EXPECT_TRUE(std::isinf(ParseSlowDown("d0@1=2", problem)->for_seconds));
}

TEST(FailFlag, MayComeBack) {
  const PlanProblem problem = Plan(TwoDevices()).problem;

  const auto back = ParseFailure("d1@4:2.5", problem);
  const auto gone = ParseFailure("0@4", problem);

  ASSERT_TRUE(back.ok() && gone.ok());
  EXPECT_EQ(back->device, 1);
  EXPECT_EQ(back->recover_after_seconds, 2.5);
  EXPECT_EQ(gone->device, 0);
  EXPECT_EQ(gone->at_seconds, 4);
  EXPECT_FALSE(gone->recover_after_seconds.has_value());
}

// --- the command ------------------------------------------------------------

// A plan's own problem is that of the run that is simulated.
TEST(Simulate, TheFormulaIsOfTheSameRunAsTheSimulation) {
  SimulateFlags flags = FourMicroBatches();
  SimulatedPlan plan = Plan(flags.machines);
  plan.planned = plan.problem;
  plan.planned->micro_batches = 1;
  EXPECT_DOUBLE_EQ(Simulated(flags, plan)["formula_step_seconds"], 15);

  flags.inference = true;
  const json inferred = Simulated(flags, plan);
  EXPECT_DOUBLE_EQ(inferred["formula_step_seconds"], inferred["step_seconds"]);
}

TEST(Simulate, RunsForwardsOnlyOfWhichMeasuredTimesAreAThird) {
  SimulateFlags flags = FourMicroBatches();
  flags.inference = true;
  SimulatedPlan plan = Plan(flags.machines);
  plan.problem.devices[0].layer_seconds = {6, 6};

  const json result = Simulated(flags);
  const json measured = Simulated(flags, plan);

  EXPECT_DOUBLE_EQ(result["step_seconds"], 5);
  EXPECT_EQ(result["training"], false);
  EXPECT_DOUBLE_EQ(measured["workers"][0]["seconds"]["forward"], 4 * 2);
}

TEST(Simulate, KeepsWhatThePlanSaysUnlessAFlagDoes) {
  SimulateFlags flags;
  flags.machines = TwoDevices();
  SimulatedPlan plan = Plan(flags.machines);
  plan.problem.micro_batches = 7;
  plan.options.schedule = "gpipe";
  plan.options.gate_seconds = 1;

  const json result = Simulated(flags, plan);

  EXPECT_EQ(result["micro_batches"], 7);
  EXPECT_EQ(result["schedule"], "gpipe");
  EXPECT_DOUBLE_EQ(result["step_seconds"], 8 * 3 + 1);
}

TEST(Simulate, WritesATraceThatIsJson) {
  SimulateFlags flags = FourMicroBatches();
  flags.trace_file = absl::StrCat(testing::TempDir(), "/simulate-trace.json");

  EXPECT_EQ(Simulated(flags)["trace"], flags.trace_file);

  std::ifstream file(flags.trace_file);
  const json trace = json::parse(file);
  EXPECT_GT(trace["traceEvents"].size(), 20u);
}

TEST(Simulate, AnswersACommandLine) {
  ExpectAnswers("client/simulate", [](const std::string& words) {
    const ClientOptions options = Parsed("simulate " + words);
    CommandBed bed(options.output == "json" ? OutputFormat::kJson
                                            : OutputFormat::kTable);
    const Tools tools;
    return bed.Said(
        RowOf(options).run({options, tools, bed.console, bed.clock}));
  });
}

}  // namespace
}  // namespace paceline
