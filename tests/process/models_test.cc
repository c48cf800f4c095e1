// Models that are not ours: somebody's own script, somebody's weights.

#include <signal.h>

#include <filesystem>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

#ifdef PACELINE_WITH_TORCH
constexpr bool kHasTorch = true;
#else
constexpr bool kHasTorch = false;
#endif

std::string Script(const std::string& name) {
  return std::string(PACELINE_SOURCE_DIR) + "/tests/data/script/" + name;
}

std::string ScriptJob(const Mesh& mesh, const std::string& file) {
  return mesh.Write("model: {name: script, file: " + file +
                    "}\n"
                    "data: {name: synthetic, shape: [2, 4, 4], "
                    "classes: 3, train_samples: 64, test_samples: 32}\n"
                    "train: {steps: 4, batch: 16, micro_batch: 4}\n");
}

TEST(Script, TrainsWithTheSameBytesOnAnyNumberOfStages) {
  if (!kHasTorch) GTEST_SKIP() << "scripts need LibTorch";
  const Mesh mesh(2);
  const std::string file = ScriptJob(mesh, Script("scripted.pt"));

  const nlohmann::json one = mesh.Submit(file, {"pipeline.stages=1"});
  const nlohmann::json four = mesh.Submit(file, {"pipeline.stages=4"});

  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
  EXPECT_EQ(four["state"], "succeeded") << four.dump(2);
  EXPECT_EQ(four["stages"], 4);
  EXPECT_EQ(one["weights_sha256"], four["weights_sha256"]);
  EXPECT_FALSE(one["test_accuracy"].is_null());
}

TEST(Script, InfersWithTheWeightsThatItWasTrainedTo) {
  if (!kHasTorch) GTEST_SKIP() << "scripts need LibTorch";
  const Mesh mesh(2);
  const std::string file = ScriptJob(mesh, Script("scripted.pt"));
  const nlohmann::json trained = mesh.Submit(file);
  const std::string weights = mesh.Export();

  const auto infer = [&](const std::string& stages, const std::string& from) {
    return mesh.Submit(file, {"kind=infer", "model.weights=" + from,
                              "pipeline.stages=" + stages});
  };
  const nlohmann::json one = infer("1", weights);
  const nlohmann::json four = infer("4", weights);
  const nlohmann::json untrained = infer("1", "");

  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
  EXPECT_EQ(one["test_accuracy"], trained["test_accuracy"]);
  EXPECT_EQ(one["weights_sha256"], four["weights_sha256"]) << "predictions";
  EXPECT_NE(one["weights_sha256"], untrained["weights_sha256"]);
}

TEST(Script, ThatCannotBeUsedIsAUsageErrorThatSaysWhy) {
  if (!kHasTorch) GTEST_SKIP() << "scripts need LibTorch";
  const Mesh mesh(1);

  const Finished traced = mesh.TrySubmit(ScriptJob(mesh, Script("traced.pt")));
  const Finished missing = mesh.TrySubmit(ScriptJob(mesh, "/nowhere/net.pt"));

  EXPECT_EQ(traced.exit_code, 2);
  EXPECT_THAT(traced.errors, HasSubstr("it was traced"));
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.errors, HasSubstr("/nowhere/net.pt: No such file"));
}

TEST(Script, WithoutAnEndCostsNeitherTheTimeoutNorTheWorker) {
  if (!kHasTorch) GTEST_SKIP() << "scripts need LibTorch";
  const Mesh mesh(1);
  const pid_t stuck = mesh.pid_of_worker("w1");
  ASSERT_GT(stuck, 1);

  const Finished submitted = mesh.TrySubmit(
      ScriptJob(mesh, Script("endless.pt")), {}, {"--timeout", "2s"});

  EXPECT_EQ(submitted.exit_code, 124) << submitted.errors;
  EXPECT_THAT(submitted.errors, HasSubstr("gave up after 2s (--timeout)"));
  EXPECT_LT(submitted.seconds.count(), 20);
  EXPECT_EQ(mesh.Workers()[0]["state"], "measuring");

  // `paceline up` starts it again.
  ASSERT_EQ(kill(stuck, SIGTERM), 0);
  EXPECT_TRUE(Eventually([&] {
    const pid_t now = mesh.pid_of_worker("w1");
    return now > 1 && now != stuck;
  })) << mesh.log("w1");
  EXPECT_THAT(mesh.log("w1"), HasSubstr("what it computes does not end"));
}

TEST(Weights, OfOneJobAreWhereAnotherBegins) {
  const Mesh mesh(2);
  const std::string job = mesh.Write(
      "model: {name: resnet18, width: 4}\n"
      "data: {name: synthetic, shape: [3, 16, 16], classes: 5, "
      "train_samples: 32, test_samples: 0}\n"
      "train: {steps: 2, batch: 8, micro_batch: 4}\n"
      "pipeline: {stages: 2}\n",
      "resnet.yaml");
  mesh.Submit(job);
  const std::string weights = mesh.Export();

  const nlohmann::json next =
      mesh.Submit(job, {"model.weights=" + weights, "train.seed=7"});
  const Finished other_classes =
      mesh.TrySubmit(job, {"model.weights=" + weights, "data.classes=6"});
  const nlohmann::json reset = mesh.Submit(
      job,
      {"model.weights=" + weights, "data.classes=6", "model.reset_head=true"});

  EXPECT_EQ(other_classes.exit_code, 1);
  EXPECT_THAT(other_classes.errors,
              HasSubstr("fc.weight [5, 32], need [6, 32]"));
  EXPECT_THAT(other_classes.errors, HasSubstr("model.reset_head: true"));
}

// A text that repeats itself, in a file of its own.
std::string TextOf(const Mesh& mesh) {
  const std::string path = mesh.folder() + "/text.txt";
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the line closes up. ";
  WriteWholeFile(path, text);
  return path;
}

TEST(Language, AGptEndsWithTheSameBytesOnAnyNumberOfStages) {
  const Mesh mesh(2);
  const std::string job = mesh.Write(
      "model: {name: gpt, depth: 2, width: 16, heads: 2}\n"
      "data: {name: text, path: " +
          TextOf(mesh) +
          ", block: 16}\n"
          "train: {steps: 3, batch: 8, micro_batch: 2, "
          "optimizer: {name: adamw}}\n",
      "gpt.yaml");

  const nlohmann::json one = mesh.Submit(job, {"pipeline.stages=1"});
  const std::string weights = mesh.Export();
  const nlohmann::json four = mesh.Submit(job, {"pipeline.stages=4"});
  const nlohmann::json next = mesh.Submit(job, {"model.weights=" + weights});
  const Finished stream = mesh.TrySubmit(job, {"pipeline.schedule=pipedream"});

  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
  EXPECT_EQ(four["state"], "succeeded") << four.dump(2);
  EXPECT_EQ(four["stages"], 4);
  EXPECT_EQ(one["weights_sha256"], four["weights_sha256"]);
  EXPECT_FALSE(one["test_accuracy"].is_null());
  EXPECT_EQ(stream.exit_code, 2);
  EXPECT_THAT(stream.errors, HasSubstr("both compute with"));
}

TEST(Language, ARobertaLearnsLabelsOverTwoStages) {
  const Mesh mesh(2);
  const std::string text = mesh.folder() + "/labels.txt";
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += i % 2 ? "1\tpull\n" : "0\tin the bunch, out of the wind\n";
  }
  WriteWholeFile(text, lines);
  const std::string job = mesh.Write(
      "model: {name: roberta, depth: 1, width: 16, heads: 2}\n"
      "data: {name: text-labels, path: " +
          text +
          ", block: 12}\n"
          "train: {steps: 3, batch: 8, micro_batch: 2}\n",
      "roberta.yaml");

  const nlohmann::json one = mesh.Submit(job, {"pipeline.stages=1"});
  const nlohmann::json two = mesh.Submit(job, {"pipeline.stages=2"});
  const Finished padding = mesh.TrySubmit(job, {"data.padding=0"});

  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
  EXPECT_EQ(one["weights_sha256"], two["weights_sha256"]);
  EXPECT_EQ(padding.exit_code, 2);
  EXPECT_THAT(padding.errors, HasSubstr("takes token 1 for padding"));
}

// Over a wire between processes, several tensors both ways.
TEST(Language, AGnmtEndsWithTheSameBytesOnAnyNumberOfStages) {
  const Mesh mesh(2);
  const std::string job = mesh.Write(
      "model: {name: gnmt, width: 8}\n"
      "data: {name: synthetic-pairs, block: 6, train_samples: 24, "
      "test_samples: 10}\n"
      "train: {steps: 3, batch: 8, micro_batch: 2}\n",
      "gnmt.yaml");

  const nlohmann::json one = mesh.Submit(job, {"pipeline.stages=1"});
  const std::string weights = mesh.Export();
  const nlohmann::json four = mesh.Submit(job, {"pipeline.stages=4"});
  const nlohmann::json coded =
      mesh.Submit(job, {"pipeline.stages=4", "pipeline.codec=bf16"});
  const nlohmann::json infer = mesh.Submit(
      job, {"kind=infer", "model.weights=" + weights, "pipeline.stages=3"});

  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
  EXPECT_EQ(four["state"], "succeeded") << four.dump(2);
  EXPECT_EQ(four["stages"], 4);
  EXPECT_EQ(one["weights_sha256"], four["weights_sha256"]);
  EXPECT_NE(one["weights_sha256"], coded["weights_sha256"]);
  EXPECT_EQ(infer["test_accuracy"], one["test_accuracy"]);
}

TEST(Language, AGnmtIsProfiledAndPlanned) {
  const Mesh mesh(2);
  const std::vector<std::string> sizes = {"--batch", "2", "--model", "gnmt"};
  std::vector<std::string> profile = {"profile", "--all"};
  profile.insert(profile.end(), sizes.begin(), sizes.end());
  std::vector<std::string> plan = {"plan", "--stages", "2", "--no-replicas"};
  plan.insert(plan.end(), sizes.begin(), sizes.end());

  const nlohmann::json measured = mesh.Json(profile);
  const nlohmann::json planned = mesh.Json(plan);

  EXPECT_EQ(measured["profiles"][0]["layers"].size(), 8u) << measured.dump(2);
  EXPECT_EQ(planned["stages"].size(), 2u) << planned.dump(2);
  EXPECT_THAT(planned["source"].get<std::string>(), HasSubstr("measured on"));
}

// --- Any model --------------------------------------------------------------

struct Small {
  const char* name;
  const char* model;
  const char* data;
};

void PrintTo(const Small& small, std::ostream* out) { *out << small.name; }

constexpr char kPictures[] =
    "{name: synthetic, shape: [3, 32, 32], classes: 4, train_samples: 24, "
    "test_samples: 4}";
constexpr char kPhrases[] =
    "{name: synthetic-labels, block: 12, vocabulary: 40, classes: 4, "
    "train_samples: 24, test_samples: 4}";

class Any : public ::testing::TestWithParam<Small> {};

// Those above do so as well; here is who else crosses a wire.
TEST_P(Any, ModelEndsWithTheSameBytesOnOneTwoAndFourStages) {
  const Mesh mesh(4);
  const std::string job = mesh.Write(
      absl::StrCat("model: ", GetParam().model, "\ndata: ", GetParam().data,
                   "\ntrain: {steps: 2, batch: 8, micro_batch: "
                   "2, optimizer: {name: adamw}}\n"));

  const nlohmann::json one = mesh.Submit(job, {"pipeline.stages=1"});
  EXPECT_EQ(one["state"], "succeeded") << one.dump(2);
  for (const std::string stages : {"2", "4"}) {
    const nlohmann::json more = mesh.Submit(job, {"pipeline.stages=" + stages});
    EXPECT_EQ(more["weights_sha256"], one["weights_sha256"]) << more.dump(2);
    EXPECT_EQ(absl::StrCat(more["stages"].get<int>()), stages);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Any,
    ::testing::Values(
        Small{"mlp", "{name: mlp, hidden: [16, 12, 8]}", kPictures},
        Small{"resnet18", "{name: resnet18, width: 4}", kPictures},
        Small{"resnet50", "{name: resnet50, width: 4}", kPictures},
        Small{"vgg11", "{name: vgg11, width: 4}", kPictures},
        Small{"bert", "{name: bert, depth: 2, width: 16, heads: 2}", kPhrases}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace paceline
