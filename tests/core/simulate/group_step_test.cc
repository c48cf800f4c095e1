#include "core/simulate/group_step.h"

#include <map>
#include <string>

#include "core/plan/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"

namespace paceline {
namespace {

using testing::HasSubstr;

// Little beside the seconds on the ports: CPU of checks and sums.
constexpr double kCpu = 0.02;

// Members on hosts of their own, that do nothing and have links of 100 MB/s.
GroupProblem Group(size_t members) {
  GroupProblem problem;
  problem.links.assign(members, std::vector<LinkCost>(members, {1e8, 0}));
  for (size_t m = 0; m < members; ++m) {
    problem.members.push_back({.host = static_cast<int>(m)});
    problem.host_cores.push_back(2);
  }
  return problem;
}

GroupProblem OnOneHost(GroupProblem problem, double cores) {
  for (MemberCost& member : problem.members) member.host = 0;
  problem.host_cores = {cores};
  return problem;
}

TEST(GroupStep, AServersPortTakesAllPartsAndSendsAllResults) {
  GroupProblem problem = Group(4);
  problem.gradient_bytes = 1e8;

  const GroupStep step = PredictGroupStep(problem, 1);

  EXPECT_NEAR(step.compute, 3, kCpu) << "three parts of a second each";
  EXPECT_NEAR(step.results, 3, kCpu);
}

TEST(GroupStep, ShardsSpreadTheBytesOverAllPorts) {
  GroupProblem problem = Group(4);
  problem.gradient_bytes = 1e8;

  EXPECT_NEAR(PredictGroupStep(problem, 2).seconds(), 2 * 1.5, kCpu)
      << "a server takes half a gradient of three others, and sends it";
  EXPECT_NEAR(PredictGroupStep(problem, 4).seconds(), 2 * 0.75, kCpu)
      << "each takes a quarter of three others";
}

TEST(GroupStep, PartsLeaveWhileTheLastBackwardRuns) {
  GroupProblem problem = Group(2);
  problem.gradient_bytes = 1e8;
  for (MemberCost& member : problem.members) {
    member.compute_seconds = 2;
    member.last_backward_seconds = 0.25;
  }

  const GroupStep step = PredictGroupStep(problem, 1);

  EXPECT_NEAR(step.compute, 2 - 0.25 + 1, kCpu);
  EXPECT_NEAR(step.results, 1, kCpu);
}

TEST(GroupStep, AQuotaStretchesCompute) {
  GroupProblem problem = Group(2);
  problem.members[1].compute_seconds = 0.01;
  problem.members[1].cpu_share = 0.4;

  EXPECT_NEAR(PredictGroupStep(problem, 1).seconds(), 0.025, 1e-9);
}

TEST(GroupStep, MembersOfAHostShareItsCores) {
  GroupProblem problem = Group(4);
  for (MemberCost& member : problem.members) {
    member.compute_seconds = 0.01;
    member.apply_seconds = 0.002;
  }

  EXPECT_NEAR(PredictGroupStep(problem, 1).seconds(), 0.012, 1e-9);
  EXPECT_NEAR(PredictGroupStep(OnOneHost(problem, 2), 1).seconds(), 0.024, 1e-9)
      << "48 ms of work on two cores";
  EXPECT_NEAR(PredictGroupStep(OnOneHost(problem, 0), 1).seconds(), 0.012, 1e-9)
      << "nobody knows how many cores there are";
}

TEST(GroupStep, MessagesCostCpuAtBothEndsAndWaitForTheLink) {
  GroupProblem problem = Group(2);
  for (MemberCost& member : problem.members) member.message_seconds = 0.001;

  EXPECT_NEAR(PredictGroupStep(problem, 1).seconds(), 0.004, 1e-9)
      << "a part, a result, a hold and a commit";

  problem.links[0][1].latency_seconds = problem.links[1][0].latency_seconds =
      0.01;
  EXPECT_NEAR(PredictGroupStep(problem, 1).seconds(), 0.044, 1e-9);
}

TEST(GroupStep, MoreShardsAreMoreMessages) {
  GroupProblem problem = Group(4);
  for (MemberCost& member : problem.members) member.message_seconds = 0.001;

  EXPECT_NEAR(PredictGroupStep(problem, 1).seconds(), 0.003 + 0.003 + 0.006,
              1e-9);
  EXPECT_NEAR(PredictGroupStep(problem, 4).seconds(), 0.006 + 0.006 + 0.006,
              1e-9)
      << "each sends three parts and takes three, and so with results";
}

TEST(GroupStep, ACentralServerIsAlwaysTheFirstMember) {
  GroupProblem problem = Group(2);
  problem.gradient_bytes = 1e8;
  problem.links[0][1].bytes_per_second = 5e7;

  EXPECT_NEAR(PredictGroupStep(problem, 1).results, (2 + 1) / 2.0, kCpu);
  problem.central = true;
  EXPECT_NEAR(PredictGroupStep(problem, 1).results, 2, kCpu);
}

// --- What becomes of a job
// ----------------------------------------------------

struct Mesh {
  JobSpec spec;
  ModelDescription model = SmallModel(2);
  std::vector<MemberInput> members;
  Measurements measurements;
};

void SetParameters(int64_t count, Mesh& mesh) {
  Parameter parameter;
  parameter.name = "weight";
  parameter.shape = {count};
  mesh.model.layers[0].parameters = {parameter};
}

// Each layer takes 1 ms forward and 2 ms backward.
Mesh MeshOf(int members) {
  Mesh mesh;
  mesh.spec.train.batch = 8 * members;
  mesh.spec.train.micro_batch = 8;
  mesh.spec.aggregation.mode = "rolling";
  std::map<std::string, LayerMeasurement> layers;
  for (int m = 0; m < members; ++m) {
    const std::string name(1, static_cast<char>('a' + m));
    layers[name].forward = {0.001, 0, 0.001};
    layers[name].backward = {0.002, 0, 0.002};
    mesh.members.push_back({{name, name, 0}, 1, name, 1});
  }
  mesh.measurements = MeasuredOn(mesh.spec, mesh.model, layers);
  SetParameters(4, mesh);
  return mesh;
}

RunEstimate EstimateOf(const Mesh& mesh) {
  return Value(
      EstimateGroup(mesh.spec, mesh.model, mesh.members, mesh.measurements));
}

TEST(EstimateGroup, AMemberComputesItsShareOfTheBatch) {
  Mesh mesh = MeshOf(1);
  mesh.spec.train.batch = 24;

  const RunEstimate alone = EstimateOf(mesh);

  EXPECT_GT(alone.step_seconds, 3 * 0.006);
  EXPECT_LT(alone.step_seconds, 4 * 0.006);
  EXPECT_EQ(alone.shards, 1);
  EXPECT_THAT(alone.shards_why, HasSubstr("one member"));
}

TEST(EstimateGroup, SaysWhatBoundsTheStep) {
  Mesh mesh = MeshOf(2);
  std::map<std::string, LayerMeasurement> layers;
  layers["a"].forward = {0.001, 0, 0.001};
  layers["b"].forward = {0.003, 0, 0.003};
  for (auto& [name, layer] : layers) layer.backward = {0.002, 0, 0.002};
  mesh.measurements = MeasuredOn(mesh.spec, mesh.model, layers);

  EXPECT_THAT(EstimateOf(mesh).bound,
              HasSubstr("b sets the pace: it computes 0.01"));

  SetParameters(100'000'000, mesh);
  EXPECT_THAT(EstimateOf(mesh).bound, HasSubstr("the exchange sets the pace"));
}

TEST(EstimateGroup, AGradientThatTravelsCodedCostsItsCoding) {
  Mesh mesh = MeshOf(1);
  SetParameters(100'000'000, mesh);
  const double plain = EstimateOf(mesh).step_seconds;

  mesh.spec.aggregation.codec = "bf16";

  EXPECT_GT(EstimateOf(mesh).step_seconds, plain + 0.01);
}

TEST(EstimateGroup, ChoosesAsManyShardsAsAreFastest) {
  Mesh mesh = MeshOf(4);
  SetParameters(1 << 22, mesh);
  for (auto& [ends, link] : mesh.measurements.links) {
    link.bytes_per_second = 1e8;
  }

  const RunEstimate large = EstimateOf(mesh);
  EXPECT_EQ(large.shards, 4) << large.shards_why;
  EXPECT_THAT(large.shards_why, HasSubstr("with 1"));

  mesh.spec.aggregation.rule = "krum";
  EXPECT_EQ(EstimateOf(mesh).shards, 1);
  mesh.spec.aggregation.rule = "mean";
  mesh.spec.aggregation.shards = 2;
  const RunEstimate told = EstimateOf(mesh);
  EXPECT_EQ(told.shards, 2);
  EXPECT_EQ(told.shards_why, "");
  EXPECT_GT(told.step_seconds, large.step_seconds);
}

TEST(EstimateGroup, ASmallGradientOfDearMessagesIsNotCut) {
  Mesh mesh = MeshOf(4);
  SetParameters(4096, mesh);
  for (auto& [key, profile] : mesh.measurements.profiles) {
    profile.frame_seconds = 0.01;
  }

  EXPECT_EQ(EstimateOf(mesh).shards, 1);
}

TEST(EstimateGroup, LittleMemoryMakesMoreShardsThanAreFastest) {
  Mesh mesh = MeshOf(4);
  SetParameters(1 << 16, mesh);
  for (auto& [key, profile] : mesh.measurements.profiles) {
    profile.frame_seconds = 0.1;
  }
  ASSERT_EQ(EstimateOf(mesh).shards, 1);

  mesh.spec.aggregation.shards = 4;
  for (MemberInput& member : mesh.members) {
    member.worker.memory_bytes = MemberBytes(mesh.spec, mesh.model, 4);
  }
  mesh.spec.aggregation.shards = 0;

  const RunEstimate cramped = EstimateOf(mesh);
  EXPECT_EQ(cramped.shards, 4);
  EXPECT_THAT(cramped.shards_why, HasSubstr("no memory for 1, 2"));
}

}  // namespace
}  // namespace paceline
