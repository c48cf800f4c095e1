#include "core/model/job_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/model/catalog.h"
#include "core/model/data_sets.h"
#include "core/model/description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec GoodSpec() {
  JobSpec spec;
  spec.name = "first";
  spec.model.name = "lenet";
  spec.data.name = "synthetic";
  return spec;
}

// What is wrong at `path`; "nothing" when nothing is.
std::string WhyAt(const JobSpec& spec, const std::string& path) {
  for (const SpecProblem& problem : CheckJobSpec(spec)) {
    if (problem.path == path) return problem.why;
  }
  return "nothing";
}

// A change that makes a good spec bad, and what is then said.
struct BadSpec {
  const char* path;
  const char* why;  // part of it
  void (*spoil)(JobSpec&);
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const BadSpec kBadSpecs[] = {
    {"name", "at most 128", [](JobSpec& s) { s.name.assign(129, 'x'); }},
    {"name", "control character", [](JobSpec& s) { s.name = "a\nb"; }},
    {"pipeline.replicas", "belongs to kind infer",
     [](JobSpec& s) { s.pipeline.replicas = {2}; }},
    {"pipeline.replicate", "belongs to kind infer",
     [](JobSpec& s) { s.pipeline.replicate = "allowed"; }},
    {"pipeline.replicate", "did you mean 'never'?",
     [](JobSpec& s) { s.pipeline.replicate = "nevr"; }},
    {"model.name", "did you mean 'lenet'?",
     [](JobSpec& s) { s.model.name = "lenett"; }},
    {"model.name", "choose one of: bert, bert_base, ",
     [](JobSpec& s) { s.model.name = "transmogrifier"; }},
    {"model.name", "names no model", [](JobSpec& s) { s.model.name = ""; }},
    {"model.dropout", "in [0, 1), got 1",
     [](JobSpec& s) { s.model.dropout = 1; }},
    {"model.dropout", "in [0, 1)", [](JobSpec& s) { s.model.dropout = kNan; }},
    {"model", "at least 4 x 4 pixels",
     [](JobSpec& s) {
       s.data.shape = {1, 3, 28};
     }},
    {"model", "heads must divide width, got heads 5 and width 64",
     [](JobSpec& s) {
       s.model.name = "vit";
       s.model.heads = 5;
     }},
    {"model", "patch 6 and an image of 28 x 28",
     [](JobSpec& s) {
       s.model.name = "vit";
       s.model.patch = 6;
     }},
    {"model", "depth must be from 1 to",
     [](JobSpec& s) {
       s.model.name = "vit";
       s.model.depth = 0;
     }},
    {"model", "units, got 0",
     [](JobSpec& s) {
       s.model.name = "mlp";
       s.model.hidden = {16, 0};
     }},
    {"model.weights", "must be an absolute path",
     [](JobSpec& s) { s.model.weights = "w.safetensors"; }},
    {"model.file", "needs the TorchScript file",
     [](JobSpec& s) { s.model.name = "script"; }},
    {"model.file", "must be an absolute path",
     [](JobSpec& s) {
       s.model.name = "script";
       s.model.file = "net.pt";
     }},
    {"model", "width must be from 1 to 2048, got 0",
     [](JobSpec& s) {
       s.model.name = "resnet18";
       s.model.width = 0;
     }},
    {"model", "of at least 32 x 32 pixels, got shape [1, 28, 28]",
     [](JobSpec& s) { s.model.name = "vgg16"; }},
    {"data.name", "did you mean 'fashion-mnist'?",
     [](JobSpec& s) { s.data.name = "fashion_mnist"; }},
    {"data.path", "needs the place", [](JobSpec& s) { s.data.name = "idx"; }},
    {"data.path", "must be an absolute path",
     [](JobSpec& s) {
       s.data.name = "idx";
       s.data.path = "data/idx";
     }},
    {"data.train_samples", "got 0",
     [](JobSpec& s) { s.data.train_samples = 0; }},
    {"data.test_samples", "got -1",
     [](JobSpec& s) { s.data.test_samples = -1; }},
    {"data.shape", "is empty", [](JobSpec& s) { s.data.shape = {}; }},
    {"data.shape", "got 1,0,28",
     [](JobSpec& s) {
       s.data.shape = {1, 0, 28};
     }},
    {"data.shape", "values a sample",
     [](JobSpec& s) {
       s.data.shape = {1, int64_t{1} << 40, int64_t{1} << 40};
     }},
    {"data.classes", "got 1", [](JobSpec& s) { s.data.classes = 1; }},
    {"data.shape", "fashion-mnist has samples of shape 1,28,28, got 3,32,32",
     [](JobSpec& s) {
       s.data.name = "fashion-mnist";
       s.data.shape = {3, 32, 32};
     }},
    {"data.classes", "fashion-mnist has 10 classes, got 100",
     [](JobSpec& s) {
       s.data.name = "fashion-mnist";
       s.data.classes = 100;
     }},
    {"data.workers", "from 1 to 64, got 0",
     [](JobSpec& s) { s.data.workers = 0; }},
    {"train.epochs", "got 0", [](JobSpec& s) { s.train.epochs = 0; }},
    {"train.steps", "got -1", [](JobSpec& s) { s.train.steps = -1; }},
    {"train.batch", "got 0", [](JobSpec& s) { s.train.batch = 0; }},
    {"train.micro_batch", "which is 64; got 65",
     [](JobSpec& s) { s.train.micro_batch = 65; }},
    {"train.micro_batch", "got 0", [](JobSpec& s) { s.train.micro_batch = 0; }},
    {"train.micro_batch", "at most 4096",
     [](JobSpec& s) {
       s.train.batch = 5000;
       s.train.micro_batch = 1;
     }},
    {"train.seed", "got -1", [](JobSpec& s) { s.train.seed = -1; }},
    {"train.optimizer.name", "did you mean 'adamw'?",
     [](JobSpec& s) { s.train.optimizer.name = "adam"; }},
    {"train.optimizer.momentum", "in [0, 1), got 1",
     [](JobSpec& s) { s.train.optimizer.momentum = 1; }},
    {"train.optimizer.weight_decay", "0 or more",
     [](JobSpec& s) { s.train.optimizer.weight_decay = kInfinity; }},
    {"train.optimizer.beta1", "in [0, 1)",
     [](JobSpec& s) { s.train.optimizer.beta1 = 1; }},
    {"train.optimizer.beta2", "in [0, 1)",
     [](JobSpec& s) { s.train.optimizer.beta2 = -0.1; }},
    {"train.optimizer.epsilon", "greater than 0",
     [](JobSpec& s) { s.train.optimizer.epsilon = 0; }},
    {"train.learning_rate.base", "greater than 0, got nan",
     [](JobSpec& s) { s.train.learning_rate.base = kNan; }},
    {"train.learning_rate.schedule", "did you mean 'cosine'?",
     [](JobSpec& s) { s.train.learning_rate.schedule = "cosin"; }},
    {"train.learning_rate.warmup_steps", "got -1",
     [](JobSpec& s) { s.train.learning_rate.warmup_steps = -1; }},
    {"train.learning_rate.minimum", "from 0 to train.learning_rate.base",
     [](JobSpec& s) { s.train.learning_rate.minimum = 1; }},
    {"train.learning_rate.step_every", "got 0",
     [](JobSpec& s) { s.train.learning_rate.step_every = 0; }},
    {"train.learning_rate.gamma", "in (0, 1]",
     [](JobSpec& s) { s.train.learning_rate.gamma = 1.5; }},
    {"train.clip_norm", "or more", [](JobSpec& s) { s.train.clip_norm = -1; }},
    {"train.evaluate_every", "got -1",
     [](JobSpec& s) { s.train.evaluate_every = -1; }},
    {"pipeline.stages", "got -1", [](JobSpec& s) { s.pipeline.stages = -1; }},
    {"pipeline.policy", "did you mean 'equal'",
     [](JobSpec& s) { s.pipeline.policy = "equl"; }},
    {"pipeline.stages", "asks for 9 stages, but the model has only 8 layers",
     [](JobSpec& s) { s.pipeline.stages = 9; }},
    {"pipeline.schedule", "did you mean '1f1b'?",
     [](JobSpec& s) { s.pipeline.schedule = "1f1"; }},
    {"pipeline.codec", "did you mean 'bf16'?",
     [](JobSpec& s) { s.pipeline.codec = "bf6"; }},
    {"pipeline.workers", "needs pipeline.cuts",
     [](JobSpec& s) {
       s.pipeline.workers = {"a", "b"};
     }},
    {"pipeline.workers", "names 3 workers for 2 stages",
     [](JobSpec& s) {
       s.pipeline.cuts = {2};
       s.pipeline.workers = {"a", "b", "c"};
     }},
    {"pipeline.schedule", "did you mean 'pipedream'?",
     [](JobSpec& s) { s.pipeline.schedule = "pipedreams"; }},
    {"pipeline.vertical_sync", "belongs to the schedule pipedream; under 1f1b",
     [](JobSpec& s) { s.pipeline.vertical_sync = true; }},
    {"train.clip_norm", "which pipedream's updates do not wait for, got 0.5",
     [](JobSpec& s) {
       s.pipeline.schedule = "pipedream";
       s.train.clip_norm = 0.5;
     }},
    {"pipeline.cuts", "1,2 makes 3 stages, but pipeline.stages is 4",
     [](JobSpec& s) {
       s.pipeline.stages = 4;
       s.pipeline.cuts = {1, 2};
     }},
    {"pipeline.cuts", "must ascend without repeats, got 3,3",
     [](JobSpec& s) {
       s.pipeline.stages = 3;
       s.pipeline.cuts = {3, 3};
     }},
    {"pipeline.cuts", "between 1 and 7 (the model has 8 layers), got 8",
     [](JobSpec& s) {
       s.pipeline.stages = 2;
       s.pipeline.cuts = {8};
     }},
    {"pipeline.cuts", "between 1 and 7",
     [](JobSpec& s) {
       s.pipeline.stages = 2;
       s.pipeline.cuts = {0};
     }},
    {"kind", "did you mean 'infer'?", [](JobSpec& s) { s.kind = "infr"; }},
    {"infer.micro_batch", "got 0",
     [](JobSpec& s) {
       s.kind = kInferKind;
       s.infer.micro_batch = 0;
     }},
    {"infer.samples", "got -1",
     [](JobSpec& s) {
       s.kind = kInferKind;
       s.infer.samples = -1;
     }},
    {"pipeline.schedule", "zero-bubble is a way to train",
     [](JobSpec& s) {
       s.kind = kInferKind;
       s.pipeline.schedule = "zero-bubble";
     }},
    {"threads", "got 0", [](JobSpec& s) { s.threads = 0; }},
    {"cpu_capability", "did you mean 'avx512'?",
     [](JobSpec& s) { s.cpu_capability = "avx51"; }},
    {"precision", "did you mean 'bf16'?",
     [](JobSpec& s) { s.precision = "bfl6"; }},
    {"precision", "names no precision", [](JobSpec& s) { s.precision = ""; }},
    {"precision", "a script computes as it is written",
     [](JobSpec& s) {
       s.precision = "bf16";
       s.model.name = kScriptModel;
       s.model.file = "/m.pt";
     }},
    {"train.activation_checkpointing", "every-N with N layers from 1",
     [](JobSpec& s) { s.train.activation_checkpointing = "every-0"; }},
    {"train.activation_checkpointing", "got 'all\\n'",
     [](JobSpec& s) { s.train.activation_checkpointing = "all\n"; }},
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

TEST(JobSpec, SaysThatALanguageModelTakesNoImages) {
  JobSpec spec = LanguageSpec("gpt");
  spec.data = DefaultDataSpec("synthetic");
  spec.data.shape = {16};

  EXPECT_THAT(WhyAt(spec, "data.name"),
              HasSubstr("synthetic gives images, but gpt takes tokens"));
}

TEST(JobSpec, SaysWhenOneLabelIsGivenAndManyAreLearned) {
  JobSpec spec = LanguageSpec("gpt");
  spec.data = DefaultDataSpec("synthetic-labels");

  EXPECT_THAT(WhyAt(spec, "data.name"),
              HasSubstr("synthetic-labels has one label a sample, but gpt "
                        "learns a label for each token"));
}

TEST(JobSpec, SaysWhenATranslatorIsGivenNoPairs) {
  JobSpec spec = LanguageSpec("gnmt");
  spec.data = DefaultDataSpec("synthetic-tokens");

  EXPECT_THAT(WhyAt(spec, "data.name"),
              HasSubstr("synthetic-tokens has a label for each token, but gnmt "
                        "learns a label for each token of a target"));
  spec = LanguageSpec("gpt");
  spec.data = DefaultDataSpec("synthetic-pairs");
  EXPECT_THAT(WhyAt(spec, "data.name"), HasSubstr("of a target, but gpt"));
}

TEST(JobSpec, SaysWhenThereAreMoreTokensThanTheModelKnows) {
  JobSpec spec = LanguageSpec("bert");
  spec.data.vocabulary = 300;

  EXPECT_THAT(WhyAt(spec, "model.vocabulary"),
              HasSubstr("is 256, but synthetic-labels has 300"));
  spec = LanguageSpec("gpt2");
  spec.data.classes = 60000;
  EXPECT_THAT(WhyAt(spec, "model"), HasSubstr("knows 50257 tokens, the data"));
}

TEST(JobSpec, SaysWhenABlockIsLongerThanTheModelsPositions) {
  JobSpec spec = LanguageSpec("bert");
  spec.data.block = 513;
  spec.data.shape = {513};
  EXPECT_THAT(WhyAt(spec, "model"), HasSubstr("at most 512 tokens, got 513"));

  spec = LanguageSpec("roberta");
  spec.data.block = 513;
  spec.data.shape = {513};
  EXPECT_THAT(WhyAt(spec, "model"), HasSubstr("at most 512 tokens, got 513"));
}

TEST(JobSpec, SaysWhenDataIsFilledUpWithATokenThatTheModelLooksAt) {
  JobSpec spec = LanguageSpec("roberta");
  spec.data.padding = 0;

  EXPECT_EQ(WhyAt(spec, "data.padding"),
            "is 0, but roberta takes token 1 for padding; set data.padding to "
            "1");
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
  for (const BadSpec& bad : kBadSpecs) {
    JobSpec spec = GoodSpec();

    bad.spoil(spec);

    EXPECT_THAT(WhyAt(spec, bad.path), HasSubstr(bad.why)) << bad.path;
    EXPECT_EQ(CheckJobSpec(spec).size(), 1u) << bad.path << ": " << bad.why;
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

TEST(CheckJobSpec, TakesReplicasOfAnInferenceJobThatFit) {
  EXPECT_THAT(CheckJobSpec(Replicated()), IsEmpty());

  const BadSpec bad[] = {
      {"pipeline.replicas", "each of the 2 stages between 1 and",
       [](JobSpec& s) { s.pipeline.replicas = {3}; }},
      {"pipeline.replicas", "got 3,0",
       [](JobSpec& s) {
         s.pipeline.replicas = {3, 0};
       }},
      {"pipeline.replicas", "wants 4 workers, but pipeline.workers names 3",
       [](JobSpec& s) {
         s.pipeline.replicas = {2, 2};
       }},
      {"pipeline.workers", "names a worker twice",
       [](JobSpec& s) {
         s.pipeline.workers = {"a", "b", "a"};
       }},
      {"pipeline.shares", "a positive number for each of the 3 workers",
       [](JobSpec& s) {
         s.pipeline.shares = {1, 0.5};
       }},
      {"pipeline.shares", "got 1,0,1",
       [](JobSpec& s) {
         s.pipeline.shares = {1, 0, 1};
       }},
      {"pipeline.shares", "a positive number",
       [](JobSpec& s) {
         s.pipeline.shares = {1, kNan, 1};
       }},
      {"pipeline.shares", "needs pipeline.replicas",
       [](JobSpec& s) { s.pipeline.replicas.clear(); }}};
  for (const BadSpec& each : bad) {
    JobSpec spec = Replicated();
    each.spoil(spec);
    EXPECT_THAT(WhyAt(spec, each.path), HasSubstr(each.why));
  }
}

}  // namespace
}  // namespace paceline
