#include "client/estimate.h"
#include "client/job_commands.h"
#include "client/model_commands.h"
#include "client/node_commands.h"
#include "client/patience.h"
#include "client/submit.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

SubmitOptions Job() {
  SubmitOptions options;
  options.spec.model.name = "lenet";
  options.spec.data.name = "synthetic";
  options.spec.pipeline.stages = 2;
  options.request_id = "r1";
  return options;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Submit, WaitsAndEndsWithAccuracyWeightsAndWhatNext) {
  CommandBed bed;
  bed.client.submissions = {
      Submission{.id = 7, .stages = {}, .notes = {"1 thread"}}};
  bed.client.job_answers = {RunningJob(1, 20), RunningJob(10, 20),
                            SucceededJob()};

  EXPECT_EQ(SubmitCommand(bed.context, Job()), kExitOk);

  EXPECT_THAT(bed.out.str(), HasSubstr("test accuracy: 0.9012\n"));
  EXPECT_THAT(bed.out.str(), HasSubstr("sha256: 00ff\n"));
  EXPECT_THAT(bed.err.str(), HasSubstr("note: 1 thread\n"));
  EXPECT_THAT(bed.err.str(), HasSubstr("step 10/20"));
  EXPECT_THAT(bed.err.str(), HasSubstr("paceline job export 7"));
  EXPECT_THAT(bed.err.str(), Not(HasSubstr("\x1b")));
}

TEST(Submit, PrintsNothingButOneDocumentWithJson) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {"n"}}};
  bed.client.job_answers = {RunningJob(1, 20), SucceededJob()};

  EXPECT_EQ(SubmitCommand(bed.context, Job()), kExitOk);

  const json job = json::parse(bed.out.str());
  EXPECT_EQ(job["id"], 7);
  EXPECT_EQ(job["loss"].size(), 3u);
}

TEST(Submit, PrintsOneLineWithJsonLines) {
  CommandBed bed(OutputFormat::kJsonLines);
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  bed.client.job_answers = {SucceededJob()};

  EXPECT_EQ(SubmitCommand(bed.context, Job()), kExitOk);

  EXPECT_EQ(Count(bed.out.str(), "\n"), 1);
  EXPECT_EQ(json::parse(bed.out.str())["state"], "succeeded");
}

TEST(Submit, RedrawsOneLineOnATerminal) {
  CommandBed bed(OutputFormat::kTable, {.live = true, .columns = 100});
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  bed.client.job_answers = {RunningJob(1, 20), RunningJob(2, 20),
                            SucceededJob()};

  SubmitCommand(bed.context, Job());

  EXPECT_EQ(Count(bed.err.str(), "\x1b[K"), 3);
  EXPECT_THAT(bed.err.str(), HasSubstr("[##......................]"));
}

struct Ending {
  JobState state;
  ExitCode code;
};

void PrintTo(const Ending& ending, std::ostream* out) {
  *out << JobStateName(ending.state);
}
class Endings : public testing::TestWithParam<Ending> {};

TEST_P(Endings, GiveTheExitCode) {
  for (const auto format : {OutputFormat::kTable, OutputFormat::kJson}) {
    CommandBed bed(format);
    JobView job = SucceededJob();
    job.state = GetParam().state;
    job.why = "because";
    bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
    bed.client.job_answers = {job};

    EXPECT_EQ(SubmitCommand(bed.context, Job()), GetParam().code);

    EXPECT_THAT(bed.out.str() + bed.err.str(), HasSubstr("because"));
    if (job.state == JobState::kFailed) {
      EXPECT_THAT(bed.err.str(), HasSubstr("failed: because"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Submit, Endings,
                         testing::Values(Ending{JobState::kSucceeded, kExitOk},
                                         Ending{JobState::kFailed, kExitFailed},
                                         Ending{JobState::kStopped,
                                                kExitStopped}));

struct Refusal {
  absl::StatusCode status;
  ExitCode code;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
  *out << refusal.status;
}
class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, GiveTheExitCodeAndNoOutput) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.submissions = {absl::Status(GetParam().status, "the reason")};

  EXPECT_EQ(SubmitCommand(bed.context, Job()), GetParam().code);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("paceline: the reason\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Submit, Refusals,
    testing::Values(
        Refusal{absl::StatusCode::kInvalidArgument, kExitUsage},
        Refusal{absl::StatusCode::kNotFound, kExitNotFound},
        Refusal{absl::StatusCode::kUnavailable, kExitUnreachable},
        Refusal{absl::StatusCode::kResourceExhausted, kExitUnplaceable},
        Refusal{absl::StatusCode::kFailedPrecondition, kExitUnplaceable},
        Refusal{absl::StatusCode::kPermissionDenied, kExitNotPermitted},
        Refusal{absl::StatusCode::kUnauthenticated, kExitNotPermitted},
        Refusal{absl::StatusCode::kInternal, kExitFailed}));

TEST(Submit, RepeatsUnderOneRequestIdAndGivesUpInTime) {
  CommandBed bed;
  bed.client.submissions = {absl::UnavailableError("down")};
  const Instant begin = bed.clock.Now();

  EXPECT_EQ(SubmitCommand(bed.context, Job()), kExitUnreachable);

  EXPECT_GT(bed.client.submitted.size(), 2u);
  for (const SubmitRequest& request : bed.client.submitted) {
    EXPECT_EQ(request.request_id, "r1");
  }
  EXPECT_LE(bed.clock.Now() - begin, absl::Seconds(2));
}

TEST(Submit, DoesNotRepeatARefusal) {
  CommandBed bed;
  bed.client.submissions = {absl::InvalidArgumentError("no")};

  SubmitCommand(bed.context, Job());

  EXPECT_EQ(bed.client.submitted.size(), 1u);
}

TEST(Submit, DetachedDoesNotWait) {
  CommandBed bed;
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  SubmitOptions options = Job();
  options.detach = true;

  EXPECT_EQ(SubmitCommand(bed.context, options), kExitOk);

  EXPECT_EQ(bed.pauser.sleeps(), 0);
  EXPECT_THAT(bed.err.str(), HasSubstr("paceline job wait 7"));
}

TEST(Submit, CtrlCDetachesAndSaysHowToComeBack) {
  CommandBed bed;
  bed.context.program = "paceline --coordinator h:1";
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  bed.client.job_answers = {RunningJob(1, 20)};
  bed.pauser.leave_at = 3;

  EXPECT_EQ(SubmitCommand(bed.context, Job()), kExitInterrupted);

  EXPECT_THAT(bed.err.str(),
              HasSubstr("Come back: paceline --coordinator h:1 job wait 7"));
}

TEST(Wait, TimesOutOnTheDot) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.job_answers = {RunningJob(1, 20)};
  const Instant begin = bed.clock.Now();

  EXPECT_EQ(WaitJobCommand(bed.context, 7, absl::Seconds(3.2)), kExitTimedOut);

  EXPECT_EQ(bed.clock.Now() - begin, absl::Seconds(3.2));
  EXPECT_EQ(json::parse(bed.out.str())["state"], "running");
}

TEST(Wait, OutlastsACoordinatorThatRestarts) {
  CommandBed bed;
  const absl::Status gone = absl::UnavailableError("gone");
  bed.client.job_answers = {RunningJob(1, 20), gone, gone, gone,
                            SucceededJob()};

  EXPECT_EQ(WaitJobCommand(bed.context, 7, std::nullopt), kExitOk);

  EXPECT_EQ(Count(bed.err.str(), "does not answer"), 1);
  EXPECT_EQ(Count(bed.err.str(), "answers again"), 1);
}

TEST(Wait, GivesUpACoordinatorThatStaysAway) {
  CommandBed bed;
  bed.client.job_answers = {RunningJob(1, 20), absl::UnavailableError("gone")};
  const Instant begin = bed.clock.Now();

  EXPECT_EQ(WaitJobCommand(bed.context, 7, std::nullopt), kExitUnreachable);

  EXPECT_GE(bed.clock.Now() - begin, kPatience);
  EXPECT_LE(bed.clock.Now() - begin, kPatience + absl::Seconds(1));
  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("paceline job wait 7"));
}

TEST(Wait, OfAnUnknownJobIsNotFound) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.job_answers = {absl::NotFoundError("there is no job 7")};

  EXPECT_EQ(WaitJobCommand(bed.context, 7, std::nullopt), kExitNotFound);

  EXPECT_EQ(bed.out.str(), "");
}

TEST(DryRun, PrintsThePlanAndNeverAsksForAJob) {
  CommandBed bed(OutputFormat::kJson);
  Submission placed;
  placed.stages = {{0, 0, 4, 5, "w1"}, {1, 4, 8, 6, "w2"}};
  bed.client.submissions = {placed};
  SubmitOptions options = Job();
  options.dry_run = true;

  EXPECT_EQ(SubmitCommand(bed.context, options), kExitOk);

  EXPECT_TRUE(bed.client.submitted[0].dry_run);
  EXPECT_TRUE(bed.client.asked.empty());
  const json plan = json::parse(bed.out.str());
  EXPECT_EQ(plan["stages"][1]["worker"], "w2");
  EXPECT_EQ(plan["stages"][1]["first_layer"], 4);
  EXPECT_EQ(plan["parameter_bytes"],
            plan["stages"][0]["parameter_bytes"].get<int64_t>() +
                plan["stages"][1]["parameter_bytes"].get<int64_t>());
  EXPECT_GT(plan["stages"][0]["memory_bytes"], 0);
}

TEST(Estimate, CutsByItselfWhileThereAreNoWorkers) {
  const auto estimate = EstimateJob(Job().spec, {});

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  ASSERT_EQ(estimate->stages.size(), 2u);
  EXPECT_EQ(estimate->stages[1].placement.worker_id, -1);
  EXPECT_EQ(estimate->stages[1].placement.last_layer, estimate->layers);
}

EstimateView Expected() {
  return {.step_seconds = 0.25,
          .samples_per_second = 256,
          .bubble_share = 0.125,
          .stage_seconds = {0.02, 0.03},
          .source = "layer times measured on w1, w2",
          .measured = true};
}

TEST(Estimate, MayLeaveTheNumberOfStagesOpen) {
  JobSpec spec = Job().spec;
  spec.pipeline.stages = 0;

  const auto estimate = EstimateJob(spec, {});

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_FALSE(estimate->chosen);
  EXPECT_THAT(RenderEstimate(*estimate), HasSubstr("decided once there are"));
}

TEST(Estimate, CutsWhereTheJobSays) {
  JobSpec spec = Job().spec;
  spec.pipeline.stages = 0;
  spec.pipeline.cuts = {1, 2};

  const auto estimate = EstimateJob(spec, {});

  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_TRUE(estimate->chosen);
  EXPECT_EQ(estimate->stages.size(), 3u);
}

TEST(DryRun, PrintsWhatTheRunIsExpectedToTake) {
  for (const auto format : {OutputFormat::kTable, OutputFormat::kJson}) {
    CommandBed bed(format);
    Submission placed;
    placed.stages = {{0, 0, 4, 5, "w1"}, {1, 4, 8, 6, "w2"}};
    placed.estimate = Expected();
    bed.client.submissions = {placed};
    SubmitOptions options = Job();
    options.spec.train.steps = 480;
    options.dry_run = true;

    EXPECT_EQ(SubmitCommand(bed.context, options), kExitOk);

    if (format == OutputFormat::kTable) {
      EXPECT_THAT(bed.out.str(), HasSubstr("250 ms"));
      EXPECT_THAT(bed.out.str(), HasSubstr("all 480 steps"));
      EXPECT_THAT(bed.out.str(), HasSubstr("2 min 0 s"));
      EXPECT_THAT(bed.out.str(), HasSubstr("12.5 %"));
      EXPECT_THAT(bed.out.str(), HasSubstr("measured on w1, w2"));
    } else {
      const json estimate = json::parse(bed.out.str())["estimate"];
      EXPECT_EQ(estimate["step_seconds"], 0.25);
      EXPECT_EQ(estimate["samples_per_second"], 256.0);
      EXPECT_EQ(estimate["bubble_share"], 0.125);
      EXPECT_EQ(estimate["stage_seconds"], json({0.02, 0.03}));
      EXPECT_EQ(estimate["measured"], true);
    }
  }
}

TEST(Submit, SaysWhereStagesGoAndWhatAStepIsExpectedToTake) {
  CommandBed bed;
  Submission placed{.id = 7, .stages = {}, .notes = {}};
  placed.stages = {{0, 0, 4, 5, "w1"}, {1, 4, 8, 6, "w2"}};
  placed.estimate = Expected();
  bed.client.submissions = {placed};
  bed.client.job_answers = {SucceededJob()};
  SubmitOptions options = Job();
  options.spec.pipeline.stages = 0;

  EXPECT_EQ(SubmitCommand(bed.context, options), kExitOk);

  EXPECT_THAT(bed.err.str(), HasSubstr("2 stages, 1f1b"));
  EXPECT_THAT(bed.err.str(), HasSubstr("stage 1: w2, layers 4-7"));
  EXPECT_THAT(bed.err.str(), HasSubstr("expected step: 250 ms"));
}

TEST(Submit, SaysThatStagesAreNotChosenWhileNobodyIsThere) {
  CommandBed bed;
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  bed.client.job_answers = {SucceededJob()};
  SubmitOptions options = Job();
  options.spec.pipeline.stages = 0;

  EXPECT_EQ(SubmitCommand(bed.context, options), kExitOk);

  EXPECT_THAT(bed.err.str(), HasSubstr("stages not chosen yet"));
}

TEST(Estimate, RefusesAPlacementOfAnotherModel) {
  EXPECT_FALSE(EstimateJob(Job().spec, {{0, 0, 99, 1, "w1"}}).ok());
  EXPECT_FALSE(EstimateJob(Job().spec, {{0, 3, 3, 1, "w1"}}).ok());
  EXPECT_FALSE(EstimateJob(Job().spec, {{0, -1, 3, 1, "w1"}}).ok());
}

TEST(Logs, ComeCompleteAcrossPages) {
  CommandBed bed(OutputFormat::kJson);
  for (int i = 0; i < 5; ++i) {
    bed.client.logs.push_back({1000 + i, "info", "w1", std::to_string(i)});
  }

  EXPECT_EQ(JobLogsCommand(bed.context, 7, /*follow=*/false), kExitOk);

  EXPECT_EQ(json::parse(bed.out.str())["lines"].size(), 5u);
}

TEST(Logs, FollowUntilTheJobEndsWithoutRepeats) {
  CommandBed bed(OutputFormat::kJsonLines);
  bed.client.logs = {{1, "info", "w1", "a"}, {2, "info", "w1", "b"}};
  bed.client.job_answers = {RunningJob(1, 2), RunningJob(2, 2), SucceededJob()};

  EXPECT_EQ(JobLogsCommand(bed.context, 7, /*follow=*/true), kExitOk);

  EXPECT_EQ(Count(bed.out.str(), "\n"), 2);
  EXPECT_EQ(bed.pauser.sleeps(), 2);
}

TEST(Logs, CtrlCEndsFollowingWithAWholeDocument) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.logs = {{1, "info", "w1", "a"}};
  bed.client.job_answers = {RunningJob(1, 2)};
  bed.pauser.leave_at = 2;

  EXPECT_EQ(JobLogsCommand(bed.context, 7, /*follow=*/true), kExitInterrupted);

  EXPECT_EQ(json::parse(bed.out.str())["lines"].size(), 1u);
}

TEST(Events, AreOneDocument) {
  CommandBed bed(OutputFormat::kYaml);
  bed.client.events = {{1, 5, "submitted", "by a person"}};

  EXPECT_EQ(JobEventsCommand(bed.context, 7, /*follow=*/false), kExitOk);

  EXPECT_EQ(bed.out.str(),
            "events:\n"
            "  - sequence: 1\n"
            "    unix_ms: 5\n"
            "    kind: submitted\n"
            "    text: \"by a person\"\n");
}

TEST(Events, AreReadToTheLastPage) {
  CommandBed bed(OutputFormat::kJson);
  for (int64_t i = 1; i <= 5; ++i) {
    bed.client.events.push_back({i, 5, "evaluated", "x"});
  }

  EXPECT_EQ(JobEventsCommand(bed.context, 7, /*follow=*/false), kExitOk);

  EXPECT_EQ(json::parse(bed.out.str())["events"].size(), 5u);
}

TEST(Jobs, AnEmptyListIsStillADocument) {
  CommandBed bed(OutputFormat::kJson);

  EXPECT_EQ(ListJobsCommand(bed.context, 0), kExitOk);

  EXPECT_EQ(json::parse(bed.out.str()), json({{"jobs", json::array()}}));
}

TEST(Jobs, LastMeansTheNewest) {
  FakeControlClient client;
  EXPECT_EQ(ExitCodeFor(ResolveJob(client, "last").status()), kExitNotFound);

  client.jobs = std::vector<JobView>{SucceededJob()};
  EXPECT_EQ(*ResolveJob(client, "last"), 7);
  EXPECT_EQ(*ResolveJob(client, "12"), 12);
  for (const char* bad : {"x", "0", "-1", "1.5", ""}) {
    EXPECT_EQ(ExitCodeFor(ResolveJob(client, bad).status()), kExitUsage);
  }
}

TEST(Jobs, DeletingARunningOneFails) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.deleted = absl::FailedPreconditionError("job 7 is running");

  EXPECT_EQ(DeleteJobCommand(bed.context, 7), kExitFailed);

  EXPECT_EQ(bed.out.str(), "");
}

TEST(Nodes, AreListedUnderWorkers) {
  CommandBed bed(OutputFormat::kJson);
  WorkerView worker;
  worker.id = 1;
  worker.name = "w1";
  bed.client.workers = std::vector<WorkerView>{worker};

  EXPECT_EQ(ListNodesCommand(bed.context), kExitOk);

  EXPECT_EQ(json::parse(bed.out.str())["workers"][0]["name"], "w1");
}

TEST(Nodes, AreShownByNameOrNumber) {
  for (const auto& [word, code] :
       {std::pair{"w1", kExitOk}, {"4", kExitOk}, {"w9", kExitNotFound}}) {
    CommandBed bed(OutputFormat::kJson);
    WorkerView worker;
    worker.id = 4;
    worker.name = "w1";
    bed.client.workers = std::vector<WorkerView>{worker};

    EXPECT_EQ(ShowNodeCommand(bed.context, word), code) << word;

    EXPECT_EQ(bed.out.str().empty(), code != kExitOk);
  }
}

TEST(Models, AreInspectedWithoutACoordinator) {
  CommandBed bed(OutputFormat::kJson);
  JobSpec spec;
  spec.model.name = "lenet";

  EXPECT_EQ(InspectModelCommand(bed.console, spec), kExitOk);

  const json model = json::parse(bed.out.str());
  EXPECT_EQ(model["input"], json({1, 28, 28}));
  EXPECT_GT(model["parameters"], 1000);
  EXPECT_GT(model["layers"].size(), 3u);
}

TEST(Models, AnUnknownOneIsNotFoundAndTheLikelyOneIsNamed) {
  CommandBed bed(OutputFormat::kJson);
  JobSpec spec;
  spec.model.name = "lenett";

  EXPECT_EQ(InspectModelCommand(bed.console, spec), kExitNotFound);

  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("no model 'lenett'; did you mean "
                                       "'lenet'?; there are: "));
}

TEST(Models, AKnownOneWithWrongSettingsIsAUsageError) {
  CommandBed bed;
  JobSpec spec;
  spec.model.name = "vit";
  spec.model.heads = 5;

  EXPECT_EQ(InspectModelCommand(bed.console, spec), kExitUsage);
}

TEST(Submit, WarnsOnStandardErrorAndInEveryDocument) {
  for (const auto& [detach, dry_run] :
       {std::pair{false, false}, {true, false}, {false, true}}) {
    CommandBed bed(OutputFormat::kJson);
    bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
    bed.client.job_answers = {SucceededJob()};
    SubmitOptions options = Job();
    options.detach = detach;
    options.dry_run = dry_run;
    options.warnings = {"job.yaml:4: data.path has no effect"};

    EXPECT_EQ(SubmitCommand(bed.context, options), kExitOk);

    EXPECT_EQ(json::parse(bed.out.str())["warnings"],
              json({"job.yaml:4: data.path has no effect"}));
    EXPECT_THAT(bed.err.str(),
                HasSubstr("paceline: warning: job.yaml:4: data.path has"));
  }
}

TEST(Submit, WithoutWarningsTheListIsEmpty) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  bed.client.job_answers = {SucceededJob()};

  EXPECT_EQ(SubmitCommand(bed.context, Job()), kExitOk);

  EXPECT_EQ(json::parse(bed.out.str())["warnings"], json::array());
}

TEST(Submit, ProgressSaysThatAJobBeginsAgainAndForgetsWhatWas) {
  CommandBed bed;
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  JobView before = RunningJob(10, 20);
  before.curve = {{10, 0.7784, false}};
  JobView again = RunningJob(0, 20);
  again.curve = {{10, 0.7784, false}};
  JobView after = RunningJob(1, 20);
  bed.client.job_answers = {before, again, after, SucceededJob()};

  SubmitCommand(bed.context, Job());

  const std::string text = bed.err.str();
  const size_t begins = text.find("begins again at step 0 (was at 10)");
  ASSERT_NE(begins, std::string::npos) << text;
  EXPECT_THAT(text.substr(0, begins), HasSubstr("loss 0.7784"));
  EXPECT_THAT(text.substr(begins), Not(HasSubstr("loss 0.7784")));
}

TEST(Submit, ProgressSaysThatStepsAreSkipped) {
  CommandBed bed;
  bed.client.submissions = {Submission{.id = 7, .stages = {}, .notes = {}}};
  JobView skipping = RunningJob(10, 20);
  skipping.curve = {{10, NAN, true}};
  bed.client.job_answers = {skipping, SucceededJob()};

  SubmitCommand(bed.context, Job());

  EXPECT_THAT(bed.err.str(), HasSubstr("step 10/20  640 samples/s  skipped"));
}

}  // namespace
}  // namespace paceline
