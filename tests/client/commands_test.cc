#include <unistd.h>

#include <string>
#include <utility>

#include "client/commands/command.h"
#include "client/commands/job/jobs_and_nodes.h"
#include "client/commands/job/submit.h"
#include "client/commands/reference.h"
#include "core/model/catalog.h"
#include "core/plan/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

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

// A bed whose coordinator takes the job, which then succeeds.
struct SubmitBed : CommandBed {
  explicit SubmitBed(OutputFormat format = OutputFormat::kTable,
                     Console::Traits traits = {})
      : CommandBed(format, traits) {
    client.submissions = {Submitted()};
    client.job_answers = {SucceededJob()};
  }
  ExitCode Submit(const SubmitOptions& options = Job()) {
    return SubmitCommand(context, options);
  }
};

// A job of 100 steps with a cosine, and its checkpoints of steps 40 and 50.
v1::Job CosineJob() {
  JobSpec spec;
  spec.train.steps = 100;
  spec.train.learning_rate.schedule = "cosine";
  spec.train.learning_rate.base = 0.1;
  v1::Job job;
  job.set_id(3);
  job.set_steps(100);
  *job.mutable_spec() = ToProto(spec);
  job.add_checkpoints()->mutable_cut()->set_step(40);
  job.add_checkpoints()->mutable_cut()->set_step(50);
  return job;
}

TEST(ResumeNotes, SayThatACosineIsStretchedAndARateIsAnotherOne) {
  const v1::Job before = CosineJob();
  JobSpec now = FromProto(before.spec());
  EXPECT_THAT(ResumeNotes(before, now, 0, {}), testing::IsEmpty());

  now.train.steps = 200;
  EXPECT_THAT(
      ResumeNotes(before, now, 0, {"train.steps=200"}),
      testing::ElementsAre("the learning rate after step 50 is 0.08536, where "
                           "job 3 has 0.05: its cosine now ends at step 200 "
                           "and not at 100"));

  now.train.steps = 100;
  now.train.learning_rate.base = 0.4;
  EXPECT_THAT(ResumeNotes(before, now, 40, {}),
              testing::ElementsAre("the learning rate after step 40 is 0.2618, "
                                   "where job 3 has 0.06545"));

  now = FromProto(before.spec());
  now.train.learning_rate.schedule = "constant";
  v1::Job constant = before;
  *constant.mutable_spec() = ToProto(now);
  now.train.steps = 200;
  EXPECT_THAT(ResumeNotes(constant, now, 0, {}), testing::IsEmpty());
}

TEST(ResumeNotes, SayThatWeightsAreNotRead) {
  const v1::Job before = CosineJob();
  for (const char* set : {"model.weights=/w", "model.reset_head=true"}) {
    EXPECT_THAT(
        ResumeNotes(before, FromProto(before.spec()), 0, {set, "threads=2"}),
        testing::ElementsAre(testing::AllOf(
            HasSubstr("has no effect"), HasSubstr("checkpoint's weights"))));
  }
}

TEST(Submit, WaitsAndEndsWithTheOutcomeAndWhatNext) {
  SubmitBed bed;
  bed.client.submissions = {Submitted({"1 thread"})};
  bed.client.job_answers = {RunningJob(1, 20), RunningJob(10, 20),
                            SucceededJob()};

  EXPECT_EQ(bed.Submit(), kExitOk);

  EXPECT_EQ(bed.out.str(), RenderOutcome(SucceededJob()));
  EXPECT_THAT(bed.err.str(),
              Says("note: 1 thread\n", "step 10/20", "paceline job export 7"));
  EXPECT_THAT(bed.err.str(), Not(HasSubstr("\x1b")));
}

TEST(Submit, PrintsNothingButOneDocument) {
  for (const auto format : {OutputFormat::kJson, OutputFormat::kJsonLines}) {
    SubmitBed bed(format);

    EXPECT_EQ(bed.Submit(), kExitOk);

    EXPECT_EQ(bed.Output()["loss"].size(), 3u);
    EXPECT_EQ(bed.Output()["warnings"], json::array());
    if (format == OutputFormat::kJsonLines) {
      EXPECT_EQ(Count(bed.out.str(), "\n"), 1);
    }
  }
}

TEST(Submit, RedrawsOneLineOnATerminal) {
  SubmitBed bed(OutputFormat::kTable, {.live = true, .columns = 100});
  bed.client.job_answers = {RunningJob(1, 20), RunningJob(2, 20),
                            SucceededJob()};

  bed.Submit();

  EXPECT_EQ(Count(bed.err.str(), "\x1b[K"), 3);
  EXPECT_THAT(bed.err.str(), HasSubstr("[##......................]"));
}

TEST(Submit, EndsWithTheExitCodeOfTheJobsState) {
  for (const auto& [state, code] : {std::pair{v1::JOB_STATE_SUCCEEDED, kExitOk},
                                    {v1::JOB_STATE_FAILED, kExitFailed},
                                    {v1::JOB_STATE_STOPPED, kExitStopped}}) {
    for (const auto format : {OutputFormat::kTable, OutputFormat::kJson}) {
      SubmitBed bed(format);
      v1::Job job = SucceededJob();
      job.set_state(state);
      job.set_why("because");
      bed.client.job_answers = {job};

      EXPECT_EQ(bed.Submit(), code);

      EXPECT_THAT(bed.out.str() + bed.err.str(), HasSubstr("because"));
      EXPECT_EQ(Count(bed.err.str(), "failed: because"),
                state == v1::JOB_STATE_FAILED);
    }
  }
}

TEST(Submit, ThatIsRefusedEndsWithItsExitCodeAndNoOutput) {
  for (const auto& [error, code] :
       {std::pair{absl::InvalidArgumentError("the reason"), kExitUsage},
        {absl::NotFoundError("the reason"), kExitNotFound},
        {absl::UnavailableError("the reason"), kExitUnreachable},
        {absl::ResourceExhaustedError("the reason"), kExitUnplaceable},
        {absl::FailedPreconditionError("the reason"), kExitUnplaceable},
        {absl::PermissionDeniedError("the reason"), kExitNotPermitted},
        {absl::UnauthenticatedError("the reason"), kExitNotPermitted},
        {absl::InternalError("the reason"), kExitFailed}}) {
    SubmitBed bed(OutputFormat::kJson);
    bed.client.submissions = {error};

    EXPECT_EQ(bed.Submit(), code) << error;

    EXPECT_EQ(bed.out.str(), "");
    EXPECT_THAT(bed.err.str(), HasSubstr("paceline: the reason\n"));
    EXPECT_EQ(bed.client.submitted.size() > 1, absl::IsUnavailable(error))
        << "only this is repeated";
  }
}

TEST(Submit, RepeatsUnderOneRequestIdAndGivesUpInTime) {
  SubmitBed bed;
  bed.client.submissions = {absl::UnavailableError("down")};
  const Instant begin = bed.clock.Now();

  EXPECT_EQ(bed.Submit(), kExitUnreachable);

  EXPECT_GT(bed.client.submitted.size(), 2u);
  for (const v1::SubmitJobRequest& request : bed.client.submitted) {
    EXPECT_EQ(request.request_id(), "r1");
  }
  EXPECT_LE(bed.clock.Now() - begin, absl::Seconds(2));
}

TEST(Submit, DetachedDoesNotWait) {
  SubmitBed bed;
  SubmitOptions options = Job();
  options.detach = true;

  EXPECT_EQ(bed.Submit(options), kExitOk);

  EXPECT_EQ(bed.pauser.sleeps(), 0);
  EXPECT_THAT(bed.err.str(), HasSubstr("paceline job wait 7"));
}

TEST(Submit, CtrlCDetachesAndSaysHowToComeBack) {
  SubmitBed bed;
  bed.context.program = "paceline --coordinator h:1";
  bed.client.job_answers = {RunningJob(1, 20)};
  bed.pauser.leave_at = 3;

  EXPECT_EQ(bed.Submit(), kExitInterrupted);

  EXPECT_THAT(bed.err.str(),
              HasSubstr("Come back: paceline --coordinator h:1 job wait 7"));
}

TEST(Wait, TimesOutOnTheDot) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.job_answers = {RunningJob(1, 20)};
  const Instant begin = bed.clock.Now();

  EXPECT_EQ(WaitJobCommand(bed.context, 7, {.timeout = absl::Seconds(3.2)}),
            kExitTimedOut);

  EXPECT_EQ(bed.clock.Now() - begin, absl::Seconds(3.2));
  EXPECT_EQ(bed.Output()["state"], "running");
}

TEST(Wait, OutlastsACoordinatorThatRestartsAndSaysSoOnceEachTime) {
  CommandBed bed;
  const absl::Status gone = absl::UnavailableError("gone");
  bed.client.job_answers = {RunningJob(1, 20), gone, gone,          gone,
                            RunningJob(2, 20), gone, SucceededJob()};

  EXPECT_EQ(WaitJobCommand(bed.context, 7, {}), kExitOk);

  EXPECT_EQ(Count(bed.err.str(), "does not answer"), 2);
  EXPECT_EQ(Count(bed.err.str(), "answers again"), 2);
}

TEST(Wait, GivesUpACoordinatorThatStaysAway) {
  CommandBed bed;
  bed.client.job_answers = {RunningJob(1, 20), absl::UnavailableError("gone")};
  const Instant begin = bed.clock.Now();

  EXPECT_EQ(WaitJobCommand(bed.context, 7, {}), kExitUnreachable);

  EXPECT_GE(bed.clock.Now() - begin, kPatience);
  EXPECT_LE(bed.clock.Now() - begin, kPatience + absl::Seconds(1));
  EXPECT_EQ(bed.out.str(), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("paceline job wait 7"));
}

v1::RunEstimate Expected() {
  return Parse<v1::RunEstimate>(R"(
    step_seconds: 0.25 samples_per_second: 256 bubble_share: 0.125
    stage_seconds: [0.02, 0.03] source: "layer times measured on w1, w2"
    measured: true)");
}

v1::SubmitJobResponse PlacedOnTwo() {
  v1::SubmitJobResponse placed = Submitted();
  *placed.mutable_stages() = Placed({{0, 0, 4, 5, "w1"}, {1, 4, 8, 6, "w2"}});
  *placed.mutable_estimate() = Expected();
  return placed;
}

TEST(DryRun, PrintsThePlanItsExpectationsAndNeverAsksForAJob) {
  SubmitBed table, document(OutputFormat::kJson);
  SubmitOptions options = Job();
  options.spec.train.steps = 480;
  options.dry_run = true;

  for (SubmitBed* bed : {&table, &document}) {
    bed->client.submissions = {PlacedOnTwo()};
    EXPECT_EQ(bed->Submit(options), kExitOk);
    EXPECT_TRUE(bed->client.submitted[0].dry_run());
    EXPECT_TRUE(bed->client.asked.empty());
  }

  EXPECT_THAT(table.out.str(), Says("250 ms", "all 480 steps", "2 min 0 s",
                                    "12.5 %", "measured on w1, w2"));
  const json plan = document.Output();
  EXPECT_EQ(plan["stages"][1]["worker"], "w2");
  EXPECT_EQ(plan["stages"][1]["first_layer"], 4);
  EXPECT_EQ(plan["parameter_bytes"],
            plan["stages"][0]["parameter_bytes"].get<int64_t>() +
                plan["stages"][1]["parameter_bytes"].get<int64_t>());
  EXPECT_GT(plan["stages"][0]["memory_bytes"], 0);
  EXPECT_THAT(plan["estimate"], Includes(R"({
    "step_seconds": 0.25, "samples_per_second": 256.0, "bubble_share": 0.125,
    "stage_seconds": [0.02, 0.03], "measured": true})"));
}

// Inference has no steps: the estimate is of all of it.
TEST(RunFacts, OfInferenceSayWhatAllOfItTakes) {
  v1::RunEstimate run = Expected();
  run.set_step_seconds(90);

  EXPECT_THAT(RunFacts(run, 0, /*inference=*/true),
              testing::Contains(testing::Pair("expected time", "1 min 30 s")));
}

TEST(Submit, SaysWhereStagesGoOrThatTheyAreNotChosenYet) {
  SubmitBed placed, open;
  placed.client.submissions = {PlacedOnTwo()};
  SubmitOptions options = Job();
  options.spec.pipeline.stages = 0;

  EXPECT_EQ(placed.Submit(options), kExitOk);
  EXPECT_EQ(open.Submit(options), kExitOk);

  EXPECT_THAT(placed.err.str(),
              Says("2 stages, 1f1b", "stage 1: w2, layers 4-7",
                   "expected step: 250 ms"));
  EXPECT_THAT(open.err.str(), HasSubstr("stages not chosen yet"));
}

TEST(Submit, SaysThatAShareLeavesAReplicaWithoutWork) {
  SubmitBed bed;
  v1::SubmitJobResponse placed = PlacedOnTwo();
  *placed.mutable_stages() =
      Placed({{0, 0, 4, 5, "w1"}, {1, 4, 8, 6, "w2"}, {1, 4, 8, 7, "w3"}});
  placed.mutable_stages(1)->set_share(0.97);
  placed.mutable_stages(2)->set_share(0.03);
  bed.client.submissions = {placed};
  SubmitOptions options = Job();
  options.spec.train.batch = 8;
  options.spec.train.micro_batch = 2;

  EXPECT_EQ(bed.Submit(options), kExitOk);

  EXPECT_EQ(Count(bed.err.str(), "without one in a step"), 1);
  EXPECT_THAT(bed.err.str(), HasSubstr("stage 1: w3, layers 4-7, 3.0 % of the "
                                       "micro-batches, which leaves it"));
}

TEST(Estimate, CutsWhereTheJobSaysElseByItselfOrLater) {
  JobSpec spec = Job().spec;
  const auto by_itself = EstimateJob(spec, {}).value();
  spec.pipeline.stages = 0;
  const auto later = EstimateJob(spec, {}).value();
  spec.pipeline.cuts = {1, 2};
  const auto as_said = EstimateJob(spec, {}).value();

  ASSERT_EQ(by_itself.stages.size(), 2u);
  EXPECT_EQ(by_itself.stages[1].placement.worker_id(), -1);
  EXPECT_EQ(by_itself.stages[1].placement.last_layer(), by_itself.layers);
  EXPECT_FALSE(later.chosen);
  EXPECT_THAT(RenderEstimate(later), HasSubstr("decided once there are"));
  EXPECT_TRUE(as_said.chosen);
  EXPECT_EQ(as_said.stages.size(), 3u);
}

TEST(Estimate, RefusesAPlacementOfAnotherModel) {
  EXPECT_FALSE(EstimateJob(Job().spec, Placed({{0, 0, 99, 1, "w1"}})).ok());
  EXPECT_FALSE(EstimateJob(Job().spec, Placed({{0, 3, 3, 1, "w1"}})).ok());
  EXPECT_FALSE(EstimateJob(Job().spec, Placed({{0, -1, 3, 1, "w1"}})).ok());
}

v1::LogLine LogLine(int64_t unix_ms, const std::string& text) {
  v1::LogLine line;
  line.set_unix_ms(unix_ms);
  line.set_level("info");
  line.set_source("w1");
  line.set_text(text);
  return line;
}

TEST(LogsAndEvents, ComeCompleteAcrossPages) {
  CommandBed logs(OutputFormat::kJson), events(OutputFormat::kJson);
  for (int i = 0; i < 5; ++i) {
    *logs.client.logs.add_lines() = LogLine(1000 + i, std::to_string(i));
    events.client.events.add_events()->set_sequence(i + 1);
  }

  EXPECT_EQ(JobLogsCommand(logs.context, 7, /*follow=*/false), kExitOk);
  EXPECT_EQ(JobEventsCommand(events.context, 7, /*follow=*/false), kExitOk);

  EXPECT_EQ(logs.Output()["lines"].size(), 5u);
  EXPECT_EQ(events.Output()["events"].size(), 5u);
}

TEST(Logs, AreFollowedUntilTheJobEndsOrCtrlC) {
  CommandBed ended(OutputFormat::kJsonLines), left(OutputFormat::kJson);
  for (CommandBed* bed : {&ended, &left}) {
    *bed->client.logs.add_lines() = LogLine(1, "a");
    *bed->client.logs.add_lines() = LogLine(2, "b");
    bed->client.job_answers = {RunningJob(1, 2), RunningJob(2, 2),
                               SucceededJob()};
  }
  left.pauser.leave_at = 2;

  EXPECT_EQ(JobLogsCommand(ended.context, 7, /*follow=*/true), kExitOk);
  EXPECT_EQ(JobLogsCommand(left.context, 7, /*follow=*/true), kExitInterrupted);

  EXPECT_EQ(Count(ended.out.str(), "\n"), 2) << "without repeats";
  EXPECT_EQ(ended.pauser.sleeps(), 2);
  EXPECT_EQ(left.Output()["lines"].size(), 2u) << "a whole document";
}

// A reason of several clauses was one line of several hundred columns.
TEST(Events, AreATableOrADocument) {
  Golden golden("client/events");
  for (const auto format : {OutputFormat::kTable, OutputFormat::kYaml}) {
    CommandBed bed(format);
    bed.client.events = Parse<v1::GetEventsResponse>(R"(
      events { sequence: 1 unix_ms: 5 kind: "submitted" text: "by a person"
               job: 7 }
      events { sequence: 2 unix_ms: 5 kind: "placed" text: "on w1: a; b" }
      events { sequence: 3 unix_ms: 5 kind: "lost" text: "w1; again" })");

    const ExitCode code = JobEventsCommand(bed.context, 7, /*follow=*/false);

    golden.Add(bed.console.table() ? "table" : "yaml", bed.Said(code));
  }
}

TEST(Jobs, AnEmptyListIsStillADocument) {
  CommandBed bed(OutputFormat::kJson);

  EXPECT_EQ(ListJobsCommand(bed.context, {}), kExitOk);

  EXPECT_EQ(bed.Output(), json({{"jobs", json::array()}}));
}

// Newest first: 5 infers, 4 and 2 wait, 3 and 1 have ended.
v1::ListJobsResponse FiveJobs() {
  return Parse<v1::ListJobsResponse>(R"(
    jobs { id: 5 state: JOB_STATE_RUNNING
           spec { name: "look" kind: "infer" model { name: "vit" } } }
    jobs { id: 4 state: JOB_STATE_QUEUED
           spec { name: "night-2" kind: "train" model { name: "vit" } } }
    jobs { id: 3 state: JOB_STATE_FAILED
           spec { name: "night-1" kind: "train" model { name: "lenet" } } }
    jobs { id: 2 state: JOB_STATE_QUEUED
           spec { name: "day" kind: "train" model { name: "lenet" } } }
    jobs { id: 1 state: JOB_STATE_SUCCEEDED
           spec { name: "day" kind: "train" model { name: "lenet" } } })");
}

TEST(Jobs, AreListedAsTheFilterSaysNewestFirst) {
  const std::pair<JobFilter, json> kCases[] = {
      {{}, {5, 4, 3, 2, 1}},
      {{.states = {"queued", "failed"}}, {4, 3, 2}},
      {{.states = {"queued", "failed"}, .limit = 2}, {4, 3}},
      {{.model = "lenet"}, {3, 2, 1}},
      {{.states = {"queued"}, .model = "lenet"}, json::array({2})},
      {{.name = "night"}, {4, 3}},
      {{.name = "nothing"}, json::array()},
  };
  for (const auto& [filter, ids] : kCases) {
    CommandBed bed(OutputFormat::kJson);
    bed.client.jobs = FiveJobs();

    EXPECT_EQ(ListJobsCommand(bed.context, filter), kExitOk);

    json listed = json::array();
    const json output = bed.Output();
    for (const json& job : output["jobs"]) listed.push_back(job["id"]);
    EXPECT_EQ(listed, ids);
  }
}

TEST(Jobs, AFilterThatLeavesNoneIsToldFromAMeshWithoutJobs) {
  for (const auto& [filter, says] :
       {std::pair{JobFilter{}, "no jobs yet"},
        {JobFilter{.name = "x"}, "'paceline job list' shows all"}}) {
    CommandBed bed;

    EXPECT_EQ(ListJobsCommand(bed.context, filter), kExitOk);

    EXPECT_THAT(bed.err.str(), HasSubstr(says));
  }
}

TEST(Watch, TellsEachEventOnceBesideTheProgress) {
  CommandBed watch, wait;
  for (CommandBed* bed : {&watch, &wait}) {
    bed->client.events = Parse<v1::GetEventsResponse>(R"(
      events { sequence: 1 kind: "submitted" text: "by hand" }
      events { sequence: 2 kind: "placed" text: "on w1" }
      events { sequence: 3 kind: "lost" text: "w1 is gone\n" })");
    bed->client.job_answers = {RunningJob(1, 20), RunningJob(2, 20),
                               SucceededJob()};
  }

  EXPECT_EQ(WaitJobCommand(watch.context, 7, {.events = true}), kExitOk);
  EXPECT_EQ(WaitJobCommand(wait.context, 7, {}), kExitOk);

  EXPECT_EQ(Count(watch.err.str(), "by hand\n"), 1);
  EXPECT_EQ(Count(watch.err.str(), "w1 is gone\n"), 1);
  EXPECT_THAT(watch.err.str(), HasSubstr("step 1/20"));
  EXPECT_EQ(watch.out.str(), wait.out.str());
  EXPECT_THAT(wait.err.str(), Not(HasSubstr("by hand")));
}

// An event that the coordinator cannot store yet: it has no number, and comes
// with every answer.
class UnstoredEvent final : public FakeControlClient {
 public:
  absl::StatusOr<v1::GetEventsResponse> GetEvents(int64_t, int64_t) override {
    return Parse<v1::GetEventsResponse>(R"(events { text: "disk is full" })");
  }
};

TEST(Watch, WaitsWithAnEventUntilItIsStored) {
  CommandBed bed;
  UnstoredEvent client;
  client.job_answers = {RunningJob(1, 20), SucceededJob()};

  EXPECT_EQ(WaitJobCommand({client, bed.console, bed.clock, bed.pauser}, 7,
                           {.events = true}),
            kExitOk);

  EXPECT_THAT(bed.err.str(), Not(HasSubstr("disk is full")));
}

TEST(Again, IsTheJobAsItWasButForSets) {
  FakeControlClient client;
  v1::Job job = SucceededJob();
  job.mutable_spec()->mutable_train()->set_steps(20);
  job.mutable_spec()->mutable_model()->mutable_script()->set_sha256("old");
  *client.jobs.add_jobs() = job;
  client.job_answers = {job};

  const auto again = JobAgain(client, "last", {"train.batch=32"});

  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(client.asked, std::vector<int64_t>{7});
  EXPECT_EQ(again->spec.name, "first");
  EXPECT_EQ(again->spec.train.steps, 20);
  EXPECT_EQ(again->spec.train.batch, 32);
  EXPECT_EQ(again->spec.model.script.sha256, "");
}

TEST(Again, OfNoJobOrWithAWrongSettingIsRefused) {
  FakeControlClient client;
  client.job_answers = {absl::NotFoundError("there is no job 9")};
  EXPECT_EQ(ExitCodeFor(JobAgain(client, "9", {}).status()), kExitNotFound);
  EXPECT_EQ(ExitCodeFor(JobAgain(client, "job.yaml", {}).status()), kExitUsage);

  client.job_answers = {SucceededJob()};
  const auto wrong = JobAgain(client, "7", {"train.batches=32"});
  EXPECT_EQ(ExitCodeFor(wrong.status()), kExitUsage);
  EXPECT_THAT(wrong.status().message(), HasSubstr("train.batches"));
}

TEST(Jobs, LastMeansTheNewest) {
  FakeControlClient client;
  EXPECT_EQ(ExitCodeFor(ResolveJob(client, "last").status()), kExitNotFound);

  *client.jobs.add_jobs() = SucceededJob();
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

TEST(Jobs, StoppingOneThatHadEndedSaysSo) {
  CommandBed bed(OutputFormat::kTable);
  bed.client.job_answers = {SucceededJob()};

  EXPECT_EQ(StopJobCommand(bed.context, 7), kExitOk);

  EXPECT_THAT(bed.err.str(), HasSubstr("had ended"));
}

TEST(Nodes, AreShownByNameOrNumber) {
  for (const auto& [word, code] :
       {std::pair{"w1", kExitOk}, {"4", kExitOk}, {"w9", kExitNotFound}}) {
    CommandBed bed(OutputFormat::kJson);
    *bed.client.workers->add_workers() = AWorker(4, "w1");

    EXPECT_EQ(ShowNodeCommand(bed.context, word), code) << word;

    EXPECT_EQ(bed.out.str().empty(), code != kExitOk);
  }
}

JobSpec OfModel(const std::string& name) {
  JobSpec spec;
  spec.model.name = name;
  return spec;
}

TEST(Models, AreInspectedWithoutACoordinator) {
  CommandBed bed(OutputFormat::kJson);

  EXPECT_EQ(InspectModelCommand(bed.console, OfModel("lenet")), kExitOk);

  const json model = bed.Output();
  EXPECT_EQ(model["input"], json({1, 28, 28}));
  EXPECT_GT(model["parameters"], 1000);
  EXPECT_GT(model["layers"].size(), 3u);
}

TEST(Models, AnUnknownOneIsNotFoundAndWrongSettingsAreAUsageError) {
  CommandBed unknown(OutputFormat::kJson), wrong;
  JobSpec spec = OfModel("vit");
  spec.model.heads = 5;

  EXPECT_EQ(InspectModelCommand(unknown.console, OfModel("lenett")),
            kExitNotFound);
  EXPECT_EQ(InspectModelCommand(wrong.console, spec), kExitUsage);

  EXPECT_EQ(unknown.out.str(), "");
  EXPECT_THAT(unknown.err.str(), HasSubstr("no model 'lenett'; did you mean "
                                           "'lenet'?; there are: "));
}

TEST(Submit, WarnsOnStandardErrorAndInEveryDocument) {
  for (const auto& [detach, dry_run] :
       {std::pair{false, false}, {true, false}, {false, true}}) {
    SubmitBed bed(OutputFormat::kJson);
    SubmitOptions options = Job();
    options.detach = detach;
    options.dry_run = dry_run;
    options.warnings = {"job.yaml:4: data.path has no effect"};

    EXPECT_EQ(bed.Submit(options), kExitOk);

    EXPECT_EQ(bed.Output()["warnings"],
              json({"job.yaml:4: data.path has no effect"}));
    EXPECT_THAT(bed.err.str(),
                HasSubstr("paceline: warning: job.yaml:4: data.path has"));
  }
}

TEST(Submit, ProgressSaysThatAJobBeginsAgainAndForgetsWhatWas) {
  SubmitBed bed;
  v1::Job before = RunningJob(10, 20);
  *before.mutable_curve() = Losses({{10, 0.7784}});
  v1::Job again = RunningJob(0, 20);
  *again.mutable_curve() = Losses({{10, 0.7784}});
  const v1::Job after = RunningJob(1, 20);
  bed.client.job_answers = {before, again, after, SucceededJob()};

  bed.Submit();

  const std::string text = bed.err.str();
  const size_t begins = text.find("begins again at step 0 (was at 10)");
  ASSERT_NE(begins, std::string::npos) << text;
  EXPECT_THAT(text.substr(0, begins), HasSubstr("loss 0.7784"));
  EXPECT_THAT(text.substr(begins), Not(HasSubstr("loss 0.7784")));
}

SubmitOptions Parallel() {
  SubmitOptions options;
  options.spec.name = "first";
  options.spec.model.name = "lenet";
  options.spec.data.name = "fashion-mnist";
  options.spec.train.micro_batch = 4;
  options.spec.aggregation.mode = "rolling";
  options.spec.aggregation.shards = 0;
  return options;
}

// All eight layers on each of five workers.
v1::SubmitJobResponse OnFiveWorkers() {
  v1::SubmitJobResponse placed;
  *placed.mutable_stages() = Placed({{0, 0, 8, 10, "w"},
                                     {0, 0, 8, 11, "w"},
                                     {0, 0, 8, 12, "w"},
                                     {0, 0, 8, 13, "w"},
                                     {0, 0, 8, 14, "w"}});
  return placed;
}

int64_t Bytes(const JobSpec& spec, int members) {
  const auto model =
      DescribeModel(spec.model, spec.data.shape, spec.data.classes);
  return MemberBytes(spec, model.value(), members);
}

TEST(EstimateJob, SaysHowMuchTrains) {
  JobSpec spec;
  spec.model = DefaultModel("vit");
  EXPECT_THAT(RenderEstimate(*EstimateJob(spec, {})), Not(HasSubstr("train")));

  spec.model.lora.rank = 8;

  const auto estimate = EstimateJob(spec, {});
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  // Each block has 8 x 64 and 192 x 8 of them; the rest is the head.
  EXPECT_EQ(estimate->trained, 4 * 8 * (64 + 192) + 64 * 10 + 10);
  EXPECT_EQ(ToDocument(*estimate)["trained_parameters"], estimate->trained);
  EXPECT_THAT(RenderEstimate(*estimate), HasSubstr("of them train"));
}

TEST(DataParallel, ShowsWhatEachMemberTakesAndTheNumberOfShards) {
  CommandBed dry(OutputFormat::kJson), detached;
  SubmitOptions options = Parallel();
  dry.client.submissions = {OnFiveWorkers()};
  detached.client.submissions = {OnFiveWorkers()};

  options.dry_run = true;
  EXPECT_EQ(SubmitCommand(dry.context, options), kExitOk);
  options.dry_run = false;
  options.detach = true;
  EXPECT_EQ(SubmitCommand(detached.context, options), kExitOk);

  const json estimate = dry.Output();
  ASSERT_EQ(estimate["stages"].size(), 5u);
  EXPECT_EQ(estimate["stages"][4]["memory_bytes"], Bytes(options.spec, 5));
  EXPECT_EQ(estimate["shards"], 5);
  EXPECT_THAT(detached.err.str(), HasSubstr("  shards: 5\n"));
}

TEST(DataParallel, TheShardsThatAreChosenAreShownWithTheReason) {
  CommandBed dry(OutputFormat::kJson), table, detached;
  SubmitOptions options = Parallel();
  v1::SubmitJobResponse placed = OnFiveWorkers();
  placed.mutable_estimate()->set_shards(2);
  placed.mutable_estimate()->set_shards_why("a step is predicted to take 4 ms");
  for (CommandBed* bed : {&dry, &table, &detached}) {
    bed->client.submissions = {placed};
  }

  options.dry_run = true;
  EXPECT_EQ(SubmitCommand(dry.context, options), kExitOk);
  EXPECT_EQ(SubmitCommand(table.context, options), kExitOk);
  options.dry_run = false;
  options.detach = true;
  EXPECT_EQ(SubmitCommand(detached.context, options), kExitOk);

  const json estimate = dry.Output();
  EXPECT_EQ(estimate["shards"], 2);
  EXPECT_EQ(estimate["shards_why"], "a step is predicted to take 4 ms");
  options.spec.aggregation.shards = 2;
  EXPECT_EQ(estimate["stages"][4]["memory_bytes"], Bytes(options.spec, 5));
  const char* const text = "shards: 2 (a step is predicted to take 4 ms)\n";
  EXPECT_THAT(table.out.str(), HasSubstr(text));
  EXPECT_THAT(detached.err.str(), HasSubstr(text));
}

TEST(DataParallel, WithoutWorkersTheMembersThatTheJobNamesAreCounted) {
  JobSpec unknown = Parallel().spec, six = unknown;
  six.aggregation.members = 6;

  const auto estimate = EstimateJob(six, {}).value();

  EXPECT_TRUE(estimate.chosen) << "there is one stage";
  EXPECT_EQ(estimate.stages[0].memory_bytes, Bytes(six, 6));
  EXPECT_EQ(EstimateJob(unknown, {})->shards, 0) << "nobody knows";
}

TEST(Nodes, AreDrainedAndTakenBackAndSayWhatThatComesTo) {
  Golden golden("client/drain");
  for (const auto& [job, drain] : {std::pair(0, true), {7, true}, {0, false}}) {
    CommandBed table, document(OutputFormat::kJson);
    for (CommandBed* bed : {&table, &document}) {
      v1::Worker worker = AWorker(1, "w1");
      worker.set_job(job);
      worker.set_drained(drain);
      bed->client.drain_answer = worker;
      EXPECT_EQ(DrainNodeCommand(bed->context, "w1", drain), kExitOk);
      EXPECT_EQ(bed->client.drained.at(0), std::pair(std::string("w1"), drain));
    }
    golden.Add(absl::StrCat("job ", job, drain ? ", drained" : ", taken back"),
               absl::StrCat(table.out.str(),
                            "state: ", document.Output()["state"].dump()));
  }
}

WeightsSummary TwoTensors() {
  WeightsSummary weights;
  weights.tensors = {{"fc.weight", DType::kF32, {2, 3}, 128, 24},
                     {"step", DType::kI64, {}, 152, 8}};
  weights.metadata = {{"format", "pt"}, {"model", "mlp"}};
  weights.file_bytes = 160;
  weights.sha256 = "00ff";
  return weights;
}

struct InspectBed : CommandBed {
  explicit InspectBed(OutputFormat format = OutputFormat::kTable)
      : CommandBed(format) {
    weights.answer = TwoTensors();
  }
  ExitCode Inspect() {
    return InspectWeightsCommand(console, weights.reader(), "w");
  }

  FakeWeights weights;
};

TEST(InspectWeights, ListsTensorsTotalsMetadataAndHash) {
  Golden golden("client/inspect_weights");
  for (const auto format : {OutputFormat::kTable, OutputFormat::kJson}) {
    InspectBed bed(format);
    const ExitCode code = bed.Inspect();
    golden.Add(bed.console.table() ? "table" : "document", bed.Said(code));
  }
}

TEST(InspectWeights, KeepsHostileNamesOutOfTheTerminal) {
  InspectBed bed;
  bed.weights.answer->tensors[0].name = "\x1b[2J";
  bed.weights.answer->metadata = {{"\x1b[2J", "\x1b[2J"}};

  EXPECT_EQ(bed.Inspect(), kExitOk);

  EXPECT_THAT(bed.out.str(), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace paceline
