// Backwards that compute their forward once more: the same bytes, less memory.
#include <cstdint>
#include <string>

#include "core/base/tensor.h"
#include "core/job/spec/job_spec.h"
#include "core/schedule/schedule.h"
#include "gtest/gtest.h"
#include "tests/torch/in_process_pipeline.h"
#include "tests/torch/script_experiment.h"
#include "tests/torch/stream_request.h"

namespace paceline {
namespace {

constexpr const char* kWords[] = {"stage", "every-2", "every-1"};

class Recomputing : public ::testing::TestWithParam<const char*> {};

// Dropout is drawn twice, the same way; statistics of normalisations, also
// those of a script, are told once; masks and floats go beside activations.
TEST_P(Recomputing, EndWithTheSameBytes) {
  Experiment experiment = ExperimentOf(GetParam());
  const Outcome plain = InProcessPipeline(experiment).Run();

  for (const char* word : kWords) {
    SCOPED_TRACE(word);
    experiment.job.train.activation_checkpointing = word;
    ExpectOnEveryCut(experiment, plain, {1, 3});
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Recomputing,
                         ::testing::Values("lenet", "vit", "resnet18", "vgg11",
                                           "gpt", "roberta", "gnmt",
                                           kScriptModel),
                         kNameOfModel);

// A backward computes at the version that its forward had.
TEST(Recompute, StreamsWithStashedVersionsToo) {
  for (const char* model : {"lenet", "resnet18"}) {
    const auto plain = RunPipeline(StreamRequest(model, {0, 1, 2}));
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const char* word : kWords) {
      PipelineRequest request = StreamRequest(model, {0, 1, 2});
      request.spec.train.activation_checkpointing = word;

      const auto again = RunPipeline(request);

      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->weights, plain->weights) << model << " " << word;
    }
  }
}

// The most memory that a training of `experiment` in one stage takes, beside
// what was there before.
int64_t PeakOf(const Experiment& experiment) {
  const int64_t before = TensorBytesNow();
  BeginTensorPeak();
  InProcessPipeline(experiment).Run();
  return TensorBytesPeak() - before;
}

int64_t PredictedFor(const Experiment& experiment) {
  const ModelDescription model = Describe(experiment);
  const TrainSpec& train = experiment.job.train;
  const int micro_batches = static_cast<int>(
      (train.batch + train.micro_batch - 1) / train.micro_batch);
  const auto bounds = BoundsOfRun({.name = experiment.schedule,
                                   .stages = 1,
                                   .micro_batches = micro_batches,
                                   .training = true,
                                   .worker_of = {0}});
  EXPECT_TRUE(bounds.ok()) << bounds.status();
  return EstimateBytes(
      model, train, {{0, static_cast<int>(model.layers.size())}},
      KeepsOfStages(*bounds), PrecisionOf(experiment.job.precision));
}

Experiment LargeExperiment(const std::string& model) {
  Experiment experiment = SmallExperiment(model);
  experiment.schedule = "gpipe";
  experiment.job.model.depth = 4;
  experiment.job.model.width = 64;
  experiment.job.model.heads = 4;
  experiment.set.samples = 256;
  TrainSpec& train = experiment.job.train;
  train.epochs = 1;
  train.batch = 128;
  train.micro_batch = 16;
  return experiment;
}

TEST(Recompute, KeepsLess) {
  for (const char* model : {"lenet", "vit"}) {
    Experiment experiment = LargeExperiment(model);
    const int64_t plain = PeakOf(experiment);
    experiment.job.train.activation_checkpointing = "stage";
    const int64_t stage = PeakOf(experiment);
    experiment.job.train.activation_checkpointing = "every-2";
    const int64_t every_2 = PeakOf(experiment);

    EXPECT_LT(stage, 0.5 * static_cast<double>(plain)) << model;
    EXPECT_LT(every_2, 0.7 * static_cast<double>(plain)) << model;
  }
}

// The tensor bytes that the planner predicts and those that a run takes lie
// within this factor of each other.  (lenet in fp32, gpipe: predicted 1.53 of
// its peak, since what lies between two layers counts for both.)
constexpr double kFactor = 1.6;

TEST(Memory, PeakIsAboutWhatThePlannerPredicts) {
  for (const char* model : {"lenet", "vit"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      for (const char* word : {"none", "stage", "every-2"}) {
        for (const char* schedule : {"gpipe", "1f1b"}) {
          Experiment experiment = LargeExperiment(model);
          experiment.schedule = schedule;
          experiment.job.precision = precision;
          experiment.job.train.activation_checkpointing = word;

          const auto peak = static_cast<double>(PeakOf(experiment));
          const auto predicted = static_cast<double>(PredictedFor(experiment));

          EXPECT_LT(peak, kFactor * predicted)
              << model << " " << precision << " " << word << " " << schedule;
          EXPECT_GT(peak, predicted / kFactor)
              << model << " " << precision << " " << word << " " << schedule;
        }
      }
    }
  }
}

}  // namespace
}  // namespace paceline
