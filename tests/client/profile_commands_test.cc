#include "client/commands/profile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/measure_fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

ProfileProgress Finished() {
  ProfileProgress progress;
  progress.profiles = {ProfileOf(LenetSpec(16), "w1", 1e-3),
                       ProfileOf(LenetSpec(16), "w2", 2e-3)};
  progress.links = {{"w1", "w2", 1.25e8, 2e-4, 0}, {"w2", "w1", 1e8, 3e-4, 0}};
  return progress;
}

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
    measure.workers = IdleWorkers({"w1", "w2"});
    measure.progress = {Finished()};
  }
  ExitCode Run(const ProfileOptions& options = {}) {
    return ProfileCommand(context, measure, LenetSpec(16), options);
  }

  FakeMeasureClient measure;
};

TEST(Profile, NeedsAModelOrAJob) {
  EXPECT_THAT(CheckProfileOptions({}).message(), HasSubstr("-f FILE"));
  EXPECT_TRUE(CheckProfileOptions({.model = "lenet"}).ok());
  EXPECT_TRUE(CheckProfileOptions({.job_file = "job.yaml"}).ok());
}

TEST(Profile, PrintsLayersFactsAndLinks) {
  ProfileBed bed;

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_THAT(bed.out.str(), HasSubstr("w1: lenet("));
  EXPECT_THAT(bed.out.str(), HasSubstr("1.000 +- 0.020"));
  EXPECT_THAT(bed.out.str(), HasSubstr("a frame costs:"));
  EXPECT_THAT(bed.out.str(), HasSubstr("LATENCY US"));
  EXPECT_THAT(bed.out.str(), HasSubstr("125.0"));
  EXPECT_THAT(bed.err.str(), HasSubstr("plan --model lenet --batch 16"));
}

TEST(Profile, SaysWhatAMachineThatDoesOtherThingsToo) {
  ProfileBed bed;
  ProfileProgress finished = Finished();
  finished.profiles[0].cpu_share = 0.11;
  finished.profiles[0].quota_period_seconds = 0.008;
  bed.measure.progress = {finished};

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_THAT(bed.out.str(), HasSubstr("11 % of a core, stopped every 8"));
  EXPECT_THAT(bed.out.str(), HasSubstr("100 % of a core\n"));
  EXPECT_THAT(bed.out.str(), HasSubstr("measure again when"));
}

TEST(Profile, IsOneDocumentWithTheDocumentedKeys) {
  ProfileBed bed(OutputFormat::kJson);

  EXPECT_EQ(bed.Run(), kExitOk);

  const json document = bed.Output();
  const json& profile = document["profiles"][1];
  EXPECT_EQ(profile["device"], "w2");
  EXPECT_EQ(profile["micro_batch"], 16);
  EXPECT_EQ(profile["dtype"], "f32");
  EXPECT_EQ(profile["threads"], 1);
  EXPECT_EQ(profile["cpu_capability"], "avx2");
  EXPECT_EQ(profile["runs"], 5);
  EXPECT_EQ(profile["frame_seconds"], 1e-5);
  const json& layer = profile["layers"][0];
  EXPECT_EQ(layer["forward_seconds"], 2e-3);
  EXPECT_EQ(layer["forward_spread_seconds"], 4e-5);
  EXPECT_EQ(layer["backward_seconds"], 4e-3);
  for (const char* key : {"name", "kind", "output_bytes", "parameter_bytes",
                          "kept_bytes", "flops"}) {
    EXPECT_TRUE(layer.contains(key)) << key;
  }
  EXPECT_EQ(document["links"][0]["from"], "w1");
  EXPECT_EQ(document["links"][0]["bytes_per_second"], 1.25e8);
  EXPECT_EQ(document["failed"], json::array());
}

TEST(Profile, MeasuresLinksByDefaultOnlyBetweenSeveralWorkers) {
  const auto links_of = [](std::vector<std::string> attached,
                           const ProfileOptions& options) {
    ProfileBed bed;
    bed.measure.workers = IdleWorkers(attached);
    bed.Run(options);
    return bed.measure.ordered.at(0).links();
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

  EXPECT_THAT(bed.measure.ordered[0].workers(), ElementsAre("w2"));
  EXPECT_THAT(bed.measure.ordered[1].workers(), IsEmpty());
  EXPECT_EQ(bed.measure.ordered[0].spec().train().micro_batch(), 16);
}

// A link once counted once while it was waited for, and twice when it was done.
TEST(Profile, DoneAndToGoAreAlwaysAllThatIsMeasured) {
  ProfileBed bed(OutputFormat::kTable, {.live = true, .columns = 80});
  ProfileProgress half = Waiting({"w1 - w3: being measured"});
  half.profiles = Finished().profiles;
  half.links = Finished().links;  // w1 - w2
  bed.measure.progress = {Waiting({"a", "b", "c", "d"}), half, Finished()};

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_THAT(bed.err.str(), HasSubstr("0 done, 4 to go"));
  EXPECT_THAT(bed.err.str(), HasSubstr("3 done, 1 to go"));
}

TEST(Profile, ShowsWhatIsWaitedForAsALiveLine) {
  ProfileBed bed(OutputFormat::kTable, {.live = true, .columns = 80});
  bed.measure.progress = {Waiting({"layers on w1", "w1 -> w2"}),
                          Waiting({"w1 -> w2"}), Finished()};

  EXPECT_EQ(bed.Run(), kExitOk);

  EXPECT_THAT(bed.err.str(), HasSubstr("2 to go: layers on w1; w1 -> w2"));
  EXPECT_THAT(bed.err.str(), HasSubstr("\x1b[K"));
  EXPECT_EQ(bed.pauser.sleeps(), 2);
}

TEST(Profile, SaysOnceWhatIsWaitedForWithoutATerminal) {
  ProfileBed bed(OutputFormat::kJson);
  bed.measure.progress = {Waiting({"layers on w1"}), Waiting({"layers on w1"}),
                          Finished()};

  EXPECT_EQ(bed.Run(), kExitOk);

  const std::string text = bed.err.str();
  const size_t first = text.find("to go: layers on w1");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("to go: layers on w1", first + 1), std::string::npos);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Profile, FailsAloudWithWhatItHas) {
  ProfileBed bed(OutputFormat::kJson);
  ProfileProgress progress = Finished();
  progress.failed = {"w1 -> w3: connection refused"};
  bed.measure.progress = {progress};

  EXPECT_EQ(bed.Run(), kExitFailed);

  const json document = bed.Output();
  EXPECT_EQ(document["profiles"].size(), 2u);
  EXPECT_EQ(document["failed"][0], "w1 -> w3: connection refused");
  EXPECT_THAT(bed.err.str(), HasSubstr("w1 -> w3: connection refused"));
}

TEST(Profile, TimesOutWithWhatItHas) {
  ProfileBed bed(OutputFormat::kJson);
  ProfileProgress progress = Finished();
  progress.waiting = {"layers on w9"};
  bed.measure.progress = {progress};
  const Instant begin = bed.clock.Now();

  EXPECT_EQ(bed.Run({.timeout = absl::Seconds(1.1)}), kExitTimedOut);

  EXPECT_EQ(bed.clock.Now() - begin, absl::Seconds(1.1));
  EXPECT_EQ(bed.Output()["profiles"].size(), 2u);
}

TEST(Profile, CtrlCLeavesTheWorkersAtIt) {
  ProfileBed bed(OutputFormat::kJson);
  bed.measure.progress = {Waiting({"layers on w1"})};
  bed.pauser.leave_at = 3;

  EXPECT_EQ(bed.Run(), kExitInterrupted);

  EXPECT_THAT(bed.err.str(), HasSubstr("the workers go on"));
}

TEST(Profile, RefusalsGiveTheExitCodeAndNoOutput) {
  const std::vector<std::pair<absl::Status, ExitCode>> refusals = {
      {absl::InvalidArgumentError("the reason"), kExitUsage},
      {absl::NotFoundError("the reason"), kExitNotFound},
      {absl::FailedPreconditionError("the reason"), kExitUnplaceable},
      {absl::UnavailableError("the reason"), kExitUnreachable}};
  for (const auto& [status, code] : refusals) {
    ProfileBed bed(OutputFormat::kJson);
    bed.measure.started = status;

    EXPECT_EQ(bed.Run(), code);

    EXPECT_EQ(bed.out.str(), "");
    EXPECT_THAT(bed.err.str(), HasSubstr("paceline: the reason"));
  }
}

TEST(Profile, ACoordinatorThatForgotItFails) {
  ProfileBed bed(OutputFormat::kJson);
  bed.measure.progress = {Waiting({"layers on w1"}), absl::NotFoundError("no")};

  EXPECT_EQ(bed.Run(), kExitFailed);

  EXPECT_THAT(bed.err.str(), HasSubstr("start it again"));
}

TEST(Profile, OutlastsACoordinatorThatIsAwayForAMoment) {
  ProfileBed bed(OutputFormat::kJson);
  bed.measure.progress = {Waiting({"layers on w1"}),
                          absl::UnavailableError("gone"), Finished()};

  EXPECT_EQ(bed.Run(), kExitOk);
}

TEST(MicroBatch, MakesABatchOfFourUnlessItIsSet) {
  JobSpec spec;
  spec.model.name = "lenet";

  EXPECT_EQ(WithMicroBatch(spec, 8, {})->train.batch, 32);
  spec.train.batch = 100;
  const auto set = WithMicroBatch(spec, 8, {"train.batch=100"});

  EXPECT_EQ(set->train.batch, 100);
  EXPECT_EQ(set->train.micro_batch, 8);
}

TEST(MicroBatch, RefusesAnUnknownModel) {
  JobSpec spec;
  spec.model.name = "lenett";

  const auto refused = WithMicroBatch(spec, 8, {});

  EXPECT_EQ(ExitCodeFor(refused.status()), kExitUsage);
  EXPECT_THAT(refused.status().message(), HasSubstr("lenet"));
}

JobSpec Script() {
  JobSpec spec;
  spec.model.name = kScriptModel;
  spec.model.file = "/net.pt";
  return spec;
}

ProfileProgress Waiting() {
  ProfileProgress progress;
  progress.waiting = {"layers on w1: waits for worker w1: its job"};
  return progress;
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
    return FillInScript(console, pauser, clock, timeout, measure, spec);
  }
  FakeMeasureClient measure;
  std::optional<absl::Duration> timeout;
};

TEST(FillInScript, AsksAWorkerAndWaitsForIt) {
  ScriptBed bed;
  bed.measure.progress = {Waiting(), Waiting(), Found()};
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(spec.model.script.layers, SizeIs(2));
  ASSERT_THAT(bed.measure.ordered, SizeIs(1));
  EXPECT_EQ(bed.measure.ordered[0].spec().model().file(), "/net.pt");
  EXPECT_FALSE(bed.measure.ordered[0].links());
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
  EXPECT_THAT(bed.measure.ordered, IsEmpty());
}

TEST(FillInScript, SaysWhyTheFileWillNotDo) {
  ScriptBed bed;
  ProfileProgress failed;
  failed.failed = {"layers on w1: /net.pt: it was traced"};
  bed.measure.progress = {Waiting(), failed};
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("it was traced"));
}

TEST(FillInScript, WaitsNoLongerThanTheTimeout) {
  ScriptBed bed;
  bed.measure.progress = {Waiting()};
  bed.timeout = absl::Seconds(2);
  const Instant begin = bed.clock.Now();
  JobSpec spec = Script();

  const absl::Status status = bed.FillIn(&spec);

  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("gave up after 2s (--timeout), looking into /net.pt: "
                        "layers on w1: waits for worker w1"));
  EXPECT_EQ(bed.clock.Now() - begin, absl::Seconds(2));
}

TEST(FillInScript, EndsWhenSomebodyInterrupts) {
  ScriptBed bed;
  bed.measure.progress = {Waiting()};
  bed.pauser.leave_at = 2;
  JobSpec spec = Script();

  EXPECT_TRUE(absl::IsCancelled(bed.FillIn(&spec)));
}

}  // namespace
}  // namespace paceline
