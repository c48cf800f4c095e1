#include "core/job/job_keys.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

JobSpec Spec(const std::string& model, const std::string& data) {
  JobSpec spec;
  spec.model.name = model;
  spec.data.name = data;
  return spec;
}

// The keys of `given` that have no effect.
std::vector<std::string> Unused(const JobSpec& spec,
                                const std::vector<GivenKey>& given) {
  std::vector<std::string> paths;
  for (const UnusedKey& key : UnusedKeys(spec, given)) {
    paths.push_back(key.path);
  }
  return paths;
}

struct Case {
  const char* key;
  JobSpec with;     // has an effect here
  JobSpec without;  // and none here
};

std::vector<Case> Cases() {
  const JobSpec mlp = Spec("mlp", "synthetic");
  const JobSpec vit = Spec("vit", "fashion-mnist");
  const JobSpec pictures = Spec("mlp", "imagefolder");
  const JobSpec text = Spec("mlp", "text");
  JobSpec adamw = mlp;
  adamw.train.optimizer.name = "adamw";
  JobSpec cosine = mlp;
  cosine.train.learning_rate.schedule = "cosine";
  JobSpec step = mlp;
  step.train.learning_rate.schedule = "step";
  JobSpec untested = mlp;
  untested.data.test_samples = 0;
  JobSpec counted = mlp;
  counted.train.steps = 5;
  JobSpec infer = mlp;
  infer.kind = kInferKind;
  return {{"train.batch", mlp, infer},
          {"train.optimizer.name", mlp, infer},
          {"pipeline.schedule", mlp, infer},
          {"infer.samples", infer, mlp},
          {"model.hidden", mlp, vit},
          {"model.depth", vit, mlp},
          {"model.width", vit, mlp},
          {"model.heads", vit, mlp},
          {"model.patch", vit, mlp},
          {"data.path", vit, mlp},
          {"data.train_samples", mlp, vit},
          {"data.test_samples", mlp, vit},
          {"data.crop", pictures, vit},
          {"data.resize", pictures, Spec("mlp", "cifar10")},
          {"data.flip", Spec("mlp", "cifar10"), text},
          {"data.mean", vit, mlp},
          {"data.deviation", pictures, text},
          {"data.block", Spec("mlp", "synthetic-tokens"), pictures},
          {"data.tokens", text, Spec("mlp", "synthetic-tokens")},
          {"data.test_fraction", text, pictures},
          {"train.optimizer.momentum", mlp, adamw},
          {"train.optimizer.beta1", adamw, mlp},
          {"train.optimizer.beta2", adamw, mlp},
          {"train.optimizer.epsilon", adamw, mlp},
          {"train.learning_rate.minimum", cosine, step},
          {"train.learning_rate.step_every", step, mlp},
          {"train.learning_rate.gamma", step, cosine},
          {"train.evaluate_every", mlp, untested},
          {"train.epochs", mlp, counted}};
}

TEST(RemediesFor, LeavesOutThoseOfKeysWithoutEffect) {
  const std::vector<std::string> remedies = {
      "a smaller train.micro_batch", "a smaller infer.micro_batch",
      "more pipeline.stages", "more aggregation.shards", "other data"};
  JobSpec spec;
  EXPECT_EQ(RemediesFor(spec, remedies),
            "a smaller train.micro_batch, more pipeline.stages or other data");
  spec.kind = "infer";
  EXPECT_EQ(RemediesFor(spec, remedies),
            "a smaller infer.micro_batch, more pipeline.stages or other data");
  spec.kind = "train";
  spec.aggregation.mode = "rolling";
  EXPECT_EQ(RemediesFor(spec, remedies),
            "a smaller train.micro_batch, more aggregation.shards or other "
            "data");
  EXPECT_EQ(RemediesFor(spec, {"more pipeline.stages"}), "");
}

TEST(UnusedKeys, AreThoseThatTheJobDoesNotLookAt) {
  for (const Case& each : Cases()) {
    EXPECT_TRUE(Unused(each.with, {{each.key}}).empty()) << each.key;
    EXPECT_EQ(Unused(each.without, {{each.key}}),
              std::vector<std::string>{each.key});
  }
}

TEST(UnusedKeys, AreThoseOfAFaultThatItsKindDoesNotReadAndAStepThatNeverComes) {
  JobSpec spec = Spec("mlp", "synthetic");
  spec.aggregation.mode = "rolling";
  spec.train.steps = 10;
  spec.faults = {{"w1", 9, "kill"},
                 {"w1", 10, "hang"},
                 {"w2", 0, "nan"},
                 {"w2", 0, "kill", 3, 1, 1, "gathering"}};
  std::vector<GivenKey> given;
  for (const char* const fault :
       {"faults[0].", "faults[1].", "faults[2].", "faults[3].", "faults[7]."}) {
    for (const char* const key :
         {"worker", "step", "kind", "steps", "seconds", "scale", "phase"}) {
      given.push_back({absl::StrCat(fault, key)});
    }
  }

  EXPECT_EQ(Unused(spec, given),
            (std::vector<std::string>{
                "faults[0].seconds", "faults[0].scale", "faults[1].step",
                "faults[1].scale", "faults[1].phase", "faults[2].seconds",
                "faults[2].scale", "faults[2].phase", "faults[3].steps",
                "faults[3].seconds", "faults[3].scale"}));
  EXPECT_EQ(UnusedKeys(spec, {{"faults[1].step"}})[0].why,
            "the last step of 10 is 9");

  spec.train.steps = 0;  // epochs decide: it is not known yet
  EXPECT_TRUE(Unused(spec, {{"faults[1].step"}}).empty());
}

TEST(UnusedKeys, OnlyWhatWasGivenIsNamed) {
  EXPECT_TRUE(UnusedKeys(Spec("lenet", "synthetic"), {}).empty());
}

TEST(UnusedKeys, StepsOnTheCommandLineMayShortenAFileWithEpochs) {
  JobSpec spec = Spec("mlp", "synthetic");
  spec.train.steps = 60;
  const GivenKey epochs = {"train.epochs"};

  EXPECT_TRUE(Unused(spec, {epochs, {"train.steps", true}}).empty());
  EXPECT_EQ(Unused(spec, {epochs, {"train.steps", false}}).size(), 1u);
  EXPECT_EQ(Unused(spec, {{"train.epochs", true}, {"train.steps"}}).size(), 1u);
}

TEST(UnusedKeys, SayWhy) {
  const auto unused = UnusedKeys(Spec("lenet", "synthetic"), {{"model.depth"}});

  ASSERT_EQ(unused.size(), 1u);
  EXPECT_EQ(unused[0].why, "model.name is lenet");
}

}  // namespace
}  // namespace paceline
