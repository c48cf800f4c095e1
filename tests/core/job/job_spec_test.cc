#include "core/job/spec/job_spec.h"

#include <algorithm>

#include "core/data/data_sets.h"
#include "core/job/job_check.h"
#include "core/model/catalog.h"
#include "core/model/description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_changes.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec GoodSpec() {
  JobSpec spec;
  spec.name = "first";
  spec.model.name = "lenet";
  spec.data.name = "synthetic";
  return spec;
}

const BadJob kBadSpecs[] = {
    {"name=" + std::string(129, 'x'), "at most 128"},
    {"name=a\nb", "control character"},
    {"name=a\u202Eb", "control character"},
    {"pipeline.replicate=nevr", "did you mean 'never'?"},
    {"pipeline.snapshot_every=-1", "got -1"},
    {"train.checkpoint_every=5; pipeline.snapshot_every=0",
     "leave one of them out"},
    {"model.name=lenett", "did you mean 'lenet'?"},
    {"model.name=transmogrifier", "choose one of: bert, bert_base, "},
    {"model.name=", "names no model"},
    {"model.dropout=1", "in [0, 1), got 1"},
    {"model.dropout=nan", "in [0, 1)"},
    {"data.shape=1,3,28", "at least 4 x 4 pixels", "model"},
    {"model.name=vit; model.heads=5",
     "heads must divide width, got heads 5 and width 64", "model"},
    {"model.name=vit; model.patch=6", "patch 6 and an image of 28 x 28",
     "model"},
    {"model.name=vit; model.depth=0", "depth must be from 1 to", "model"},
    {"model.name=mlp; model.hidden=16,0", "units, got 0", "model"},
    {"model.name=mlp; model.hidden=3000,3000; model.init=orthogonal",
     "3000 x 3000 weights", "model.init"},
    {"train.only=last-0", "last-N with N layers, got 'last-0'", "model"},
    {"train.only=lats-2", "must be all, head, norm, or last-N", "model"},
    {"train.only=last-9", "last-9, but lenet has only 8 layers", "model"},
    {"train.only=norm", "nothing would train", "model"},
    {"model.lora.rank=8", "is for transformers, and lenet is none",
     "model.lora"},
    {"model.name=script; model.file=/net.pt; model.lora.rank=8",
     "is for transformers, and script is none", "model.lora"},
    {"model.name=vit; model.lora.targets=qkv", "model.lora.rank, which is 0",
     "model.lora"},
    {"model.name=vit; model.lora.rank=-1", "from 0 to 65536, got -1",
     "model.lora"},
    {"model.name=vit; model.lora.rank=2; model.lora.alpha=1e308",
     "at most 1000000", "model.lora"},
    {"model.name=vit; model.lora.rank=2; model.lora.alpha=0",
     "at most 1000000, got 0", "model.lora"},
    {"model.name=vit; model.lora.rank=2; model.lora.targets=qkv,query",
     "'query', but no linear map of vit is called so; there are: fc1, fc2, "
     "proj, qkv",
     "model"},
    {"model.name=vit; model.lora.rank=2; train.only=head",
     "train.only is head beside model.lora", "model.lora"},
    {"model.weights=w.safetensors", "must be an absolute path"},
    {"pipeline.stages=1; train.distill.weights=w.safetensors",
     "must be an absolute path"},
    {"pipeline.stages=2; train.distill.weights=/w", "holds the whole model"},
    {"train.distill.weights=/w", "set pipeline.stages to 1"},
    {"train.distill.share=0", "in (0, 1], got 0"},
    {"train.distill.temperature=0", "greater than 0, got 0"},
    {"model.name=script", "needs the TorchScript file", "model.file"},
    {"model.name=script; model.file=net.pt", "must be an absolute path"},
    {"model.name=resnet18; model.width=0",
     "width must be from 1 to 2048, got 0", "model"},
    {"model.name=vgg16", "of at least 32 x 32 pixels, got shape [1, 28, 28]",
     "model"},
    {"data.name=fashion_mnist", "did you mean 'fashion-mnist'?"},
    {"data.name=idx", "needs the place", "data.path"},
    {"data.name=idx; data.path=data/idx", "must be an absolute path"},
    {"data.train_samples=0", "got 0"},
    {"data.test_samples=-1", "got -1"},
    {"data.shape=", "is empty"},
    {"data.shape=1,0,28", "got 1,0,28"},
    {"data.shape=1,1099511627776,1099511627776", "values a sample"},
    {"data.classes=1", "got 1"},
    {"data.name=fashion-mnist; data.shape=3,32,32",
     "fashion-mnist has samples of shape 1,28,28, got 3,32,32"},
    {"data.name=fashion-mnist; data.classes=100",
     "fashion-mnist has 10 classes, got 100"},
    {"data.workers=65", "from 0 to 64, got 65"},
    {"train.epochs=0", "got 0"},
    {"train.steps=-1", "got -1"},
    {"train.batch=0", "got 0"},
    {"train.micro_batch=65", "which is 64; got 65"},
    {"train.micro_batch=0", "got 0"},
    {"train.batch=5000; train.micro_batch=1", "at most 4096"},
    {"train.seed=-1", "got -1"},
    {"train.optimizer.name=adam", "did you mean 'adamw'?"},
    {"train.optimizer.momentum=1", "in [0, 1), got 1"},
    {"train.optimizer.weight_decay=inf", "0 or more"},
    {"train.optimizer.beta1=1", "in [0, 1)"},
    {"train.optimizer.beta2=-0.1", "in [0, 1)"},
    {"train.optimizer.epsilon=0", "greater than 0"},
    {"train.learning_rate.base=nan", "greater than 0, got nan"},
    {"train.learning_rate.schedule=cosin", "did you mean 'cosine'?"},
    {"train.learning_rate.warmup_steps=-1", "got -1"},
    {"train.learning_rate.minimum=1", "from 0 to train.learning_rate.base"},
    {"train.learning_rate.step_every=0", "got 0"},
    {"train.learning_rate.gamma=1.5", "in (0, 1]"},
    {"train.clip_norm=-1", "or more"},
    {"train.evaluate_every=-1", "got -1"},
    {"pipeline.stages=-1", "got -1"},
    {"pipeline.policy=equl", "did you mean 'equal'"},
    {"pipeline.stages=9", "asks for 9 stages, but the model has only 8 layers"},
    {"pipeline.schedule=1f1", "did you mean '1f1b'?"},
    {"pipeline.codec=bf6", "did you mean 'bf16'?"},
    {"pipeline.workers=a,b", "needs pipeline.cuts"},
    {"pipeline.cuts=2; pipeline.workers=a,b,c", "names 3 workers for 2 stages"},
    {"pipeline.schedule=pipedreams", "did you mean 'pipedream'?"},
    {"pipeline.vertical_sync=true",
     "belongs to the schedule pipedream; under 1f1b"},
    {"pipeline.schedule=pipedream; train.clip_norm=0.5",
     "which pipedream's updates do not wait for, got 0.5"},
    {"pipeline.stages=4; pipeline.cuts=1,2",
     "1,2 makes 3 stages, but pipeline.stages is 4"},
    {"pipeline.stages=3; pipeline.cuts=3,3",
     "must ascend without repeats, got 3,3"},
    {"pipeline.stages=2; pipeline.cuts=8",
     "between 1 and 7 (the model has 8 layers), got 8"},
    {"pipeline.stages=2; pipeline.cuts=0", "between 1 and 7"},
    {"kind=infr", "did you mean 'infer'?"},
    {"kind=infer; infer.micro_batch=0", "got 0"},
    {"kind=infer; infer.samples=-1", "got -1"},
    {"kind=infer; pipeline.schedule=zero-bubble",
     "zero-bubble is a way to train"},
    {"threads=0", "got 0"},
    {"cpu_capability=avx51", "did you mean 'avx512'?"},
    {"precision=bfl6", "did you mean 'bf16'?"},
    {"precision=", "names no precision"},
    {"model.name=script; model.file=/m.pt; precision=bf16",
     "a script computes as it is written"},
    {"train.activation_checkpointing=every-0", "every-N with N layers from 1"},
    {"train.activation_checkpointing=all\n", "got 'all\\n'"},
};

TEST(JobSpec, GoodOnesHaveNoProblems) {
  for (const char* data : {"synthetic", "fashion-mnist"}) {
    for (const std::string& model : ModelNames()) {
      const CatalogEntry* const entry = FindModel(model);
      if (std::string(entry->synthetic) != "synthetic") continue;
      JobSpec spec = GoodSpec();
      spec.data.name = data;
      spec.model = entry->model;
      if (!FindDataSet(data)->own_shape) {
        spec.data.shape = entry->input;
        spec.data.classes = entry->classes;
      } else if (entry->input != spec.data.shape) {
        continue;
      }

      EXPECT_THAT(CheckJobSpec(spec), IsEmpty()) << model << " on " << data;
    }
  }
}

// A language model on the synthetic set that is like its samples.
JobSpec LanguageSpec(const std::string& model) {
  JobSpec spec = GoodSpec();
  const CatalogEntry* const entry = FindModel(model);
  spec.model = entry->model;
  spec.data.shape = {16};
  spec.data.classes = std::min(entry->classes, 300);
  spec.data = WithSyntheticData(spec.model, spec.data);
  return spec;
}

TEST(JobSpec, LanguageModelsTakeSyntheticDataOfTheirKind) {
  for (const char* model :
       {"gpt", "gpt_mini", "gpt2", "bert", "roberta", "roberta_base", "gnmt"}) {
    EXPECT_THAT(CheckJobSpec(LanguageSpec(model)), IsEmpty()) << model;
  }
}

TEST(JobSpec, SaysWhenDataAndALanguageModelDoNotFit) {
  const std::pair<const char*, BadJob> cases[] = {
      {"gpt",
       {"data.name=synthetic; data.shape=16",
        "synthetic gives images, but gpt takes tokens", "data.name"}},
      {"gpt",
       {"data.name=synthetic-labels",
        "synthetic-labels has one label a sample, but gpt learns a label for "
        "each token"}},
      {"gnmt",
       {"data.name=synthetic-tokens",
        "synthetic-tokens has a label for each token, but gnmt learns a label "
        "for each token of a target"}},
      {"gpt", {"data.name=synthetic-pairs", "of a target, but gpt"}},
      {"bert",
       {"data.vocabulary=300", "is 256, but synthetic-labels has 300",
        "model.vocabulary"}},
      {"gpt2", {"data.classes=60000", "knows 50257 tokens, the data", "model"}},
      {"bert",
       {"data.block=513; data.shape=513", "at most 512 tokens, got 513",
        "model"}},
      {"roberta",
       {"data.block=513; data.shape=513", "at most 512 tokens, got 513",
        "model"}},
      {"roberta",
       {"data.padding=0",
        "is 0, but roberta takes token 1 for padding; set data.padding to "
        "1"}}};
  for (const auto& [model, bad] : cases) {
    JobSpec spec = LanguageSpec(model);
    if (bad.changes.starts_with("data.name=")) {
      const std::string name = bad.changes.substr(10);
      spec.data = DefaultDataSpec(name.substr(0, name.find(';')));
    }
    ChangeJob(spec, bad.changes);

    EXPECT_THAT(WhyAt(spec, bad.Path()), HasSubstr(bad.why)) << model;
  }
}

TEST(JobSpec, PipedreamWantsWhatIsSharedOnOneStage) {
  JobSpec spec = LanguageSpec("gpt");
  spec.pipeline.schedule = "pipedream";
  for (const int stages : {0, 2}) {
    spec.pipeline.stages = stages;
    EXPECT_THAT(WhyAt(spec, "pipeline.schedule"),
                HasSubstr("layers 0 and 9 of gpt on one stage, since both "
                          "compute with transformer.wte.weight"));
  }

  spec.pipeline.stages = 1;
  EXPECT_THAT(CheckJobSpec(spec), IsEmpty());
  spec.model = FindModel("bert")->model;
  spec.data = LanguageSpec("bert").data;
  spec.pipeline.stages = 2;
  EXPECT_THAT(CheckJobSpec(spec), IsEmpty()) << "shares nothing";
}

TEST(JobSpec, SaysThatAModelOfImagesTakesNoTokens) {
  JobSpec spec = GoodSpec();
  spec.model.name = "mlp";
  spec.data = DefaultDataSpec("synthetic-tokens");

  EXPECT_EQ(WhyAt(spec, "data.name"),
            "synthetic-tokens gives tokens, but mlp takes images; choose "
            "another data set or model");
}

TEST(JobSpec, EveryBadValueIsNamedAlone) {
  for (const BadJob& bad : kBadSpecs) {
    JobSpec spec = GoodSpec();

    ChangeJob(spec, bad.changes);

    EXPECT_THAT(WhyAt(spec, bad.Path()), HasSubstr(bad.why)) << bad.changes;
    EXPECT_EQ(CheckJobSpec(spec).size(), 1u) << bad.changes;
  }
}

TEST(JobSpec, EpochsAreNotLookedAtWhenStepsDecide) {
  JobSpec spec = GoodSpec();
  spec.train.epochs = 0;
  spec.train.steps = 60;

  EXPECT_THAT(CheckJobSpec(spec), IsEmpty());
}

TEST(JobSpec, ProblemsComeInTheOrderOfTheFields) {
  JobSpec spec = GoodSpec();
  spec.threads = 0;
  spec.train.batch = 0;
  spec.model.name = "";

  const std::vector<SpecProblem> problems = CheckJobSpec(spec);

  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[0].path, "model.name");
  EXPECT_EQ(problems[1].path, "train.batch");
  EXPECT_EQ(problems[2].path, "threads");
}

TEST(JobSpec, CutsWithoutAModelAreStillOrdered) {
  JobSpec spec = GoodSpec();
  spec.model.name = "unknown";
  spec.pipeline.stages = 3;
  spec.pipeline.cuts = {5, 2};

  EXPECT_THAT(WhyAt(spec, "pipeline.cuts"), HasSubstr("ascend"));
}

TEST(DidYouMean, FindsTheNearestWithinAThird) {
  const std::vector<std::string> known = {"gpipe", "1f1b", "fashion-mnist"};

  EXPECT_EQ(DidYouMean("gpip", known), "gpipe");
  EXPECT_EQ(DidYouMean("GPipe", known), "gpipe");
  EXPECT_EQ(DidYouMean("1f1c", known), "1f1b");
  EXPECT_EQ(DidYouMean("fashionmnst", known), "fashion-mnist");
  EXPECT_EQ(DidYouMean("mnist", known), "");
  EXPECT_EQ(DidYouMean("gqipf", known), "");
  EXPECT_EQ(DidYouMean("", known), "");
  EXPECT_EQ(DidYouMean("x", {}), "");
}

TEST(DidYouMean, CountsTwoLettersThatChangedPlacesAsOneMistake) {
  EXPECT_EQ(DidYouMean("trian", {"name", "model", "train"}), "train");
  EXPECT_EQ(DidYouMean("etst", {"test"}), "test");
}

TEST(DidYouMean, TakesTheFirstOfEqualDistance) {
  EXPECT_EQ(DidYouMean("bat", {"cat", "rat"}), "cat");
}

TEST(JobSpec, KnowsAllPrecisionsAndWaysToKeepActivations) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* word : {"none", "stage", "every-1", "every-12"}) {
      JobSpec spec = GoodSpec();
      spec.precision = precision;
      spec.train.activation_checkpointing = word;

      EXPECT_THAT(CheckJobSpec(spec), IsEmpty()) << precision << " " << word;
    }
  }
}

// Stage 0 on one worker, stage 1 on two.
JobSpec Replicated() {
  JobSpec spec = GoodSpec();
  spec.kind = kInferKind;
  spec.train = ForInference(spec.infer, 1);
  spec.pipeline.stages = 0;
  spec.pipeline.cuts = {1};
  spec.pipeline.workers = {"a", "b", "c"};
  spec.pipeline.replicas = {1, 2};
  spec.pipeline.shares = {1, 0.5, 0.5};
  return spec;
}

TEST(CheckJobSpec, AllOfATextIsForInferenceOnly) {
  JobSpec spec = GoodSpec();
  spec.model = DefaultModel("gpt");
  spec.data = DefaultDataSpec("text");
  spec.data.path = "/data/text.txt";
  spec.data.test_fraction = 1;
  EXPECT_THAT(WhyAt(spec, "data.test_fraction"), HasSubstr("kind: infer"));
  spec.kind = kInferKind;
  EXPECT_EQ(WhyAt(spec, "data.test_fraction"), "nothing");

  JobSpec pictures = GoodSpec();
  pictures.data.test_fraction = 1;
  EXPECT_EQ(WhyAt(pictures, "data.test_fraction"), "nothing")
      << "they have none";
}

TEST(CheckJobSpec, TakesReplicasThatTrainIfTheyFit) {
  JobSpec good = Replicated();
  good.kind = kTrainKind;
  good.train = GoodSpec().train;
  good.train.batch = 8;
  good.train.micro_batch = 2;
  EXPECT_THAT(CheckJobSpec(good), IsEmpty());

  const BadJob bad[] = {
      {"train.micro_batch=8",
       "gives a stage 2 workers, but a batch has 1 micro-batch;",
       "pipeline.replicas"},
      {"pipeline.schedule=pipedream", "agree on every update"},
      {"pipeline.schedule=zero-bubble", "not made for stages of several"},
      {"aggregation.rule=median", "add up all gradients"},
      {"aggregation.min_parts=2", "every micro-batch"}};
  for (const BadJob& each : bad) {
    JobSpec spec = good;
    ChangeJob(spec, each.changes);
    EXPECT_THAT(WhyAt(spec, each.Path()), HasSubstr(each.why));
  }
}

TEST(CheckJobSpec, RefusesRoundsOfAPipelineOfSeveralStages) {
  JobSpec spec = GoodSpec();
  spec.pipeline.stages = 2;
  spec.aggregation.min_parts = 2;
  spec.aggregation.rule = "krum";
  EXPECT_THAT(WhyAt(spec, "aggregation.min_parts"),
              HasSubstr("every micro-batch"));
  EXPECT_THAT(WhyAt(spec, "aggregation.rule"),
              HasSubstr("add up all gradients"));

  spec.pipeline.stages = 1;
  EXPECT_EQ(WhyAt(spec, "aggregation.min_parts"), "nothing");
}

TEST(CheckJobSpec, TakesSharesThatLeaveAReplicaWithoutWork) {
  JobSpec spec = Replicated();
  spec.kind = kTrainKind;
  spec.train = GoodSpec().train;
  spec.train.batch = 8;
  spec.train.micro_batch = 2;
  spec.pipeline.shares = {1, 0.97, 0.03};
  EXPECT_THAT(CheckJobSpec(spec), IsEmpty());
}

TEST(JobSpec, DoesWithoutAReplicaThatIsAbsentButNotWithoutAStage) {
  const JobSpec spec = Replicated();
  const auto without = [&spec](const std::string& absent) {
    return WithoutAbsentReplicas(spec,
                                 [&](const std::string& name) {
                                   return absent.find(name) ==
                                          std::string::npos;
                                 })
        .pipeline;
  };

  EXPECT_EQ(without("").workers, spec.pipeline.workers);
  EXPECT_THAT(without("b").workers, ElementsAre("a", "c"));
  EXPECT_THAT(without("b").replicas, ElementsAre(1, 1));
  EXPECT_THAT(without("b").shares, ElementsAre(1, 0.5));
  EXPECT_THAT(without("a").workers, ElementsAre("a", "b", "c"));
  EXPECT_THAT(without("bc").workers, ElementsAre("a", "c"));
}

TEST(CheckJobSpec, RefusesReplicasOfAStageThatSharesAParameter) {
  JobSpec spec = LanguageSpec("gpt");
  spec.train.batch = 8;
  spec.train.micro_batch = 2;
  spec.pipeline.stages = 0;
  spec.pipeline.cuts = {1};
  spec.pipeline.workers = {"a", "b", "c"};
  spec.pipeline.replicas = {1, 2};
  EXPECT_THAT(WhyAt(spec, "pipeline.replicas"),
              HasSubstr("gives several workers to stage 1, which shares"));
}

TEST(CheckJobSpec, TakesReplicasOfAnInferenceJobThatFit) {
  EXPECT_THAT(CheckJobSpec(Replicated()), IsEmpty());

  const BadJob bad[] = {
      {"pipeline.replicas=3", "each of the 2 stages between 1 and"},
      {"pipeline.replicas=3,0", "got 3,0"},
      {"pipeline.replicas=2,2",
       "wants 4 workers, but pipeline.workers names 3"},
      {"pipeline.workers=a,b,a", "names a worker twice"},
      {"pipeline.shares=1,0.5", "for each of the 3 workers"},
      {"pipeline.shares=1,0,1", "got 1,0,1"},
      {"pipeline.shares=1,nan,1", "a positive number"},
      {"pipeline.replicas=", "needs pipeline.replicas", "pipeline.shares"}};
  for (const BadJob& each : bad) {
    JobSpec spec = Replicated();
    ChangeJob(spec, each.changes);
    EXPECT_THAT(WhyAt(spec, each.Path()), HasSubstr(each.why));
  }
}

}  // namespace
}  // namespace paceline
