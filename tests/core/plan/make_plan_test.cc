#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/random.h"
#include "core/model/catalog.h"
#include "core/plan/plan.h"
#include "core/plan/search/policy.h"
#include "core/schedule/schedule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "tests/support/job_changes.h"
#include "tests/support/small_model.h"
#include "tests/support/status_checks.h"
#include "tests/support/well_said.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

JobSpec Job(int stages) {
  JobSpec spec;
  spec.name = "job";
  spec.model.name = "small";
  spec.train.batch = 64;
  spec.train.micro_batch = 8;
  spec.pipeline.stages = stages;
  spec.pipeline.schedule = "1f1b";
  spec.pipeline.policy = "equal";
  return spec;
}

// Named a, b, ... with ids 10, 11, ..., memory not known.
std::vector<PlannerWorker> Workers(int count) {
  std::vector<PlannerWorker> workers;
  for (int i = 0; i < count; ++i) {
    workers.push_back({WorkerId{10 + i}, std::string(1, 'a' + i), 0, ""});
  }
  return workers;
}

std::vector<int64_t> Holders(const Plan& plan) {
  std::vector<int64_t> holders;
  for (const StageOfPlan& stage : plan.stages) {
    holders.push_back(stage.worker.value);
  }
  return holders;
}

// A layer takes so many seconds on each worker, links are fast.
Measurements Measured(const JobSpec& spec, const ModelDescription& model,
                      const std::vector<PlannerWorker>& workers,
                      const std::vector<double>& layer_seconds) {
  std::map<std::string, LayerMeasurement> layers;
  for (size_t i = 0; i < workers.size(); ++i) {
    layers[workers[i].name].forward.wall = layer_seconds[i];
  }
  return MeasuredOn(spec, model, layers);
}

// A question has parts with " | " between: how many layers, workers
// (a, b, ...); then what is known of each worker, in their order: seconds a
// layer, memory, slowness; and the job's changes.
struct Asked {
  JobSpec spec = Job(0);
  ModelDescription model;
  std::vector<PlannerWorker> workers = Workers(2);
  std::vector<double> seconds;
  double first_seconds = 0;  // of the first layer, forward; 0: as the others
};

Asked AskedIn(const std::string& question) {
  Asked asked;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(question, " | "))) {
    const std::vector<std::string> words = absl::StrSplit(part, ' ');
    const auto number = [&words](size_t i) { return std::stod(words.at(i)); };
    if (words[0] == "layers") {
      asked.model = SmallModel(std::stoi(words[1]));
    } else if (words[0] == "parameter-bytes") {
      for (Layer& layer : asked.model.layers) {
        layer.parameter_bytes = std::stoll(words[1]);
      }
    } else if (words[0] == "activation-bytes") {
      for (Layer& layer : asked.model.layers) {
        layer.activation_bytes = std::stoll(words[1]);
      }
    } else if (words[0] == "workers") {
      asked.workers = Workers(std::stoi(words[1]));
    } else if (words[0] == "turned") {
      std::reverse(asked.workers.begin(), asked.workers.end());
    } else if (words[0] == "first") {
      asked.first_seconds = number(1);
    } else if (words[0] == "infer") {
      asked.spec.kind = kInferKind;
      asked.spec.infer.micro_batch = 8;
      asked.spec.train = ForInference(asked.spec.infer, 1);
    } else if (words[0].find('=') != std::string::npos) {
      ChangeJob(asked.spec, part);
    } else {
      for (size_t i = 1; i < words.size(); ++i) {
        PlannerWorker& worker = asked.workers.at(i - 1);
        if (words[0] == "seconds") asked.seconds.push_back(number(i));
        if (words[0] == "memory") worker.memory_bytes = std::stoll(words[i]);
        if (words[0] == "slowness") worker.slowness = number(i);
      }
    }
  }
  return asked;
}

std::string PlanText(const Plan& plan,
                     const std::vector<PlannerWorker>& workers, bool routes) {
  std::string text;
  for (const StageOfPlan& stage : plan.stages) {
    const auto holder = std::find_if(
        workers.begin(), workers.end(),
        [&](const PlannerWorker& each) { return each.worker == stage.worker; });
    absl::StrAppend(&text, stage.layers.first, "-", stage.layers.last, " ",
                    holder->name);
    if (stage.share != 1) absl::StrAppendFormat(&text, " %.3f", stage.share);
    text += "  ";
  }
  if (routes) {
    for (const RouteTable& route : RoutesOf(plan.stages)) {
      absl::StrAppend(&text, "turns ", absl::StrJoin(route.turns(), " "), "  ");
    }
  }
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(text), "\n", plan.why);
}

std::string Answer(const std::string& question) {
  const Asked asked = AskedIn(question);
  Measurements measured;
  if (!asked.seconds.empty()) {
    measured = Measured(asked.spec, asked.model, asked.workers, asked.seconds);
  }
  for (auto& [key, profile] : measured.profiles) {
    if (asked.first_seconds > 0) {
      profile.layers[0].forward.wall = asked.first_seconds;
    }
  }
  const auto plan = MakePlan(asked.spec, asked.model, asked.workers, measured);
  const absl::Status plannable =
      CheckPlannable(asked.spec, asked.model, asked.workers);
  const std::string text = plan.ok()
                               ? PlanText(*plan, asked.workers,
                                          !asked.spec.pipeline.replicas.empty())
                               : plan.status().ToString();
  EXPECT_EQ(IllSaid(text), "") << text;
  if (plannable.ok() || plannable == plan.status()) return text;
  return absl::StrCat(text, "\nnot plannable: ", plannable.ToString());
}

TEST(MakePlan, AnswersWithStagesAndTheReason) {
  ExpectAnswers("core/plans", Answer);
}

TEST(MakePlan, ChoosesAmongTheFastestOfManyWorkers) {
  JobSpec spec = Job(2);
  spec.pipeline.policy = "optimal";
  const ModelDescription model = SmallModel(4);
  const std::vector<PlannerWorker> workers = Workers(70);
  std::vector<double> seconds(70, 0.02);
  seconds[0] = seconds[69] = 0.01;

  const auto plan = Value(
      MakePlan(spec, model, workers, Measured(spec, model, workers, seconds)));

  EXPECT_THAT(Holders(plan), UnorderedElementsAre(10, 79)) << plan.why;
  EXPECT_THAT(plan.why, HasSubstr("fastest 64 of 70"));
}

TEST(MakePlan, FitsWhereEqualStagesDoWhenWorkersAreFew) {
  const ModelDescription model = SmallModel(8);
  int by_policy = 0;
  int by_memory = 0;
  for (int64_t memory = 1000; memory < 20000; memory += 50) {
    JobSpec spec = Job(6);
    std::vector<PlannerWorker> workers = Workers(2);
    for (PlannerWorker& worker : workers) worker.memory_bytes = memory;
    const Measurements measurements =
        Measured(spec, model, workers, {0.01, 0.03});
    const bool fits = MakePlan(spec, model, workers, measurements).ok();
    spec.pipeline.policy = "optimal";

    const auto plan = MakePlan(spec, model, workers, measurements);

    EXPECT_TRUE(plan.ok() || !fits) << memory << ": " << plan.status();
    if (!plan.ok()) continue;
    by_policy += plan->why.starts_with("optimal (");
    by_memory += plan->why.starts_with("equal");
  }
  EXPECT_GT(by_policy, 0);
  EXPECT_GT(by_memory, 0);
}

// Counts the bytes that worker `index` needs for its stages, by the public
// pieces.
int64_t Need(const JobSpec& spec, const ModelDescription& model,
             const Plan& plan, const std::vector<int>& worker_of, int index) {
  const auto schedule =
      MakeSchedule({.name = spec.pipeline.schedule,
                    .stages = static_cast<int>(plan.stages.size()),
                    .micro_batches = 8,
                    .training = true,
                    .worker_of = worker_of});
  const auto bounds = CheckSchedule(*schedule);
  std::vector<LayerRange> ranges;
  std::vector<StageKeeps> kept;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    if (worker_of[stage] != index) continue;
    ranges.push_back(plan.stages[stage].layers);
    kept.push_back({bounds->kept_micro_batches[stage]});
  }
  return EstimateBytes(model, spec.train, ranges, kept);
}

TEST(MakePlan, MemoryThatJustSuffices) {
  const JobSpec spec = Job(3);
  const ModelDescription model = SmallModel(3);
  std::vector<PlannerWorker> workers = Workers(2);
  const auto unbounded = Value(MakePlan(spec, model, workers));

  const int64_t need = Need(spec, model, unbounded, {0, 0, 1}, 1);

  workers[1].memory_bytes = need;
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());

  workers[1].memory_bytes = need - 1;
  const auto without = Value(MakePlan(spec, model, workers));
  EXPECT_THAT(Holders(without), ElementsAre(10, 10, 10));
  EXPECT_THAT(
      without.why,
      AllOf(HasSubstr("planned without b: worker b has "), HasSubstr("stage 2"),
            HasSubstr(absl::StrCat("(", need - 1, " bytes)")),
            HasSubstr(absl::StrCat("(", need, " bytes)"))));

  workers[0].memory_bytes = 1;
  ExpectError(MakePlan(spec, model, workers).status(),
              absl::StatusCode::kResourceExhausted,
              StartsWith("worker a has 1 B"));
}

// A batch of 20 in micro-batches of 8 has three, the last one shorter.
TEST(MakePlan, CountsTheLastShorterMicroBatch) {
  JobSpec spec = Job(1);
  spec.pipeline.schedule = "gpipe";
  spec.train.batch = 20;
  const ModelDescription model = SmallModel(1);
  std::vector<PlannerWorker> workers = Workers(1);
  const int64_t need = EstimateBytes(model, spec.train, {{0, 1}}, {{3}});

  workers[0].memory_bytes = need;
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());
  workers[0].memory_bytes = need - 1;
  EXPECT_FALSE(MakePlan(spec, model, workers).ok());
}

// Four micro-batches; the policy is the default one.
JobSpec Scheduled(const std::string& schedule, int stages) {
  JobSpec spec = Job(stages);
  spec.train.batch = 32;
  spec.pipeline.schedule = schedule;
  spec.pipeline.policy = JobSpec().pipeline.policy;
  return spec;
}

TEST(MakePlan, CountsVersionsOfTheWeights) {
  JobSpec spec = Scheduled("pipedream", 2);
  spec.pipeline.cuts = {1};
  const ModelDescription model = SmallModel(2);
  const auto need = [&](int stage, int micro_batches, int versions) {
    return EstimateBytes(
        model, spec.train, {{stage, stage + 1}},
        {{.micro_batches = micro_batches, .versions = versions}});
  };
  std::vector<PlannerWorker> workers = Workers(2);
  workers[0].memory_bytes = need(0, 2, 2);
  workers[1].memory_bytes = need(1, 1, 1);
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());

  // NOAM versions everywhere: one more on the last stage.
  spec.pipeline.vertical_sync = true;
  EXPECT_EQ(MakePlan(spec, model, workers).status().code(),
            absl::StatusCode::kResourceExhausted);
  workers[1].memory_bytes = need(1, 1, 2);
  EXPECT_TRUE(MakePlan(spec, model, workers).ok());
}

// Workers "large" (10) and "small" (11).
std::vector<PlannerWorker> LargeAndSmall(int64_t large_bytes,
                                         int64_t small_bytes) {
  return {{WorkerId{10}, "large", large_bytes, "m"},
          {WorkerId{11}, "small", small_bytes, "n"}};
}

// Whether the job's plan with this cut fits the workers, in either order.
bool CutFits(JobSpec spec, const ModelDescription& model, int cut,
             const std::vector<PlannerWorker>& workers) {
  spec.pipeline.stages = 0;
  spec.pipeline.cuts = {cut};
  for (const bool turned : {false, true}) {
    spec.pipeline.workers = {workers[turned].name, workers[!turned].name};
    if (MakePlan(spec, model, workers).ok()) return true;
  }
  return false;
}

// The profiles measured less than the check counts: a search by these would
// choose a cut that is refused.
TEST(MakePlan, FindsTheCutsThatFit) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  JobSpec spec = Job(2);
  spec.pipeline.policy = "optimal";
  spec.model = DefaultModel("gpt2");
  spec.model.lora.rank = 4;
  spec.train.batch = 8;
  spec.train.micro_batch = 2;
  const ModelDescription model = Value(DescribeModel(spec.model, {192}, 50257));
  const std::vector<PlannerWorker> workers =
      LargeAndSmall(2007 * kMiB, 241 * kMiB);
  LayerMeasurement layer;
  layer.forward.wall = 0.01;
  layer.kept_bytes = 1;  // of what is kept, far less than described
  const Measurements measured =
      MeasuredOn(spec, model, {{"large", layer}, {"small", layer}});
  std::vector<int> fit;
  const int layers = static_cast<int>(model.layers.size());
  for (int cut = 1; cut < layers; ++cut) {
    if (CutFits(spec, model, cut, workers)) fit.push_back(cut);
  }
  ASSERT_THAT(fit, AllOf(SizeIs(Gt(0u)), SizeIs(Lt(10u))));

  const auto plan = Value(MakePlan(spec, model, workers, measured));

  ASSERT_THAT(plan.stages, SizeIs(2)) << plan.why;
  EXPECT_NE(plan.stages[0].worker, plan.stages[1].worker);
  EXPECT_THAT(fit, Contains(plan.stages[0].layers.last)) << plan.why;
}

// A plan of two stages on two workers is found if there is one.
TEST(MakePlan, FindsAFittingCutWhateverTheScheduleAndTheMemory) {
  SplitMix64 random(26);
  int fitting = 0, refused = 0;
  for (int round = 0; round < 300; ++round) {
    ModelDescription model = SmallModel(5);
    for (Layer& layer : model.layers) {
      layer.parameter_bytes = 100 * static_cast<int64_t>(random.Below(20));
      layer.activation_bytes = 10 * static_cast<int64_t>(random.Below(20));
    }
    JobSpec spec =
        Scheduled(std::vector<std::string>{"1f1b", "gpipe", "zero-bubble",
                                           "pipedream"}[random.Below(4)],
                  2);
    spec.pipeline.vertical_sync = random.Below(2) == 0;
    if (random.Below(3) == 0) {
      spec.train.activation_checkpointing = "every-2";
    }
    const auto some = [&random] {
      return 3000 + 300 * static_cast<int64_t>(random.Below(50));
    };
    const std::vector<PlannerWorker> workers = LargeAndSmall(some(), some());
    bool fits = false;
    for (int cut = 1; cut < 5; ++cut) {
      fits = fits || CutFits(spec, model, cut, workers);
    }
    fitting += fits ? 1 : 0;
    refused += fits ? 0 : 1;

    const auto plan = MakePlan(spec, model, workers);

    EXPECT_EQ(plan.ok() && plan->memory.size() == 2, fits)
        << round << " " << spec.pipeline.schedule << ": "
        << (plan.ok() ? plan->why : plan.status().message());
  }
  EXPECT_GT(fitting, 50);
  EXPECT_GT(refused, 50);
}

// 23.5 GiB and 24 MiB, of which the small one can hold nothing.
TEST(MakePlan, GoesWithoutAMachineThatHoldsNothing) {
  ModelDescription model = SmallModel(8);
  for (Layer& layer : model.layers) layer.parameter_bytes = 35 << 20;
  std::vector<PlannerWorker> workers =
      LargeAndSmall(int64_t{23} << 30, 24 << 20);
  std::swap(workers[0], workers[1]);
  const auto expect = [&](const JobSpec& spec, const char* what) {
    EXPECT_TRUE(CheckPlannable(spec, model, workers).ok()) << what;
    const auto plan = Value(MakePlan(spec, model, workers));
    for (const int64_t holder : Holders(plan)) EXPECT_EQ(holder, 10) << what;
    EXPECT_THAT(plan.why,
                AnyOf(HasSubstr("small is left out"),
                      HasSubstr("planned without small: worker small has "
                                "24.0 MiB")))
        << what;
  };
  for (const std::string& policy : PolicyNames()) {
    for (const int stages : {0, 2, 3}) {
      JobSpec spec = Job(stages);
      spec.pipeline.policy = policy;
      expect(spec, policy.c_str());
    }
  }
  expect(Scheduled("interleaved-1f1b", 4), "interleaved");
  JobSpec spec = Job(0);
  spec.pipeline.cuts = {2, 5};
  expect(spec, "cuts");
}

// Layers of 1 MiB, with as much of gradients.
ModelDescription ModelOfMiB(int layers) {
  ModelDescription model = SmallModel(layers);
  for (Layer& layer : model.layers) layer.parameter_bytes = 1 << 20;
  return model;
}

TEST(MakePlan, GivesTheJobsOwnStagesToWorkersThatHoldThem) {
  const struct {
    std::vector<int32_t> cuts;
    std::vector<int64_t> memory_mib;  // [stages], enough and not twice as much
  } kCases[] = {{{7}, {15, 3}},
                {{1}, {3, 15}},
                {{1, 3}, {3, 5, 11}},
                {{5, 7}, {11, 5, 3}},
                {{2, 7}, {5, 11, 3}}};
  for (const auto& test : kCases) {
    JobSpec spec = Job(0);
    spec.pipeline.cuts = test.cuts;
    std::vector<int> order(test.memory_mib.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      std::vector<PlannerWorker> workers = Workers(1);
      workers[0].memory_bytes = 1;
      for (const int stage : order) {
        workers.push_back({WorkerId{20 + stage}, absl::StrCat("w", stage),
                           test.memory_mib[stage] << 20, ""});
      }

      const auto plan = Value(MakePlan(spec, ModelOfMiB(8), workers));

      for (size_t stage = 0; stage < order.size(); ++stage) {
        EXPECT_EQ(plan.stages[stage].worker.value, 20 + stage) << plan.why;
      }
      EXPECT_EQ(IllSaid(plan.why), "") << plan.why;
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// Two of the large ones do: three do not divide the micro-batches.
TEST(MakePlan, GoesWithoutAllMachinesThatHoldNothing) {
  const ModelDescription model = ModelOfMiB(12);
  std::vector<PlannerWorker> workers = Workers(12);
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    workers[i].memory_bytes = i < 9 ? 100 + i : 64 << 20;
    seconds.push_back(i < 9 ? 0.001 : 0.01);
  }
  const std::pair<const char*, int> cases[] = {{"interleaved-1f1b", 0},
                                               {"interleaved-1f1b", 4},
                                               {"interleaved-1f1b", 8},
                                               {"interleaved-1f1b", 12},
                                               {"1f1b", 0},
                                               {"1f1b", 4},
                                               {"1f1b", 12}};
  for (const auto& [schedule, stages] : cases) {
    JobSpec spec = Scheduled(schedule, stages);
    if (stages == 12) spec.train.batch = 48;

    const auto plan = Value(MakePlan(spec, model, workers,
                                     Measured(spec, model, workers, seconds)));

    for (const int64_t holder : Holders(plan)) EXPECT_GE(holder, 19);
    EXPECT_EQ(IllSaid(plan.why), "") << plan.why;
  }
}

// --- noise ------------------------------------------------------------------

// Twelve blocks of two layers, between an embedding and a head.
std::vector<double> TrueSeconds() {
  std::vector<double> seconds = {0.004};
  for (int block = 0; block < 12; ++block) {
    seconds.insert(seconds.end(), {0.008, 0.012});
  }
  seconds.push_back(0.001);
  return seconds;
}

// The plan of profiles of a, b, c and d, of one kind: true times, times
// slowness[i], off by up to `machine_noise` as a whole and `layer_noise` each;
// their runs lie 12 % apart.
Plan NoisyPlan(const std::vector<double>& slowness, double machine_noise,
               double layer_noise, uint64_t seed) {
  const JobSpec spec = Scheduled("1f1b", 4);
  const ModelDescription model = SmallModel(26);
  SplitMix64 random(seed);
  const auto off = [&random](double noise) {
    return 1 + noise * (2 * random.Unit() - 1);
  };
  Measurements measurements = Measured(spec, model, Workers(4),
                                       std::vector<double>(slowness.size(), 1));
  const std::vector<double> seconds = TrueSeconds();
  size_t machine = 0;
  for (auto& [key, profile] : measurements.profiles) {
    profile.cpu_model = "Cortex-A76";
    const double whole = slowness[machine++] * off(machine_noise);
    for (size_t i = 0; i < seconds.size(); ++i) {
      LayerMeasurement& layer = profile.layers[i];
      layer.flops = 1e9 * seconds[i];
      layer.forward.wall = seconds[i] * whole * off(layer_noise);
      layer.backward.wall = 2 * seconds[i] * whole * off(layer_noise);
      layer.forward.spread = 0.12 * layer.forward.wall;
      layer.backward.spread = 0.12 * layer.backward.wall;
    }
  }
  return Value(MakePlan(spec, model, Workers(4), measurements));
}

// The longest stage by the true times.
double TruePace(const Plan& plan, const std::vector<double>& slowness) {
  const std::vector<double> seconds = TrueSeconds();
  double longest = 0;
  for (const StageOfPlan& stage : plan.stages) {
    const double sum =
        std::accumulate(seconds.begin() + stage.layers.first,
                        seconds.begin() + stage.layers.last, 0.0);
    longest = std::max(longest, sum * slowness[stage.worker.value - 10]);
  }
  return longest;
}

TEST(MakePlan, CutsLikeMachinesEvenlyDespiteNoise) {
  const std::vector<double> alike = {1, 1, 1, 1};
  const double best = TruePace(NoisyPlan(alike, 0, 0, 0), alike);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Plan noisy = NoisyPlan(alike, 0.12, 0.12, seed);

    EXPECT_NEAR(TruePace(noisy, alike), best, 1e-9) << seed << noisy.why;
    EXPECT_THAT(noisy.why, AllOf(HasSubstr("4 like machines were pooled"),
                                 HasSubstr("which is noise")));
  }
}

TEST(MakePlan, SeesAMachineOfTheKindThatIsReallySlower) {
  const std::vector<double> slowness = {1, 1, 1.3, 1};
  const double best = TruePace(NoisyPlan(slowness, 0, 0, 0), slowness);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Plan noisy = NoisyPlan(slowness, 0.03, 0.12, seed);

    EXPECT_LT(TruePace(noisy, slowness), 1.1 * best) << seed << noisy.why;
    EXPECT_THAT(noisy.why, HasSubstr("c takes "));
  }
}

}  // namespace
}  // namespace paceline
