#include "client/commands/job/study.h"
#include "client/commands/plan/profile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

ProfileProgress Waiting(std::vector<std::string> waiting) {
  ProfileProgress progress;
  progress.waiting = std::move(waiting);
  return progress;
}

// A bed whose coordinator finishes at once.
struct ProfileBed : CommandBed {
  explicit ProfileBed(OutputFormat format = OutputFormat::kTable,
                      Console::Traits traits = {})
      : CommandBed(format, traits) {
    client.workers = IdleWorkers({"w1", "w2"});
    client.progress = {TwoProfiles()};
  }
  ExitCode Run(const ProfileOptions& options = {}) {
    return ProfileCommand(context, LenetSpec(16), options);
  }
};

TEST(Profile, NeedsAModelOrAJob) {
  EXPECT_THAT(CheckProfileOptions({}).message(), HasSubstr("-f FILE"));
  EXPECT_TRUE(CheckProfileOptions({.model = "lenet"}).ok());
  EXPECT_TRUE(CheckProfileOptions({.job_file = "job.yaml"}).ok());
}

TEST(Profile, PrintsLayersFactsAndLinks) {
  ProfileBed bed;
  ProfileProgress finished = TwoProfiles();
  // A machine that does other things too.
  finished.profiles[1].cpu_share = 0.11;
  finished.profiles[1].quota_period_seconds = 0.008;
  bed.client.progress = {finished};

  EXPECT_EQ(bed.Run(), kExitOk);

  for (const char* said :
       {"w1: lenet(", "1.000 +- 0.020", "a frame costs:", "100 % of a core\n",
        "11 % of a core, stopped every 8", "measure again when", "LATENCY US",
        "125.0"}) {
    EXPECT_THAT(bed.out.str(), HasSubstr(said));
  }
  EXPECT_THAT(bed.err.str(), HasSubstr("plan --model lenet --batch 16"));
}

TEST(Profile, IsOneDocumentWithTheDocumentedKeys) {
  ProfileBed bed(OutputFormat::kJson);

  EXPECT_EQ(bed.Run(), kExitOk);

  const json document = bed.Output();
  const json& profile = document["profiles"][1];
  EXPECT_THAT(profile, Includes(R"({
    "device": "w2", "micro_batch": 16, "dtype": "f32", "threads": 1,
    "cpu_capability": "avx2", "runs": 5, "frame_seconds": 1e-5,
    "cpu_share": 1.0})"));
  EXPECT_THAT(profile["layers"][0], Includes(R"({
    "forward_seconds": 2e-3, "forward_spread_seconds": 4e-5,
    "backward_seconds": 4e-3})"));
  for (const char* key : {"name", "kind", "output_bytes", "parameter_bytes",
                          "kept_bytes", "flops"}) {
    EXPECT_TRUE(profile["layers"][0].contains(key)) << key;
  }
  EXPECT_EQ(document["links"][0]["from"], "w1");
  EXPECT_EQ(document["links"][0]["bytes_per_second"], 1.25e8);
  EXPECT_EQ(document["failed"], json::array());
}

TEST(Profile, MeasuresLinksByDefaultOnlyBetweenSeveralWorkers) {
  const auto links_of = [](std::vector<std::string> attached,
                           const ProfileOptions& options) {
    ProfileBed bed;
    bed.client.workers = IdleWorkers(attached);
    bed.Run(options);
    return bed.client.ordered.at(0).links();
  };

  EXPECT_TRUE(links_of({"w1", "w2"}, {}));
  EXPECT_FALSE(links_of({"w1"}, {}));
  EXPECT_FALSE(links_of({"w1", "w2"}, {.workers = {"w1"}}));
  EXPECT_TRUE(links_of({"w1", "w2"}, {.workers = {"w1", "w2"}}));
  EXPECT_FALSE(links_of({"w1", "w2"}, {.links = false}));
  EXPECT_TRUE(links_of({"w1", "w2"}, {.workers = {"w1"}, .links = true}));
}

TEST(Profile, OrdersTheNamedWorkersElseAll) {
  ProfileBed bed;

  bed.Run({.workers = {"w2"}});
  bed.Run();

  EXPECT_THAT(bed.client.ordered[0].workers(), ElementsAre("w2"));
  EXPECT_THAT(bed.client.ordered[1].workers(), IsEmpty());
  EXPECT_EQ(bed.client.ordered[0].spec().train().micro_batch(), 16);
}

// A link counts once each way, while it is waited for and when it is done.
TEST(Profile, DoneAndToGoAreAlwaysAllThatIsMeasured) {
  ProfileBed bed(OutputFormat::kTable, {.live = true, .columns = 80});
  ProfileProgress half = Waiting({"w1 to w3: being measured"});
  half.profiles = TwoProfiles().profiles;
  half.links = TwoProfiles().links;  // w1 and w2, both ways
  bed.client.progress = {Waiting({"a", "b", "c", "d", "e"}), half,
                         TwoProfiles()};

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_THAT(bed.err.str(),
              Says("0 done, 5 to go: a; b; c; d; e\x1b[K", "4 done, 1 to go"));
  EXPECT_EQ(bed.pauser.sleeps(), 2);
}

TEST(Profile, SaysOnceWhatIsWaitedForWithoutATerminal) {
  ProfileBed bed(OutputFormat::kJson);
  bed.client.progress = {Waiting({"layers on w1"}), Waiting({"layers on w1"}),
                         TwoProfiles()};

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_THAT(bed.err.str(), AllOf(HasSubstr("1 to go: layers on w1\nnext: "),
                                   Not(HasSubstr("\x1b"))));
}

TEST(Profile, FailsAloudWithWhatItHas) {
  ProfileBed bed(OutputFormat::kJson);
  ProfileProgress progress = TwoProfiles();
  progress.failed = {"w1 -> w3: connection refused"};
  bed.client.progress = {progress};

  EXPECT_EQ(bed.Run(), kExitFailed);

  const json document = bed.Output();
  EXPECT_EQ(document["profiles"].size(), 2u);
  EXPECT_EQ(document["failed"][0], "w1 -> w3: connection refused");
  EXPECT_THAT(bed.err.str(), HasSubstr("w1 -> w3: connection refused"));
}

TEST(Profile, TimesOutOrEndsAtCtrlCWithWhatItHas) {
  ProfileBed late(OutputFormat::kJson), left(OutputFormat::kJson);
  ProfileProgress progress = TwoProfiles();
  progress.waiting = {"layers on w9"};
  late.client.progress = left.client.progress = {progress};
  left.pauser.leave_at = 3;
  const Instant begin = late.clock.Now();

  EXPECT_EQ(late.Run({.timeout = absl::Seconds(1.1)}), kExitTimedOut);
  EXPECT_EQ(left.Run(), kExitInterrupted);

  EXPECT_EQ(late.clock.Now() - begin, absl::Seconds(1.1));
  for (const ProfileBed* bed : {&late, &left}) {
    EXPECT_EQ(bed->Output()["profiles"].size(), 2u);
    EXPECT_THAT(bed->err.str(), HasSubstr("the workers go on"));
  }
}

TEST(Profile, ThatIsRefusedOrForgottenEndsWithItsExitCode) {
  ProfileBed refused(OutputFormat::kJson), forgotten;
  refused.client.started = absl::FailedPreconditionError("the reason");
  forgotten.client.progress = {Waiting({"layers on w1"}),
                               absl::NotFoundError("no")};

  EXPECT_EQ(refused.Run(), kExitUnplaceable);
  EXPECT_EQ(forgotten.Run(), kExitFailed);

  EXPECT_EQ(refused.out.str(), "");
  EXPECT_THAT(refused.err.str(), HasSubstr("paceline: the reason"));
  EXPECT_THAT(forgotten.err.str(), HasSubstr("start it again"));
}

TEST(MicroBatch, MakesABatchOfFourUnlessItIsSet) {
  JobSpec spec;
  spec.model.name = "lenet";

  EXPECT_EQ(WithMicroBatch(spec, 8, {})->train.batch, 32);
  spec.train.batch = 100;
  const auto set = WithMicroBatch(spec, 8, {"train.batch=100"});

  EXPECT_EQ(set->train.batch, 100);
  EXPECT_EQ(set->train.micro_batch, 8);
  spec.model.name = "lenett";
  EXPECT_THAT(WithMicroBatch(spec, 8, {}).status().message(),
              HasSubstr("model.name: "));
}

JobSpec Script() {
  JobSpec spec;
  spec.model.name = kScriptModel;
  spec.model.file = "/net.pt";
  return spec;
}

ProfileProgress Waiting() {
  return Waiting({"layers on w1: waits for worker w1: its job"});
}

ProfileProgress Found() {
  ProfileProgress progress;
  progress.script.emplace();
  progress.script->sha256 = "abc";
  progress.script->layers.resize(2);
  return progress;
}

struct ScriptBed : CommandBed {
  absl::Status FillIn(JobSpec* spec) {
    return FillInScript(context, timeout, spec);
  }
  std::optional<absl::Duration> timeout;
};

ProfileProgress Lacking(const std::vector<std::string>& workers) {
  ProfileProgress progress;
  for (const std::string& worker : workers) {
    v1::MissingFile& missing = progress.missing.emplace_back();
    missing.set_path("/data");
    missing.set_why("No such file or directory");
    missing.set_worker(worker);
  }
  return progress;
}

JobSpec WithData() {
  JobSpec spec = LenetSpec(4);
  spec.data.name = "idx";
  spec.data.path = "/data";
  return spec;
}

TEST(LookForFiles, RefusesWhatNobodyHasAndNamesFileKeyAndWorkers) {
  CommandBed bed;
  bed.client.progress = {Waiting(), Lacking({"w2", "w1"})};

  const absl::Status status = LookForFiles(bed.context, WithData());

  EXPECT_EQ(ExitCodeFor(status), kExitUsage) << status;
  EXPECT_THAT(status.message(),
              Says("data.path /data: No such file or directory on w1, w2",
                   "nothing was submitted"));
  EXPECT_THAT(bed.client.ordered.at(0).files(), ElementsAre("/data"));
}

TEST(LookForFiles, LooksForDataWeightsAndScript) {
  const auto asked = [](const JobSpec& spec) {
    CommandBed bed;
    bed.client.progress = {ProfileProgress()};
    EXPECT_TRUE(LookForFiles(bed.context, spec).ok());
    return std::vector<std::string>(bed.client.ordered.at(0).files().begin(),
                                    bed.client.ordered.at(0).files().end());
  };
  JobSpec all = WithData(), debians = LenetSpec(4);
  all.model.weights = "/w";
  all.model.file = "/net.pt";
  debians.data.name = "fashion-mnist";

  EXPECT_THAT(asked(all), ElementsAre("/data", "/w", "/net.pt"));
  EXPECT_THAT(asked(debians), ElementsAre("/usr/share/datasets/fashion-mnist"));
}

TEST(LookForFiles, OnlyNotesWhatSomebodyHasOrMayHave) {
  CommandBed one, busy, silent;
  one.client.progress = {Lacking({"w2"})};
  busy.client.progress = {Lacking({"w1", "w2"})};
  busy.client.started->add_busy("w3");
  silent.client.progress = {Waiting()};
  silent.client.progress.front()->missing = Lacking({"w1"}).missing;
  for (CommandBed* bed : {&one, &busy, &silent}) {
    EXPECT_TRUE(LookForFiles(bed->context, WithData()).ok());
    EXPECT_THAT(bed->err.str(), Says("note: data.path /data: No such file",
                                     "put it there too"));
  }
  EXPECT_LE(silent.clock.Now() - CommandBed().clock.Now(), absl::Seconds(6));
}

TEST(LookForFiles, IsSilentWhereThereIsNothingToLookFor) {
  CommandBed none, down;
  down.client.started = absl::UnavailableError("down");

  EXPECT_TRUE(LookForFiles(none.context, LenetSpec(4)).ok());
  EXPECT_TRUE(LookForFiles(down.context, WithData()).ok());

  EXPECT_THAT(none.client.ordered, IsEmpty());
  EXPECT_EQ(none.err.str() + down.err.str(), "");
}

TEST(LookForFiles, SaysWhatNobodyHasLookedAtAndWhy) {
  CommandBed alone, busy, slow;
  alone.client.started->clear_workers();
  busy.client.started->clear_workers();
  busy.client.started->add_busy("w1");
  slow.client.progress = {Waiting()};
  for (CommandBed* bed : {&alone, &busy, &slow}) {
    EXPECT_TRUE(LookForFiles(bed->context, WithData()).ok());
    EXPECT_THAT(bed->err.str(), Says("note: data.path /data: not looked at"));
  }
  EXPECT_THAT(alone.err.str(), Says("no worker is there"));
  EXPECT_THAT(busy.err.str(), Says("all workers have something to do"));
  EXPECT_THAT(slow.err.str(), Says("no worker was done with them in 5s"));
}

TEST(LookForFiles, SendsTheJobAndSaysWhatWorkersSay) {
  CommandBed bed;
  bed.client.progress = {ProfileProgress()};
  bed.client.progress.front()->notes = {"3 files are not used"};
  v1::Inputs inputs;
  inputs.set_contents(9);

  EXPECT_TRUE(LookForFiles(bed.context, WithData(), nullptr, inputs).ok());

  EXPECT_THAT(bed.err.str(), Says("note: 3 files are not used"));
  EXPECT_EQ(bed.client.ordered.at(0).spec().data().path(), "/data");
  EXPECT_EQ(bed.client.ordered.at(0).inputs().contents(), 9u);
}

// Before the job is queued, too, where no worker is free.
TEST(LookForFiles, LooksIntoAFileOfThisMachineWhereNoWorkerCan) {
  const TemporaryFolder folder;
  std::ofstream(folder.Path("w")) << "GGUF";
  JobSpec spec = LenetSpec(4);
  spec.model.weights = folder.Path("w");
  const auto look = [&](const absl::Status& answer) {
    CommandBed bed;
    bed.client.started->clear_workers();
    bed.client.started->add_busy("w1");
    const absl::Status status = LookForFiles(
        bed.context, spec,
        [&](const ModelSpec&, const ModelDescription&, const LayerRange& layers,
            WeightsOrigin* origin) -> absl::StatusOr<std::vector<NamedTensor>> {
          EXPECT_EQ(layers.last, 0) << "the header is enough";
          origin->notes = {"made with model.dropout 0"};
          if (!answer.ok()) return answer;
          return std::vector<NamedTensor>();
        });
    return std::make_pair(status, bed.err.str());
  };

  const auto [refused, unused] = look(InvalidArgument("/w: it is a GGUF file"));
  EXPECT_EQ(ExitCodeFor(refused), kExitUsage);
  EXPECT_THAT(refused.message(), Says("model.weights /w: it is a GGUF file",
                                      "nothing was submitted"));
  const auto [good, notes] = look(absl::OkStatus());
  EXPECT_TRUE(good.ok()) << good;
  EXPECT_EQ(notes, "note: made with model.dropout 0\n");
}

// A file that is no weights once became the job of a study.
TEST(LookForFiles, LooksIntoTheFilesOfAStudyTheSameWay) {
  const TemporaryFolder folder;
  for (const bool dry_run : {true, false}) {
    CommandBed bed;
    bed.client.workers = IdleWorkers({"w1"});
    bed.client.started->clear_workers();
    bed.client.started->add_busy("w1");
    StudyOptions options;
    options.dry_run = dry_run;
    options.sets = {absl::StrCat("model.weights=", folder.Write("w", "GGUF"))};
    options.file = folder.Write(
        "s.yaml",
        "base:\n  model: {name: lenet}\n  data: {name: synthetic}\n"
        "  train: {steps: 20, batch: 32, micro_batch: 8}\n"
        "vary: {train.batch: [16, 32]}\n");

    const ExitCode code =
        StudyCommand(bed.context, options, {}, [](const auto&...) {
          return absl::InvalidArgumentError("it is a GGUF file");
        });

    EXPECT_EQ(code, kExitFailed) << bed.err.str();
    EXPECT_TRUE(bed.client.submitted.empty());
    EXPECT_THAT(absl::StrCat(bed.out.str(), bed.err.str()),
                HasSubstr("it is a GGUF file, on this machine"));
  }
}

TEST(LookForFiles, EndsWhenSomebodyInterrupts) {
  CommandBed bed;
  bed.client.progress = {Waiting()};
  bed.pauser.leave_at = 1;

  EXPECT_TRUE(absl::IsCancelled(LookForFiles(bed.context, WithData())));
}

TEST(FillInScript, AsksAWorkerAndWaitsForIt) {
  ScriptBed bed;
  bed.client.progress = {Waiting(), Waiting(), Found()};
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(spec.model.script.layers, SizeIs(2));
  ASSERT_THAT(bed.client.ordered, SizeIs(1));
  EXPECT_EQ(bed.client.ordered[0].spec().model().file(), "/net.pt");
  EXPECT_FALSE(bed.client.ordered[0].links());
  EXPECT_THAT(bed.err.str(),
              HasSubstr("looking into /net.pt: layers on w1: waits for worker "
                        "w1: its job"));
}

TEST(FillInScript, AsksNobodyForModelsThatAreKnown) {
  ScriptBed bed;
  JobSpec lenet = LenetSpec(4);
  JobSpec known = Script();
  known.model.script = *Found().script;

  EXPECT_TRUE(bed.FillIn(&lenet).ok());
  EXPECT_TRUE(bed.FillIn(&known).ok());
  EXPECT_THAT(bed.client.ordered, IsEmpty());
}

TEST(FillInScript, SaysWhyTheFileWillNotDo) {
  ScriptBed bed;
  ProfileProgress failed;
  failed.failed = {"layers on w1: /net.pt: it was traced"};
  bed.client.progress = {Waiting(), failed};
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("it was traced"));
}

TEST(FillInScript, WaitsNoLongerThanTheTimeoutOrUntilSomebodyInterrupts) {
  ScriptBed late, interrupted;
  late.client.progress = interrupted.client.progress = {Waiting()};
  late.timeout = absl::Seconds(2);
  interrupted.pauser.leave_at = 2;
  const Instant begin = late.clock.Now();
  JobSpec spec = Script();

  const absl::Status status = late.FillIn(&spec);

  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(),
              HasSubstr("gave up after 2s (--timeout), looking into /net.pt: "
                        "layers on w1: waits for worker w1"));
  EXPECT_EQ(late.clock.Now() - begin, absl::Seconds(2));
  EXPECT_TRUE(absl::IsCancelled(interrupted.FillIn(&spec)));
}

}  // namespace
}  // namespace paceline
