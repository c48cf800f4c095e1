#include "client/files/job_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/files/whole_file.h"
#include "core/model/job_keys.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kGood[] =
    "name: first\n"
    "model:\n"
    "  name: mlp\n"
    "  hidden: [64, 32]\n"
    "data: {name: synthetic}\n"
    "train:\n"
    "  steps: 60\n"
    "  clip_norm: 0.5\n"
    "  optimizer: {name: adamw}\n";

absl::StatusOr<ParsedJob> Parsed(const std::string& text,
                                 const std::vector<std::string>& sets = {}) {
  return ParseJobFile({.name = "job.yaml", .text = text, .sets = sets});
}

absl::StatusOr<JobSpec> ParseJob(const std::string& text,
                                 const std::vector<std::string>& sets = {}) {
  auto job = Parsed(text, sets);
  if (!job.ok()) return job.status();
  return job->spec;
}

std::vector<std::string> Warnings(const std::string& text,
                                  const std::vector<std::string>& sets = {}) {
  const auto job = Parsed(text, sets);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->warnings : std::vector<std::string>{"refused"};
}

// Parses what must be wrong; the message, after checking the exit code.
std::string Complaint(const std::string& text,
                      const std::vector<std::string>& sets = {}) {
  const auto spec = ParseJob(text, sets);
  EXPECT_EQ(ExitCodeFor(spec.status()), kExitUsage) << text;
  return std::string(spec.status().message());
}

TEST(JobFile, GivesWhatItSaysAndDefaultsForTheRest) {
  const auto spec = ParseJob(kGood).value();

  EXPECT_EQ(spec.name, "first");
  EXPECT_EQ(spec.model.hidden, (std::vector<int32_t>{64, 32}));
  EXPECT_EQ(spec.train.steps, 60);
  EXPECT_EQ(spec.train.clip_norm, 0.5);
  EXPECT_EQ(spec.train.optimizer.name, "adamw");
  EXPECT_EQ(spec.train.batch, TrainSpec().batch);
}

TEST(JobFile, MayHaveSectionsWithoutKeysAndNoName) {
  const auto spec = ParseJob(
                        "model: {name: lenet}\ndata: {name: synthetic}\n"
                        "train:\n  # steps: 3\nfaults:\n")
                        .value();

  EXPECT_EQ(spec.name, "lenet") << "the model's";
  EXPECT_EQ(spec.train.steps, TrainSpec().steps);
  EXPECT_TRUE(spec.faults.empty());
}

constexpr char kLenet[] = "model: {name: lenet}\ndata: {name: synthetic}\n";
constexpr char kParallel[] =
    "model: {name: lenet}\n"
    "data: {name: fashion-mnist}\n"
    "train: {micro_batch: 4}\n"
    "aggregation:\n"
    "  mode: rolling\n"
    "  rule: trimmed-mean\n"
    "  k: 1\n"
    "  min_parts: 3\n"
    "  workers: [w1, w2, w3]\n"
    "faults:\n"
    "  - {worker: w1, step: 5, kind: sign-flip, scale: 10}\n"
    "  - worker: w3\n"
    "    kind: kill\n"
    "    step: 9\n";

TEST(JobFile, WhatIsWrongIsNamedWithItsLine) {
  const std::string lenet(kLenet), parallel(kParallel);
  const std::pair<std::string, const char*> kCases[] = {
      {lenet + "train:\n  steps: 3\n  optimiser: {name: sgd}\n",
       "job.yaml:5: train.optimiser: unknown key; did you mean 'optimizer'?"},
      {"model: {name: lenet}\nmicro_batch: 4\n", "or 'infer.micro_batch'?"},
      {"zzzzzzzz: 1\n", "known here: name, model, data, train"},
      {"modell: {name: lenet}\ntrain:\n  steps: many\n",
       "job.yaml:1: modell: unknown key; did you mean 'model'?\n"
       "job.yaml:3: train.steps: expected a whole number, got 'many'"},
      {"threads: 1\nname: a\nthreads: 2\n", "job.yaml:3: threads: duplicate"},
      {"", "job.yaml: is empty"},
      {"\n\n", "job.yaml: is empty"},
      {"# nothing\n", "job.yaml: is empty"},
      {"---\n", "job.yaml: is empty"},
      {"null\n", "job.yaml: is empty"},
      {"name: a\n---\nname: b\n", "job.yaml:2: a second document"},
      // YAML::LoadAll() made documents of these without an end.
      {",", "job.yaml: is empty"},
      {"name: a\n---\n,", "job.yaml:2: a second document"},
      {"name: a\nmodel: {name: [\n", "is not YAML"},
      {"name: a\n\t- x\n", "job.yaml:2"},
      {"model:\n\tname: mlp\n", ":2: a tab"},
      {"model:\n  name: lenett\ndata: {name: synthetic}\n",
       "job.yaml:2: model.name: "},
      {lenet + "train:\n  batch: -1\n", "job.yaml:4: train.batch: "},
      {"model: {name: lenet}\ndata: {name: nowhere}\n",
       "job.yaml:2: data.name: "},
      {lenet + "pipeline: {stages: 99}\n", "job.yaml:3: pipeline.stages: "},
      {"model: {name: lenet}\n", "job.yaml: data.name: "},
      {"model: {name: lenet}\nfaults: {worker: w1}\n",
       "job.yaml:2: faults: expected a list of keys (worker, step"},
      {parallel + "    kid: nan\n", "job.yaml:15: faults[1].kid: unknown key"},
      {parallel + "  - {worker: w1, kind: nan, step: -1}\n",
       "job.yaml:15: faults[2].step: must be a whole number"},
      {parallel + "  - {worker: w9, kind: nan}\n",
       "job.yaml:15: faults[2].worker: unknown worker 'w9'"},
      {parallel + "  - kill\n", "job.yaml:15: faults[2]: expected keys"},
  };
  for (const auto& [text, says] : kCases) {
    EXPECT_THAT(Complaint(text), HasSubstr(says)) << text;
  }
}

constexpr std::pair<const char*, const char*> kWrongTypes[] = {
    {"train:\n  steps: 1.5\n", "expected a whole number, got '1.5'"},
    {"train:\n  steps: \"60\"\n", "remove the quotes"},
    {"train:\n  steps: [1]\n", "expected a whole number, got a list"},
    {"train:\n  steps:\n", "expected a whole number, got nothing"},
    {"train:\n  steps: 99999999999999999999\n",
     "train.steps: 99999999999999999999 is out of range"},
    {"threads: 4294967296\n", "threads: 4294967296 is out of"},
    {"threads: 2147483648\n", "a whole number from -2147483648 to 2147483647"},
    {"model: {hidden: [8, 2147483648]}\n", "model.hidden: 2147483648 is out"},
    {"data: {shape: [1, 9223372036854775808]}\n",
     "data.shape: 9223372036854775808 is out of range"},
    {"train: {seed: -9223372036854775809}\n",
     "train.seed: -9223372036854775809 is out of range"},
    {"threads: 1e3\n", "expected a whole number, got '1e3'"},
    {"train:\n  clip_norm: 1e400\n",
     "job.yaml:2: train.clip_norm: 1e400 is out of range; the greatest "
     "number is 1.79769e+308"},
    {"train:\n  clip_norm: -1e400\n", "-1e400 is out of range"},
    {"train:\n  clip_norm: 1e-400\n", "1e-400 is too small to tell from 0"},
    {"train:\n  clip_norm: .nan\n", "expected a number"},
    {"train:\n  clip_norm: inf\n", "expected a finite number"},
    {"pipeline:\n  vertical_sync: yes\n", "a flag (true or false), got 'yes'"},
    {"pipeline: {vertical_sync: 1}\n", "a flag (true or false), got '1'"},
    {"train: 5\n", "job.yaml:1: train: expected keys (epochs"},
    {"train: [5]\n", "train: expected keys"},
    {"model:\n  hidden: 5\n", "list of whole numbers, as in [1, 2], got '5'"},
    {"model:\n  hidden: [5, x]\n", "expected a whole number, got 'x'"},
    {"model:\n  hidden: [5, [6]]\n", "got a list in it"},
    {"data: {path: {a: b}}\n", "data.path: expected text"},
    {"name: \"\\x80 \xff\"\n", "is not valid UTF-8"},
    {"- a\n", "job.yaml:1: expected keys such as model"},
    {"just words\n", "got 'just words'"},
    {"[1]: 2\n", "expected a key, got a list"},
};

TEST(JobFile, AValueOfAnotherTypeIsNamedWithItsLine) {
  for (const auto& [text, says] : kWrongTypes) {
    EXPECT_THAT(Complaint(text), HasSubstr(says)) << text;
  }
}

TEST(JobFile, DeepNestingAndAliasesEndInAnErrorSoon) {
  EXPECT_NE(Complaint(std::string(200'000, '[')), "");
  EXPECT_NE(Complaint("a: &a [*a]\n"), "");
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string last = std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" +
            last + ", *a" + last + "]\n";
  }
  EXPECT_THAT(Complaint(bomb), HasSubstr("a39: unknown key"));
}

TEST(Set, OverridesAnyKindOfValue) {
  const auto spec =
      ParseJob(kGood,
               {"train.steps=7", "train.steps=8", "model.hidden=16, 8,4",
                "threads=2", "train.learning_rate.base=2.5e-3", "name=a=b: c"})
          .value();

  EXPECT_EQ(spec.train.steps, 8);
  EXPECT_EQ(spec.model.hidden, (std::vector<int32_t>{16, 8, 4}));
  EXPECT_EQ(spec.threads, 2);
  EXPECT_EQ(spec.train.learning_rate.base, 0.0025);
  EXPECT_EQ(spec.name, "a=b: c");
}

TEST(Set, MistakesNameTheFlagAndInAListTheColumn) {
  const std::pair<const char*, const char*> kCases[] = {
      {"train.step=1", ": train.step: unknown key; did you mean 'steps'?"},
      {"train.steps=many", ": expected a whole number, got 'many'"},
      {"train.batch=-1", ": train.batch: "},
      {"train=1", ": name one value"},
      {"threads.x=1", ": threads has no keys below it"},
      {"train.steps", ": expected KEY=VALUE"},
      {"=1", ": expected KEY=VALUE"},
      {"", ": expected KEY=VALUE"},
      {"model.hidden=1,x", ": expected a whole number, got 'x'"},
      {"model.hidden=[4", ": column 14: '[' without ']' at the end"},
      {"model.hidden=4]", ": column 15: ']' without '['"},
      {"model.hidden=[", ": column 14: '[' without ']'"},
      {"model.hidden=[[4]]", ": column 15: a list cannot hold"},
      {"model.hidden=4,[5],6", ": column 16: a list cannot hold"},
      {"model.hidden=[4,,5]", ": column 17: a value is missing"},
      {"model.hidden=4,", ": column 16: a value is missing"},
      {"faults=kill", ": expected a list of keys (worker, "},
      {"faults.kind=kill", ": faults is a list: set all of it, as in"},
      {"faults=[{worker: w1, kind: no}]", ": faults[0].kind: unknown kind of"},
      {"faults=[{", ": is not YAML at"},
  };
  for (const auto& [set, says] : kCases) {
    EXPECT_THAT(Complaint(kParallel, {set}),
                HasSubstr(absl::StrCat("--set ", set, says)));
  }
}

TEST(Set, IsBlamedForWhatItSaysOfAModelThatTheFileNames) {
  EXPECT_THAT(Complaint(kGood, {"train.only=last-99"}),
              HasSubstr("--set train.only=last-99"));
  EXPECT_THAT(Complaint(kGood, {"model.lora.rank=2"}),
              HasSubstr("--set model.lora.rank=2"));
}

TEST(Set, AnEmptyListIsOne) {
  for (const char* none :
       {"model.hidden=", "model.hidden=[]", "model.hidden=[ ]"}) {
    const auto spec = ParseJob(kGood, {none}).value();

    // Absent and empty are one thing in protobuf: the default.
    EXPECT_EQ(spec.model.hidden, ModelSpec().hidden);
  }
}

TEST(JobFile, AKeyWithoutEffectIsNamedWithItsLineAndWhy) {
  EXPECT_THAT(Warnings("model: {name: lenet}\n"
                       "data: {name: synthetic, path: /x}\n"
                       "train:\n"
                       "  optimizer: {name: adamw, momentum: 0.9}\n"),
              testing::ElementsAre(
                  "job.yaml:2: data.path has no effect: data.name is synthetic",
                  "job.yaml:4: train.optimizer.momentum has no effect: "
                  "train.optimizer.name is adamw"));
  EXPECT_THAT(Warnings(kParallel, {"data.rotate=true"}),
              testing::ElementsAre(HasSubstr("data.distribution is iid")));
}

TEST(JobFile, ASetWithoutEffectIsNamed) {
  EXPECT_THAT(Warnings(kGood, {"model.depth=3"}),
              testing::ElementsAre("--set model.depth=3: model.depth has no "
                                   "effect: model.name is mlp"));
}

TEST(ChangeJob, KeepsTheJobButForWhatIsSet) {
  const JobSpec spec = ParseJob(kGood).value();

  const auto changed = ChangeJob(
      spec, {"train.steps=90", "pipeline.stages=2", "model.hidden=[8]"});

  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->spec.train.steps, 90);
  EXPECT_EQ(changed->spec.pipeline.stages, 2);
  EXPECT_EQ(changed->spec.model.hidden, std::vector<int32_t>{8});
  EXPECT_EQ(changed->spec.train.optimizer.name, "adamw");
  EXPECT_EQ(changed->spec.name, "first");
  EXPECT_THAT(ChangeJob(spec, {"train.steps=-1"}).status().message(),
              HasSubstr("--set train.steps=-1: train.steps"));
}

TEST(Set, ModelSettingsNeedNoJob) {
  const auto job = ParseModelSettings("vit", {"model.depth=2"}).value();

  EXPECT_EQ(job.spec.model.name, "vit");
  EXPECT_EQ(job.spec.model.depth, 2);
  EXPECT_TRUE(job.warnings.empty());
  EXPECT_FALSE(ParseModelSettings("vit", {"model.dept=2"}).ok());
}

// A worker looked for it in a folder of its own.
TEST(JobFile, ARelativePathIsRefusedAndSaysWhatItWouldBeHere) {
  const std::string here = std::filesystem::current_path().string();
  const auto problem = [](const std::string& set) {
    return std::string(
        ParseJob("model: {name: lenet}\ndata: {name: idx, path: /srv}\n", {set})
            .status()
            .message());
  };
  setenv("HOME", "/home/rider", /*overwrite=*/1);

  EXPECT_THAT(
      problem("data.path=../data/"),
      Says("--set data.path=../data/: data.path: must be an "
           "absolute path",
           std::filesystem::path(here).parent_path().string() + "/data/"));
  EXPECT_THAT(problem("data.path=~/data"), HasSubstr("/home/rider/data"));
  EXPECT_THAT(problem("model.weights=w.safetensors"),
              HasSubstr(here + "/w.safetensors"));
  EXPECT_THAT(
      ParseModelSettings("script", {"model.file=net.pt"}).status().message(),
      HasSubstr(here + "/net.pt"));
  EXPECT_TRUE(ParseModelSettings("script", {"model.file=/net.pt"}).ok());
}

TEST(JobFile, FilesThatCannotBeReadAreUsageErrors) {
  EXPECT_THAT(ReadJobFile("/nowhere/job.yaml").status().message(),
              HasSubstr("No such file"));
  EXPECT_THAT(ReadJobFile("/").status().message(), HasSubstr("directory"));
  EXPECT_THAT(ReadJobFile("/dev/zero").status().message(),
              HasSubstr("larger than 1.00 MiB"));
  EXPECT_EQ(ExitCodeFor(ReadJobFile("/nowhere").status()), kExitUsage);
}

// In a process of its own: the descriptor is everybody's.
TEST(JobFile, AClosedStandardInputIsSaidAndNothingElseIsRead) {
  EXPECT_EXIT(
      {
        close(STDIN_FILENO);
        GuardStandardStreams();
        const int next = open("/dev/zero", O_RDONLY);
        const auto text = ReadJobFile("-");
        std::cerr << text.status().message();
        _exit(next > STDERR_FILENO ? ExitCodeFor(text.status()) : 99);
      },
      testing::ExitedWithCode(kExitUsage),
      "standard input: it is closed; name a file");
}

TEST(StandardStreams, AClosedOutputStaysAnError) {
  EXPECT_EXIT(
      {
        close(STDOUT_FILENO);
        GuardStandardStreams();
        _exit(write(STDOUT_FILENO, "x", 1) == -1 && errno == EBADF ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(StandardStreams, OpenOnesAreLeftAlone) {
  EXPECT_EXIT(
      {
        GuardStandardStreams();
        std::cerr << "still here";
        _exit(0);
      },
      testing::ExitedWithCode(0), "still here");
}

// Whoever adds a key of another type learns here that job files need to learn
// it too.
TEST(JobFile, TakesEveryKeyOfTheTable) {
  for (const JobKey& key : JobKeys()) {
    if (absl::StartsWith(key.path, "faults.")) continue;
    const std::string type = TypeText(key);
    const char* const value = absl::StrContains(type, "flag")   ? "true"
                              : absl::StrContains(type, "list") ? "[1]"
                                                                : "1";

    const auto job =
        ParseModelSettings("lenet", {absl::StrCat(key.path, "=", value)});

    const std::string said(job.status().message());
    EXPECT_THAT(said, Not(HasSubstr("expected"))) << key.path;
    EXPECT_THAT(said, Not(HasSubstr("cannot hold"))) << key.path;
    EXPECT_THAT(said, Not(HasSubstr("unknown key"))) << key.path;
  }
}

TEST(JobFile, AggregationAndFaultsAreReadAsTheyAreWritten) {
  const auto spec = ParseJob(kParallel).value();

  EXPECT_EQ(spec.aggregation.mode, "rolling");
  EXPECT_EQ(spec.aggregation.rule, "trimmed-mean");
  EXPECT_EQ(spec.aggregation.k, 1);
  EXPECT_EQ(spec.aggregation.min_parts, 3);
  EXPECT_EQ(spec.aggregation.shards, 0);
  EXPECT_THAT(spec.aggregation.workers, testing::ElementsAre("w1", "w2", "w3"));
  ASSERT_EQ(spec.faults.size(), 2u);
  EXPECT_EQ(spec.faults[0].worker, "w1");
  EXPECT_EQ(spec.faults[0].step, 5);
  EXPECT_EQ(spec.faults[0].scale, 10);
  EXPECT_EQ(spec.faults[0].steps, 1);
  EXPECT_EQ(spec.faults[1].kind, "kill");
}

TEST(JobFile, ASetOverridesAggregationAndTheWholeListOfFaults) {
  const auto spec =
      ParseJob(kParallel,
               {"aggregation.mode=central", "aggregation.workers=[w1,w2,w3,w4]",
                "faults=[{worker: w2, kind: nan, steps: 0}]"})
          .value();

  EXPECT_EQ(spec.aggregation.mode, "central");
  EXPECT_EQ(spec.aggregation.workers.size(), 4u);
  ASSERT_EQ(spec.faults.size(), 1u);
  EXPECT_EQ(spec.faults[0].worker, "w2");
  EXPECT_EQ(spec.faults[0].steps, 0);
  EXPECT_TRUE(ParseJob(kParallel, {"faults=[]"})->faults.empty());
}

TEST(JobFile, FaultsThatNeverComeAreWarnedOf) {
  EXPECT_THAT(
      Warnings(kParallel, {"train.steps=5",
                           "faults=[{worker: w1, kind: kill, "
                           "step: 5, scale: 2}]"}),
      testing::ElementsAre(
          HasSubstr("faults[0].scale has no effect: the fault's kind is kill"),
          HasSubstr("faults[0].step has no effect: the last step of 5 is 4")));
}

TEST(JobFile, KeysThatTheRuleOrTheModeDoesNotReadAreWarnedOf) {
  EXPECT_THAT(Warnings(std::string(kGood) + "aggregation: {k: 2}\n"),
              testing::ElementsAre("job.yaml:10: aggregation.k has no effect: "
                                   "aggregation.mode is none"));
  EXPECT_THAT(
      Warnings(kParallel, {"aggregation.rho=0.1", "aggregation.alpha=2"}),
      testing::ElementsAre(
          "--set aggregation.alpha=2: aggregation.alpha has no effect: "
          "aggregation.rule is trimmed-mean",
          "--set aggregation.rho=0.1: aggregation.rho has no effect: "
          "aggregation.rule is trimmed-mean"));
  EXPECT_THAT(Warnings(kParallel, {"pipeline.schedule=gpipe"}),
              testing::ElementsAre(
                  "--set pipeline.schedule=gpipe: pipeline.schedule has no "
                  "effect: every member holds the whole model"));
}

TEST(JobFile, EveryExampleIsAGoodJobWithoutIdleKeys) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           PACELINE_SOURCE_DIR "/deploy/jobs")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path());
    const auto text = ReadJobFile(entry.path()).value();
    EXPECT_THAT(Warnings(text), testing::IsEmpty());
    ++examples;
  }
  EXPECT_GE(examples, 4);
}

}  // namespace
}  // namespace paceline
