#include <cmath>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/simulate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

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
  EXPECT_EQ(SimulateCommand(bed.console, flags, plan), kExitOk);
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

std::string ErrorOf(const SimulateFlags& flags) {
  CommandBed bed(OutputFormat::kJson);
  EXPECT_EQ(SimulateCommand(bed.console, flags, Plan(flags.machines)),
            kExitUsage);
  EXPECT_EQ(bed.out.str(), "");
  return bed.err.str();
}

std::string ErrorOf(const MachineFlags& flags, const JobSpec* model = nullptr) {
  const auto plan = MakeSimulatedPlan(flags, model);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(plan.status().message());
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

TEST(SimulatedMachines, RefusesAModelThatThereIsNotOrWithoutABatch) {
  JobSpec unknown, lenet;
  unknown.model.name = "lenett";
  lenet.model.name = "lenet";
  MachineFlags flags;
  flags.micro_batch_samples = 8;

  EXPECT_THAT(
      ErrorOf(flags, &unknown),
      Says("--model: there is no model 'lenett'", "did you mean 'lenet'?"));
  EXPECT_THAT(ErrorOf({}, &lenet),
              HasSubstr("--model needs --batch, the samples"));
}

TEST(SimulatedMachines, NamesTheFlagThatIsWrong) {
  const struct {
    void (*change)(MachineFlags&);
    const char* says;
  } kCases[] = {
      {[](MachineFlags& f) { f.devices = 0; },
       "--devices: got 0, need 1 to 4096"},
      {[](MachineFlags& f) { f.layers = -1; }, "--layers: got -1"},
      {[](MachineFlags& f) {
         f.speeds = {1, 0};
       },
       "--speed: got 0, need a number above 0"},
      {[](MachineFlags& f) { f.speeds = {HUGE_VAL}; }, "--speed: got inf"},
      {[](MachineFlags& f) { f.bandwidths = {-1}; },
       "--bandwidth: got -1, need a number above 0, or inf"},
      {[](MachineFlags& f) { f.latency_seconds = NAN; }, "--latency: got nan"},
      {[](MachineFlags& f) { f.frame_seconds = -1; },
       "--frame-seconds: got -1"},
      {[](MachineFlags& f) { f.forward_seconds = HUGE_VAL; },
       "--forward: got inf"},
      {[](MachineFlags& f) { f.backward_seconds = -2; }, "--backward: got -2"},
      {[](MachineFlags& f) { f.output_bytes = -3; }, "--output-bytes: got -3"},
      {[](MachineFlags& f) { f.parameter_bytes = -3; },
       "--parameter-bytes: got -3"},
      {[](MachineFlags& f) { f.kept_bytes = -3; }, "--kept-bytes: got -3"},
      {[](MachineFlags& f) { f.flops_per_second = 0; }, "--flops: got 0"},
      {[](MachineFlags& f) { f.micro_batch_samples = -1; }, "--batch: got -1"},
      {[](MachineFlags& f) { f.stages = 5; },
       "--stages: got 5, need 1 to 4, the number of layers"},
  };
  for (const auto& one : kCases) {
    MachineFlags flags;
    one.change(flags);

    EXPECT_THAT(ErrorOf(flags), HasSubstr(one.says));
  }
}

TEST(SimulatedMachines, WantsAsManySpeedsAsDevices) {
  MachineFlags flags;
  flags.devices = 3;
  flags.speeds = {1, 2};

  EXPECT_THAT(ErrorOf(flags),
              HasSubstr("--speed: got 2 values, need one, or one for each of 3 "
                        "devices (--devices)"));
  flags.devices.reset();
  flags.bandwidths = {1, 2, 3};
  EXPECT_THAT(ErrorOf(flags), HasSubstr("--speed: got 2 values"));
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

TEST(SlowAndFail, SayWhatIsWrongAndWhatIsRight) {
  const struct {
    const char* flag;
    const char* value;
    const char* why;
  } kCases[] = {
      {"slow", "", "there is no '@'"},
      {"slow", "d1", "there is no '@'"},
      {"slow", "d1@5", "there is no '='"},
      {"slow", "d7@5=2",
       "there is no device 'd7', there are 2, d0 (0) to d1 (1)"},
      {"slow", "2@5=2", "there is no device '2'"},
      {"slow", "-1@5=2", "there is no device '-1'"},
      {"slow", "d1@x=2", "the time 'x' is no number"},
      {"slow", "d1@-1=2", "the time '-1' is no number of at least 0"},
      {"slow", "d1@inf=2", "the time 'inf'"},
      {"slow", "d1@5=", "the factor '' is no number"},
      {"slow", "d1@5=0.5", "a factor of 0.5 would be faster"},
      {"slow", "d1@5=2:", "the duration '' is no number"},
      {"slow", "d1@5=2:-3", "the duration '-3'"},
      {"fail", "d1", "there is no '@'"},
      {"fail", "@5", "there is no device ''"},
      {"fail", "d1@", "the time '' is no number"},
      {"fail", "d1@nan", "the time 'nan'"},
      {"fail", "d1@5:soon", "the time until it is back 'soon'"},
  };
  for (const auto& [flag, value, why] : kCases) {
    SimulateFlags flags = FourMicroBatches();
    const bool slow = flag == std::string("slow");
    (slow ? flags.slow : flags.fail) = {value};

    EXPECT_THAT(ErrorOf(flags),
                Says(absl::StrCat("--", flag, " '", value, "': ", why),
                     slow ? "need DEVICE@TIME=FACTOR[:DURATION]"
                          : "need DEVICE@TIME[:BACK]"));
  }
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

TEST(Simulate, PrintsOneDocument) {
  const json result = Simulated(FourMicroBatches());

  EXPECT_DOUBLE_EQ(result["step_seconds"], 15);
  EXPECT_DOUBLE_EQ(result["formula_step_seconds"], 15);
  EXPECT_DOUBLE_EQ(result["bubble_share"], 0.2);
  EXPECT_THAT(result, Includes(R"({
    "schedule": "1f1b", "stages": 2, "training": true,
    "samples_per_second": null, "failed_device": null})"));
  ASSERT_EQ(result["workers"].size(), 2u);
  const json& first = result["workers"][0];
  EXPECT_THAT(result["workers"][1],
              Includes(R"({"name": "d1", "stages": [1]})"));
  EXPECT_DOUBLE_EQ(first["seconds"]["forward"], 4);
  EXPECT_DOUBLE_EQ(first["bytes_sent"], 4e6);
  EXPECT_GT(first["peak_bytes"], result["workers"][1]["peak_bytes"]);
}

TEST(Simulate, PrintsATable) {
  CommandBed bed;
  SimulateFlags flags = FourMicroBatches();
  flags.machines.micro_batch_samples = 30;

  EXPECT_EQ(SimulateCommand(bed.console, flags, Plan(flags.machines)), kExitOk);

  EXPECT_THAT(bed.out.str(), Says("1f1b, 2 stages, 4 micro-batches", "15 s",
                                  "8 samples/s", "20.0 %", "DEVICE", "d1 "));
}

TEST(Simulate, ShowsOnlySoManyDevicesInATable) {
  CommandBed bed;
  SimulateFlags flags = FourMicroBatches();
  flags.machines.devices = 40;
  flags.machines.stages = 39;

  EXPECT_EQ(SimulateCommand(bed.console, flags, Plan(flags.machines)), kExitOk);

  EXPECT_THAT(bed.out.str(),
              Says("and 7 more; -o json shows all", "1 device holds no stage"));
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

TEST(Simulate, TellsOfFailuresAndRestarts) {
  SimulateFlags flags = FourMicroBatches();
  flags.steps = 2;
  flags.fail = {"d1@20:5", "d0@43"};

  const json result = Simulated(flags);

  EXPECT_EQ(result["steps"], json({15.0, 25.0}));
  EXPECT_EQ(result["restarts"], 1);
  EXPECT_DOUBLE_EQ(result["lost_seconds"], 10);
  EXPECT_TRUE(result["failed_device"].is_null());
}

TEST(Simulate, TellsWhoFailedForGood) {
  SimulateFlags flags = FourMicroBatches();
  flags.fail = {"d1@7"};
  CommandBed bed;

  EXPECT_EQ(Simulated(flags)["failed_device"], "d1");
  EXPECT_TRUE(Simulated(flags)["step_seconds"].is_null());
  EXPECT_EQ(SimulateCommand(bed.console, flags, Plan(flags.machines)), kExitOk);
  EXPECT_THAT(bed.out.str(), HasSubstr("d1 failed at 7 s, after 0 steps and 1 "
                                       "micro-batch of the next"));
}

TEST(Simulate, SlowsDown) {
  SimulateFlags flags = FourMicroBatches();
  flags.slow = {"d1@0=2"};

  EXPECT_GT(Simulated(flags)["step_seconds"], 15);
}

TEST(Simulate, WritesATraceThatIsJson) {
  SimulateFlags flags = FourMicroBatches();
  flags.trace_file = absl::StrCat(testing::TempDir(), "/simulate-trace.json");

  EXPECT_EQ(Simulated(flags)["trace"], flags.trace_file);

  std::ifstream file(flags.trace_file);
  const json trace = json::parse(file);
  EXPECT_GT(trace["traceEvents"].size(), 20u);
}

TEST(Simulate, SaysWhyATraceCannotBeWritten) {
  CommandBed bed;
  SimulateFlags flags = FourMicroBatches();
  flags.trace_file = "/no/such/folder/trace.json";

  EXPECT_EQ(SimulateCommand(bed.console, flags, Plan(flags.machines)),
            kExitFailed);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(),
              HasSubstr("--trace: cannot write /no/such/folder/trace.json"));
}

TEST(Simulate, NamesTheScheduleThatThereIsNotAndWantsMicroBatches) {
  SimulateFlags unknown = FourMicroBatches(), none = FourMicroBatches();
  unknown.schedule = "gpype";
  none.micro_batches = 0;

  EXPECT_THAT(ErrorOf(unknown),
              Says("--schedule: there is no schedule 'gpype'",
                   "did you mean 'gpipe'?", "there are: 1f1b, gpipe"));
  EXPECT_THAT(ErrorOf(none), HasSubstr("--micro-batches: got 0"));
}

}  // namespace
}  // namespace paceline
