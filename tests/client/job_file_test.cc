// Job files, and their keys: nothing is missing, nothing is made up.
#include "client/files/job_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands/command.h"
#include "client/commands/reference.h"
#include "client/files/whole_file.h"
#include "core/job/job_keys.h"
#include "core/rpc/convert/job_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paceline/v1/types.pb.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAreArray;

void AddPaths(const google::protobuf::Descriptor& type,
              const std::string& prefix, std::set<std::string>& paths) {
  for (int f = 0; f < type.field_count(); ++f) {
    const auto& field = *type.field(f);
    // Workers say what is in a script; no key does.
    if (field.message_type() == v1::ScriptModel::descriptor()) continue;
    if (field.message_type() == nullptr) {
      paths.insert(prefix + field.name());
    } else {
      AddPaths(*field.message_type(), prefix + field.name() + ".", paths);
    }
  }
}

TEST(JobKeys, AreThoseOfTheProto) {
  std::set<std::string> wanted;
  AddPaths(*v1::JobSpec::descriptor(), "", wanted);

  std::vector<std::string> have;
  for (const JobKey& key : JobKeys()) {
    have.emplace_back(key.path);
    EXPECT_TRUE(absl::EndsWith(key.meaning, ".")) << key.path;
    const bool decided = *key.decider != '\0';
    EXPECT_EQ(decided, absl::StartsWith(key.needs, " ")) << key.path;
    EXPECT_EQ(decided, FindJobKey(key.decider) != nullptr) << key.path;
  }

  EXPECT_THAT(have, UnorderedElementsAreArray(wanted));
}

TEST(JobReference, IsAJobFileThatChangesNothing) {
  const std::vector<std::string> sets = {"model.name=lenet",
                                         "data.name=synthetic"};

  const auto all =
      ParseJobFile({.name = "keys", .text = JobReference(), .sets = sets})
          .value();
  const auto none =
      ParseJobFile({.name = "none", .text = "{}", .sets = sets}).value();

  EXPECT_EQ(ToProto(all.spec).SerializeAsString(),
            ToProto(none.spec).SerializeAsString());
  EXPECT_THAT(all.warnings, testing::IsEmpty());
}

TEST(JobReference, AKeyThatIsCommentedOutNeedsNoOtherLine) {
  for (const JobKey& key : JobKeys()) {
    const std::vector<std::string> parts = absl::StrSplit(key.path, '.');
    const std::string section =
        absl::StrJoin(parts.begin(), parts.end() - 1, ".");
    const std::string before =
        absl::StrCat("\n", std::string(2 * (parts.size() - 1), ' '));
    std::string text = JobReference(section);
    const size_t at = text.find(absl::StrCat(before, "# ", parts.back(), ":"));
    if (at == std::string::npos) continue;

    text.insert(at + before.size() + 2 + parts.back().size() + 1, " [1] #");
    text.erase(at + before.size(), 2);

    const auto job = ParseJobFile({.name = "keys", .text = text, .sets = {}});
    EXPECT_THAT(job.status().message(), AllOf(Not(HasSubstr("is not YAML")),
                                              Not(HasSubstr("unknown key")),
                                              Not(HasSubstr("got nothing"))))
        << key.path << text;
  }
}

TEST(JobReference, SaysTypeDefaultAndWhenAKeyHasAnEffect) {
  const std::string text = JobReference();

  EXPECT_THAT(text,
              Says("    # How much of the last update the next one keeps. "
                   "Type: a number, in [0, 1).\n"
                   "    # Only with train.optimizer.name sgd.\n"
                   "    momentum: 0\n",
                   "  # depth:\n", "# - worker:\n"));
}

TEST(JobReference, MayShowOneSectionOrKey) {
  const std::string text = JobReference("train.optimizer");

  EXPECT_THAT(text, HasSubstr("\ntrain:\n\n  optimizer:\n"));
  EXPECT_THAT(text, Not(HasSubstr("epochs:")));
  EXPECT_THAT(JobReference("train.steps"),
              AllOf(HasSubstr("  steps: 0"), Not(HasSubstr("epochs:"))));
}

TEST(JobReference, IsADocumentToo) {
  const auto keys =
      nlohmann::json::parse(ToJson(JobReferenceDocument()))["keys"];

  ASSERT_EQ(keys.size(), JobKeys().size());
  EXPECT_EQ(keys[0]["key"], "name");
  EXPECT_EQ(keys[0]["absent"], "the model's name");
}

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

absl::StatusOr<ParsedJob> ParsedText(
    const std::string& text, const std::vector<std::string>& sets = {}) {
  return ParseJobFile({.name = "job.yaml", .text = text, .sets = sets});
}

absl::StatusOr<JobSpec> ParseJob(const std::string& text,
                                 const std::vector<std::string>& sets = {}) {
  auto job = ParsedText(text, sets);
  if (!job.ok()) return job.status();
  return job->spec;
}

std::vector<std::string> Warnings(const std::string& text,
                                  const std::vector<std::string>& sets = {}) {
  const auto job = ParsedText(text, sets);
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

// Returns what is wrong with a job file, or its warnings.  A line "@lenet"
// stands for one of the files above, "--set KEY=VALUE" for that flag.
std::string JobFileAnswer(const std::string& question) {
  std::string text;
  std::vector<std::string> sets;
  for (const absl::string_view line : absl::StrSplit(question, '\n')) {
    absl::string_view set = line;
    if (absl::ConsumePrefix(&set, "--set ")) {
      sets.emplace_back(set);
    } else {
      absl::StrAppend(&text, line == "@lenet"      ? kLenet
                             : line == "@parallel" ? kParallel
                             : line == "@good"     ? kGood
                                                   : absl::StrCat(line, "\n"));
    }
  }
  const auto job = ParsedText(text, sets);
  if (!job.ok()) return Complaint(text, sets);
  EXPECT_FALSE(job->warnings.empty()) << question;
  return absl::StrJoin(job->warnings, "\n");
}

TEST(JobFile, WhatIsWrongOrWithoutEffectIsNamedWithItsLine) {
  ExpectAnswers("client/job_files", JobFileAnswer);
  EXPECT_THAT(Complaint("name: \"\\x80 \xff\"\n"),
              HasSubstr("is not valid UTF-8"));
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

TEST(Set, AnEmptyListIsOne) {
  for (const char* none :
       {"model.hidden=", "model.hidden=[]", "model.hidden=[ ]"}) {
    const auto spec = ParseJob(kGood, {none}).value();

    // Absent and empty are one thing in protobuf: the default.
    EXPECT_EQ(spec.model.hidden, ModelSpec().hidden);
  }
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
