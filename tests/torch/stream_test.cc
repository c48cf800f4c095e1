// Streams without a flush, with LibTorch's engine: whole pipelines in one
// process.
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/torch/script_experiment.h"
#include "tests/torch/stream_request.h"

namespace paceline {
namespace {

// One stage has nothing to be late with, and its updates are those of a job
// whose batches are its micro-batches.  A cast to bf16 that outlived its
// version would show.
TEST(Stream, OfOneStageIsTrainingWithSmallBatches) {
  for (const auto& [model, precision] :
       {std::pair("lenet", "fp32"), std::pair("resnet18", "fp32"),
        std::pair("resnet18", "bf16")}) {
    PipelineRequest stream = StreamRequest(model, {0});
    stream.spec.precision = precision;
    PipelineRequest small = stream;
    small.spec.pipeline.schedule = "gpipe";
    small.spec.train.batch = small.spec.train.micro_batch;

    const auto streamed = RunPipeline(stream);
    const auto plain = RunPipeline(small);

    ASSERT_TRUE(streamed.ok() && plain.ok()) << streamed.status();
    EXPECT_EQ(streamed->weights, plain->weights) << model << " " << precision;
  }
}

// Running statistics (resnet18) are one for all versions.
TEST(Stream, LearnsWithStaleGradientsAndFreesTheirVersions) {
  for (const char* model : {"lenet", "resnet18"}) {
    for (const bool vertical_sync : {false, true}) {
      PipelineRequest request = StreamRequest(model, {0, 1, 2});
      request.spec.pipeline.vertical_sync = vertical_sync;

      const auto outcome = RunPipeline(request);

      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_LT(outcome->steps.back().loss(), outcome->steps.front().loss())
          << model;
      for (int stage = 0; stage < 3; ++stage) {
        const auto& time = outcome->versions.at(stage);
        const int ahead = vertical_sync ? 2 : 2 - stage;
        EXPECT_EQ(time.versions(), ahead + 1) << model << " stage " << stage;
        EXPECT_EQ(time.updates(), 3 * 15);
        EXPECT_EQ(time.staleness(),
                  3 * (ahead * (ahead - 1) / 2 + (15 - ahead) * ahead));
      }
    }
  }
}

// Threads of one process may run ahead of each other as they like: what is
// computed does not depend on it.
TEST(Stream, EndsWithTheSameBytesEveryTime) {
  for (const char* precision : {"fp32", "bf16"}) {
    PipelineRequest request = StreamRequest("lenet", {0, 1, 2});
    request.spec.precision = precision;
    const auto first = RunPipeline(request);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_LT(first->steps.back().loss(), first->steps.front().loss());

    for (int i = 0; i < 3; ++i) {
      const auto again = RunPipeline(request);

      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->weights, first->weights) << precision;
    }
  }
}

// Five steps are an epoch, after which the stash is empty.
TEST(Stream, GoesOnFromCopiedStates) {
  for (const char* model : {"lenet", "resnet18"}) {
    PipelineRequest request = StreamRequest(model, {0, 1, 2});
    request.spec.train.learning_rate = {0.01, "cosine", 3};
    ExpectToGoOn(request, 5, {0, 1, 2});
  }
}

PipelineRequest ScriptStream(const std::string& file) {
  PipelineRequest request = StreamRequest("lenet", {0, 1, 2});
  JobSpec& spec = request.spec;
  spec.model = DefaultModel(kScriptModel);
  spec.model.file = ScriptPath(file);
  spec.data.shape = {2, 4, 4};
  spec.data.classes = 3;
  spec.model.script = ReadScript(spec).value();
  spec.train.learning_rate.base = 0.05;
  request.model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
  return request;
}

// Forwards of later batches have moved a script's buffers by then: of the next
// batch, or, where a batch is one micro-batch, of the next two.
TEST(Stream, StatesOfAScriptInTheMiddleAreThoseOfAShorterRun) {
  for (const int32_t micro_batch : {8, 24}) {
    for (const char* recompute : {"none", "stage"}) {
      PipelineRequest request = ScriptStream("norm.pt");
      request.spec.train.micro_batch = micro_batch;
      request.spec.train.activation_checkpointing = recompute;
      request.copied_step = 7;
      const auto whole = RunPipeline(request);
      request.spec.train.steps = 7;
      const auto shorter = RunPipeline(request);

      ASSERT_TRUE(whole.ok() && shorter.ok())
          << whole.status() << shorter.status();
      EXPECT_EQ(whole->states, shorter->states)
          << micro_batch << " " << recompute;
    }
  }
}

// A layer's state, with buffers that are not where the layer has them, is taken
// back.
TEST(Stream, RestoresAScriptWhileForwardsWait) {
  const Experiment experiment = ScriptExperiment("scripted.pt");
  const auto engine = MakeStage(experiment, 0, 1, /*stashes=*/true);
  const uint64_t before = engine->StateHash();
  const std::vector<ScatteredBytes> state = engine->State();
  std::vector<std::vector<uint8_t>> copies;
  std::vector<absl::Span<const uint8_t>> layers;
  for (const ScatteredBytes& layer : state) {
    layer.CopyTo(copies.emplace_back(layer.size()).data());
    layers.emplace_back(copies.back());
  }
  BatchInfo batch;
  batch.samples = 3;
  batch.micro_batches = 1;

  ASSERT_TRUE(
      engine->Forward(batch, 0, experiment.set.Take({0, 1, 2}, 0, 3)).ok());

  EXPECT_EQ(engine->StateHash(), before);
  ASSERT_TRUE(engine->RestoreState(layers).ok());
  EXPECT_EQ(engine->StateHash(), before);
}

// Recurrences go back at the version that they went forward with.
TEST(Stream, OfATranslatorLearnsAndRepeatsItself) {
  PipelineRequest request = StreamRequest("lenet", {0, 1, 2});
  JobSpec& spec = request.spec;
  spec.model = DefaultModel("gnmt");
  spec.model.width = 8;
  spec.data = DefaultDataSpec("synthetic-pairs");
  spec.data.block = 6;
  spec.data.shape = FormatOf(spec.data).shape;
  spec.data.train_samples = 120;
  spec.data.test_samples = 40;
  spec.train.optimizer.name = "adamw";
  spec.train.optimizer.momentum = 0;
  request.model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();

  const auto first = RunPipeline(request);
  spec.train.activation_checkpointing = "stage";
  const auto recomputed = RunPipeline(request);

  ASSERT_TRUE(first.ok() && recomputed.ok())
      << first.status() << recomputed.status();
  EXPECT_LT(first->steps.back().loss(), 0.9 * first->steps.front().loss());
  EXPECT_EQ(first->weights, recomputed->weights);
}

// Several stages a worker: with bf16 and activations computed once more, the
// same bytes as one stage.
TEST(Interleaved, Bf16AndCheckpointsEndWithTheBytesOfOneStage) {
  for (const char* model : {"lenet", "resnet18"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      PipelineRequest one = StreamRequest(model, {0});
      one.spec.pipeline.schedule = "gpipe";
      one.spec.precision = precision;
      one.spec.train.micro_batch = 6;  // four of them: a multiple of workers
      one.spec.train.epochs = 1;
      PipelineRequest cut = one;
      cut.worker_of = {0, 1, 0, 1};
      cut.spec.pipeline.stages = 4;
      cut.spec.pipeline.schedule = "interleaved-1f1b";
      const auto expected = RunPipeline(one);
      ASSERT_TRUE(expected.ok()) << expected.status();
      for (const char* word : {"none", "stage", "every-2"}) {
        cut.spec.train.activation_checkpointing = word;

        const auto actual = RunPipeline(cut);

        ASSERT_TRUE(actual.ok()) << actual.status();
        EXPECT_EQ(actual->weights, expected->weights)
            << model << " " << precision << " " << word;
      }
    }
  }
}

}  // namespace
}  // namespace paceline
