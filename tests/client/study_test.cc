#include "client/study/study.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/commands/job/job.h"
#include "core/base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/command_script.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kBase[] =
    "base:\n"
    "  model: {name: lenet}\n"
    "  data: {name: synthetic}\n"
    "  train: {steps: 20, batch: 32, micro_batch: 8, seed: 5}\n";

absl::StatusOr<Study> Read(const std::string& text) {
  const TemporaryFolder folder;
  return ReadStudyFile(folder.Write("s.yaml", text), {});
}

Study ReadGood(const std::string& text) {
  const auto study = Read(absl::StrCat(kBase, text));
  EXPECT_TRUE(study.ok()) << study.status();
  return study.value_or(Study());
}

std::vector<TrialJob> Jobs(const Study& study) {
  std::vector<std::string> warnings;
  const auto jobs = JobsOf(study, TrialsOf(study).value(), &warnings);
  EXPECT_TRUE(jobs.ok()) << jobs.status();
  return *jobs;
}

// --- trials -----------------------------------------------------------------

TEST(TrialJobs, KeepTheirRequestIdsWhenTheStudyGrows) {
  const auto small = Jobs(ReadGood("vary: {train.batch: [16]}"));
  const auto grown =
      Jobs(ReadGood("vary: {train.batch: [64, 16]}\nrepeat: 2\n"));

  EXPECT_EQ(grown[1].request_id, small[0].request_id);
  std::map<std::string, int> ids;
  for (const TrialJob& job : grown) ++ids[job.request_id];
  EXPECT_EQ(ids.size(), 4);
}

TEST(TrialJobs, OfAnotherStudyOrOtherSettingsHaveOtherRequestIds) {
  const auto jobs = Jobs(ReadGood("name: a\nvary: {train.batch: [16]}"));
  const auto other = Jobs(ReadGood("name: b\nvary: {train.batch: [16]}"));

  EXPECT_NE(jobs[0].request_id, other[0].request_id);
}

TEST(JobCount, IsTrialsTimesRepeatsAndDoesNotOverflow) {
  EXPECT_EQ(JobCount(ReadGood("vary: {train.batch: [1, 2]}\nrepeat: 3\n")), 6);
  EXPECT_EQ(JobCount(ReadGood("trials: [{train.batch: 1}]")), 1);
  Study huge;
  huge.repeat = 1000;
  huge.vary.resize(9, {"train.seed", std::vector<std::string>(100)});
  EXPECT_EQ(JobCount(huge), kMostJobs + 1);
}

// --- which next -------------------------------------------------------------

std::vector<TrialJob> InStates(const std::vector<v1::JobState>& states) {
  std::vector<TrialJob> jobs(states.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].state = states[i];
    if (states[i] != v1::JOB_STATE_UNSPECIFIED)
      jobs[i].id = static_cast<int>(i) + 1;
  }
  return jobs;
}

TEST(NextJob, IsTheFirstThatWaitsWhileWorkersAreLeft) {
  const auto jobs = InStates({v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_RUNNING,
                              v1::JOB_STATE_UNSPECIFIED});

  EXPECT_EQ(NextJob(jobs, /*exclusive=*/false, 2), 2);
  EXPECT_EQ(NextJob(jobs, /*exclusive=*/false, 1), std::nullopt);
  EXPECT_EQ(NextJob(jobs, /*exclusive=*/true, 2), std::nullopt);
}

TEST(NextJob, IsSubmittedEvenToAMeshWithoutWorkers) {
  EXPECT_EQ(NextJob(InStates({v1::JOB_STATE_UNSPECIFIED}), false, 0), 0);
}

TEST(NextJob, PassesThoseThatAreRefused) {
  auto jobs = InStates({v1::JOB_STATE_UNSPECIFIED, v1::JOB_STATE_UNSPECIFIED});
  jobs[0].why = "refused";

  EXPECT_EQ(NextJob(jobs, /*exclusive=*/true, 2), 1);
}

TEST(DecideStuck, WantsThirtyIdleSecondsInARow) {
  TrialJob job = InStates({v1::JOB_STATE_QUEUED})[0];

  EXPECT_FALSE(DecideStuck(job, /*idle=*/true, At(0)));
  EXPECT_FALSE(DecideStuck(job, /*idle=*/true, At(29)));
  EXPECT_FALSE(DecideStuck(job, /*idle=*/false, At(29.5)));
  EXPECT_FALSE(DecideStuck(job, /*idle=*/true, At(30)));
  EXPECT_TRUE(DecideStuck(job, /*idle=*/true, At(60)));
  job.state = v1::JOB_STATE_RUNNING;
  EXPECT_FALSE(DecideStuck(job, /*idle=*/true, At(99)));
}

// --- measures ---------------------------------------------------------------

v1::Job MeasuredJob() {
  v1::Job job = SucceededJob();
  job.mutable_workers(0)->MergeFrom(Parse<v1::JobWorker>(
      R"(run { peak_memory_bytes: 100 flow { compute_cpu: 2 other_cpu: 1 }
               update_bytes: 30 energy_joules: 1.5
               sent { worker_id: 2 bytes: 5 } sent { worker_id: 3 bytes: 2 } })"));
  *job.add_workers() = Parse<v1::JobWorker>(
      R"(run { peak_memory_bytes: 300 flow { compute_cpu: 4 }
               seconds { forward: 6 wall: 10 } })");
  return job;
}

double Measured(const std::string& name) {
  const auto measure = FindMeasure(name);
  EXPECT_TRUE(measure.ok()) << measure.status();
  return ValueIn(JobDocument(MeasuredJob()), *measure).value_or(-1);
}

TEST(Measures, TakeTheirNumberFromAJob) {
  EXPECT_EQ(Measured("accuracy"), 0.90125);
  EXPECT_EQ(Measured("test_loss"), 0.375);
  EXPECT_EQ(Measured("time"), 65);
  EXPECT_EQ(Measured("memory"), 300);
  EXPECT_EQ(Measured("update_memory"), 30);
  EXPECT_EQ(Measured("energy"), 1.5);
  EXPECT_EQ(Measured("bytes"), 7);
  EXPECT_EQ(Measured("cpu"), 7);
  EXPECT_EQ(Measured("forward"), 0.4) << "of the time of both workers";
  EXPECT_EQ(Measured("workers.peak_memory_bytes"), 400);
  EXPECT_EQ(Measured("max workers.flow.compute_cpu"), 4);
  EXPECT_EQ(Measured("mean workers.flow.compute_cpu"), 3);
  EXPECT_EQ(Measured("last evaluations.step"), 20);
}

TEST(Measures, MayHaveNoNumber) {
  EXPECT_EQ(Measured("step_time"), -1);
  EXPECT_EQ(Measured("recovery.recoveries"), -1);
  const auto forward = FindMeasure("forward").value();
  EXPECT_EQ(ValueIn(JobDocument(v1::Job()), forward), std::nullopt);
}

TEST(Measures, TheLossIsThatOfTheLastTenthAndInfiniteWhereItIsNoNumber) {
  v1::Job job;
  for (int step = 1; step <= 20; ++step) {
    *job.add_curve() = Loss({step, 21.0 - step});
  }
  const Measure loss = FindMeasure("loss").value();
  EXPECT_EQ(ValueIn(JobDocument(job), loss), 1.5);

  job.mutable_curve(19)->set_loss(NAN);
  EXPECT_EQ(ValueIn(JobDocument(job), loss),
            std::numeric_limits<double>::infinity());
}

TEST(Measures, ThatAreUnknownOrNoNumbersAreRefused) {
  ExpectAnswers("client/measures", [](const std::string& name) {
    return std::string(FindMeasure(name).status().message());
  });
}

// A job of one worker, whose micro-batches took `seconds` each.
TrialJob Ended(size_t trial, int64_t repeat, double seconds) {
  TrialJob job;
  job.trial = trial;
  job.repeat = repeat;
  job.state = v1::JOB_STATE_SUCCEEDED;
  job.result = Parse<v1::Job>(absl::StrFormat(
      R"(id: 7 spec { kind: "infer" }
         drift { stage: 0 worker_id: 1 layer_seconds: 0.5 }
         workers { id: 1 name: "a" stages { stage: 0 last_layer: 1 worker_id: 1
                                            worker_name: "a" share: 1 }
                   run { flow { micro_batches: 4 samples: 4 first_unix_us: 1000
                                last_unix_us: %d compute: %f compute_cpu: 2
                                latency_p50: 1 } } })",
      static_cast<int64_t>(1000 + 4e6 * seconds), 4 * seconds));
  job.document = JobDocument(job.result);
  job.against = 0;
  return job;
}

TEST(Comparisons, AreWithTheJobOfTheSameSeed) {
  std::vector<TrialJob> jobs = {Ended(0, 0, 1), Ended(1, 0, 0.5),
                                Ended(0, 1, 3), Ended(1, 1, 1), Ended(1, 2, 1)};
  const auto value = [&](const char* measure, size_t job) {
    return ValueIn(jobs[job].document, FindMeasure(measure).value());
  };

  EXPECT_THAT(CompareJobs(/*paired=*/false, {}, jobs), testing::IsEmpty());

  EXPECT_EQ(value("speedup", 0), 1);
  EXPECT_EQ(value("speedup", 1), 2);
  EXPECT_EQ(value("speedup", 3), 3);
  EXPECT_EQ(value("speedup", 4), std::nullopt) << "no other has its seed";
  double sum = 2;
  for (const char* const loss :
       {"fill", "imbalance", "transfer", "slowdown", "unexplained"}) {
    sum += value(loss, 1).value();
  }
  EXPECT_DOUBLE_EQ(sum, 1) << "of one worker";
}

TEST(Comparisons, AreWithTheLastOneBeforeElseWithTheFirstOneAfter) {
  std::vector<TrialJob> jobs = {Ended(1, 0, 1), Ended(0, 0, 2), Ended(0, 0, 4),
                                Ended(1, 0, 1)};

  CompareJobs(/*paired=*/false, {}, jobs);

  EXPECT_EQ(jobs[0].row->speedup, 2);
  EXPECT_EQ(jobs[3].row->speedup, 4);
}

TEST(Comparisons, InPairsAreWithTheMeanOfTheOnesBesideAJob) {
  std::vector<TrialJob> jobs = {Ended(0, 0, 1), Ended(1, 0, 1)};
  CompareJobs(/*paired=*/true, {}, jobs);
  EXPECT_EQ(jobs[0].row->speedup, 1) << "alone, it needs no other";
  EXPECT_FALSE(jobs[1].row.has_value());

  jobs.push_back(Ended(0, 0, 3));
  jobs.back().only_compares = true;
  CompareJobs(/*paired=*/true, {}, jobs);

  EXPECT_EQ(jobs[1].row->speedup, 2);
  EXPECT_EQ(jobs[1].row->drift, 1);
  EXPECT_FALSE(jobs[2].row.has_value());
}

TEST(Comparisons, SayOnceWhyThereAreNone) {
  std::vector<TrialJob> jobs = {Ended(0, 0, 1), Ended(0, 1, 1)};
  for (TrialJob& job : jobs) job.result.clear_drift();

  EXPECT_THAT(CompareJobs(/*paired=*/false, {}, jobs),
              ElementsAre(HasSubstr("layers of stage 0")));
}

TEST(Spread, HasMedianLeastAndMost) {
  EXPECT_EQ(SpreadText(SpreadOf({0.3, 0.1, 0.2}), Unit::kNumber),
            "0.2 (0.1..0.3)");
  EXPECT_EQ(SpreadText(SpreadOf({0.002, 0.003}), Unit::kSeconds),
            "2.5 ms (2..3)");
  EXPECT_EQ(SpreadText(SpreadOf({0.5, 3}), Unit::kSeconds),
            "1.75 s (500 ms..3 s)");
  EXPECT_EQ(SpreadText(SpreadOf({0.25}), Unit::kShare), "25.0 %");
}

TEST(PlotSpreads, DrawsFromTheLeastToTheGreatest) {
  const std::string plot =
      PlotSpreads("loss", {{"a", {1, 0, 2, 3}}, {"bc", {4, 3, 4, 3}}},
                  Unit::kNumber, /*unicode=*/false);

  EXPECT_EQ(plot,
            "loss, 0 to 4\n"
            "a  |------------o-------------  1 (0..2)\n"
            "bc |                                     ------------o  4 "
            "(3..4)\n");
}

TEST(PlotSpreads, OfOneValueOrNoneHasNoWidth) {
  EXPECT_EQ(PlotSpreads("x", {{"a", {1, 1, 1, 1}}}, Unit::kNumber, false),
            "x, 1 to 1\na |o  1\n");
  EXPECT_EQ(PlotSpreads("x", {}, Unit::kNumber, false), "");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(
      PlotSpreads(
          "x", {{"a", {infinity, infinity, infinity, 1}}, {"b", {1, 1, 1, 1}}},
          Unit::kNumber, false),
      HasSubstr("a |o  inf\n"));
}

// --- races ------------------------------------------------------------------

std::vector<std::string> Texts(const std::vector<Rung>& rungs) {
  std::vector<std::string> texts;
  for (const Rung& rung : rungs) {
    texts.push_back(absl::StrCat(rung.trials, " to ", rung.end));
  }
  return texts;
}

int64_t StepsOfAll(const std::vector<Rung>& rungs) {
  int64_t steps = 0, begin = 0;
  for (const Rung& rung : rungs) {
    steps += static_cast<int64_t>(rung.trials) * (rung.end - begin);
    begin = rung.end;
  }
  return steps;
}

TEST(Rungs, HalveTheFieldWithHalfOfTheBudget) {
  EXPECT_THAT(Texts(RungsOf({}, 8, 600).value()),
              ElementsAre("8 to 21", "4 to 42", "2 to 63", "1 to 369"));
  EXPECT_THAT(Texts(RungsOf({.halving = 3, .on = {}}, 5, 100).value()),
              ElementsAre("5 to 7", "2 to 14", "1 to 65"));
}

TEST(Rungs, TakeTheWholeBudgetTogether) {
  for (const double plateau : {0.0, 0.1}) {
    for (int trials = 2; trials < 40; ++trials) {
      const auto rungs =
          RungsOf({.on = {}, .plateau = plateau}, trials, 1001).value();

      EXPECT_EQ(StepsOfAll(rungs), 1001) << trials;
      EXPECT_GT(rungs[0].end, 0);
    }
  }
}

TEST(Rungs, OfAPlateauCutTheWinnersHalf) {
  EXPECT_THAT(Texts(RungsOf({.on = {}, .plateau = 0.1}, 2, 32).value()),
              ElementsAre("2 to 8", "1 to 10", "1 to 12", "1 to 14", "1 to 16",
                          "1 to 18", "1 to 20", "1 to 22", "1 to 24"));
}

TEST(Rungs, LeaveTheWinnerTheRestOfTheShare) {
  EXPECT_THAT(Texts(RungsOf({.on = {}, .share = 0.1}, 2, 100).value()),
              ElementsAre("2 to 5", "1 to 95"));
}

TEST(Rungs, WantTwoTrialsAndAStepForEach) {
  EXPECT_THAT(RungsOf({}, 1, 600).status().message(),
              HasSubstr("at least two trials"));
  EXPECT_THAT(RungsOf({}, 8, 27).status().message(),
              Says("27 steps", "8 trials", "at least 28"));
  EXPECT_TRUE(RungsOf({}, 8, 28).ok());
}

// Ends all jobs of the newest rung with these losses, NAN: it failed.
void End(std::vector<TrialJob>& jobs, const std::vector<double>& losses) {
  size_t next = 0;
  for (TrialJob& job : jobs) {
    if (HasEnded(job)) continue;
    const double loss = losses.at(next++);
    job.id = 100 + static_cast<int64_t>(&job - jobs.data());
    job.state =
        std::isnan(loss) ? v1::JOB_STATE_FAILED : v1::JOB_STATE_SUCCEEDED;
    if (std::isnan(loss)) job.why = "it failed";
    job.document = {{"loss", Document::array({{{"value", loss}}})}};
  }
}

// "trial to steps" of the jobs in the newest rung.
std::vector<std::string> NewestRung(const std::vector<TrialJob>& jobs) {
  std::vector<std::string> texts;
  for (const TrialJob& job : jobs) {
    if (job.rung != jobs.back().rung) continue;
    texts.push_back(absl::StrCat(job.trial, " to ", job.spec.train.steps));
  }
  return texts;
}

struct RaceBed {
  explicit RaceBed(const std::string& text)
      : study(ReadGood(text)), jobs(Jobs(study)) {
    auto begun = BeginRace(study, jobs);
    EXPECT_TRUE(begun.ok()) << begun.status();
    rungs = begun.value_or(std::vector<Rung>());
  }
  bool Go(const std::vector<double>& losses) {
    End(jobs, losses);
    return AddRung(study, rungs, jobs);
  }
  Study study;
  std::vector<TrialJob> jobs;
  std::vector<Rung> rungs;
};

TEST(RaceOf, TrialsKeepsTheBetterHalfUntilOneHasWon) {
  RaceBed bed("vary: {train.seed: [1, 2, 3, 4]}\nrace: {budget: 120}\n");
  EXPECT_EQ(bed.jobs[0].spec.train.checkpoint_every, 10);
  EXPECT_TRUE(AddRung(bed.study, bed.rungs, bed.jobs));
  EXPECT_EQ(bed.jobs.size(), 4) << "nobody has ended";

  ASSERT_TRUE(bed.Go({3, 1, 4, 2}));
  EXPECT_THAT(NewestRung(bed.jobs), ElementsAre("1 to 20", "3 to 20"));
  EXPECT_EQ(bed.jobs[5].goes_on_from, 3);
  EXPECT_EQ(WinnerOf(bed.jobs), std::nullopt);

  ASSERT_TRUE(bed.Go({0.5, 0.7}));
  EXPECT_THAT(NewestRung(bed.jobs), ElementsAre("1 to 80"));
  EXPECT_EQ(bed.jobs[6].goes_on_from, 4);

  EXPECT_FALSE(bed.Go({0.1}));
  EXPECT_EQ(WinnerOf(bed.jobs), 6);
}

TEST(RaceOf, LossComparesTheMeanOfARung) {
  RaceBed bed("vary: {train.seed: [1, 2]}\nrace: {on: loss}\n");
  End(bed.jobs, {1, 2});
  Document& first = bed.jobs[0].document["loss"];
  first.insert(first.begin(), Document{{"value", 5}});

  ASSERT_TRUE(AddRung(bed.study, bed.rungs, bed.jobs));

  EXPECT_EQ(bed.jobs.back().trial, 1);
}

TEST(RaceOf, AccuracyKeepsTheGreater) {
  RaceBed bed("vary: {train.seed: [1, 2]}\nrace: {on: accuracy}\n");
  End(bed.jobs, {1, 1});
  bed.jobs[0].document["test_accuracy"] = 0.5;
  bed.jobs[1].document["test_accuracy"] = 0.6;

  ASSERT_TRUE(AddRung(bed.study, bed.rungs, bed.jobs));

  EXPECT_EQ(bed.jobs.back().trial, 1);
}

TEST(RaceOf, TrialsThatFailDropOutAndTiesGoToTheFirst) {
  RaceBed bed("vary: {train.seed: [1, 2, 3, 4]}\nrace: {budget: 120}\n");

  ASSERT_TRUE(bed.Go({NAN, 2, 2, 2}));
  EXPECT_THAT(NewestRung(bed.jobs), ElementsAre("1 to 20", "2 to 20"));
  EXPECT_FALSE(bed.Go({NAN, NAN}));
  EXPECT_EQ(WinnerOf(bed.jobs), std::nullopt);
}

TEST(RaceOf, TheWinnerStopsAtAPlateau) {
  RaceBed bed(
      "vary: {train.seed: [1, 2]}\nrace: {budget: 160, plateau: 0.1}\n");
  ASSERT_TRUE(bed.Go({2, 3}));
  ASSERT_TRUE(bed.Go({1}));

  EXPECT_FALSE(bed.Go({0.95}));

  EXPECT_EQ(WinnerOf(bed.jobs), 3);
}

// --- files ------------------------------------------------------------------

// The jobs that a study file asks for, or what is wrong with it.
std::string StudyAnswer(const std::string& text) {
  const TemporaryFolder folder;
  folder.Write("study.yaml", "base: job.yaml\n");
  const std::string file =
      folder.Write("s.yaml", absl::StrCat(absl::StartsWith(text, "base:") ||
                                                  absl::StartsWith(text, "!")
                                              ? ""
                                              : kBase,
                                          absl::StripPrefix(text, "!"), "\n"));
  std::vector<std::string> lines;
  const auto answer = [&]() -> absl::Status {
    PACELINE_ASSIGN_OR_RETURN(const Study study, ReadStudyFile(file, {}));
    PACELINE_ASSIGN_OR_RETURN(const std::vector<Trial> trials, TrialsOf(study));
    PACELINE_ASSIGN_OR_RETURN(std::vector<TrialJob> jobs,
                              JobsOf(study, trials, &lines));
    if (study.race.has_value()) {
      PACELINE_RETURN_IF_ERROR(BeginRace(study, jobs).status());
    }
    for (const TrialJob& job : jobs) {
      const TrainSpec& train = job.spec.train;
      lines.push_back(
          job.why.empty()
              ? absl::StrCat(job.spec.name, ": seed ", train.seed, ", batch ",
                             train.batch, ", steps ", train.steps)
              : absl::StrCat(trials[job.trial].label, ": ", job.why));
    }
    return absl::OkStatus();
  };
  if (const absl::Status wrong = answer(); !wrong.ok()) {
    EXPECT_EQ(ExitCodeFor(wrong), kExitUsage);
    lines.emplace_back(wrong.message());
  }
  return absl::StrReplaceAll(absl::StrJoin(lines, "\n"),
                             {{folder.path() + "/", ""}});
}

TEST(StudyFile, MakesJobsOrSaysEverythingThatIsWrongWithItsLine) {
  ExpectAnswers("client/study_files", StudyAnswer);
}

TEST(StudyFile, WantsANameWhereThatOfTheFileIsNone) {
  const TemporaryFolder folder;
  const std::string file =
      folder.Write(absl::StrCat(std::string(65, 's'), ".yaml"), kBase);

  EXPECT_THAT(ReadStudyFile(file, {}).status().message(),
              HasSubstr("give it a name"));
}

TEST(StudyFile, QuotesOnlyTheBeginningOfALongValue) {
  const std::string huge(100'000, '7');
  for (const std::string& text :
       {absl::StrCat("vary: {train.batch: [[[", huge, ", 1]]]}"),
        absl::StrCat("vary: {train.batch: [x", huge, "]}"),
        absl::StrCat("repeat: ", huge)}) {
    const auto study = Read(absl::StrCat(kBase, text, "\n"));

    EXPECT_THAT(study.status().message(), HasSubstr("7..."));
    EXPECT_LT(study.status().message().size(), 400);
  }
}

// Thirty aliases, each of twice the one before.
TEST(StudyFile, CutsAValueThatAliasesMakeEndless) {
  std::string text = "vary: {train.batch: [[&a0 [7]";
  for (int i = 1; i <= 30; ++i) {
    absl::StrAppend(&text, ", &a", i, " [*a", i - 1, ", *a", i - 1, "]");
  }

  for (const std::string& value :
       {absl::StrCat(text, "]]}"),
        std::string("vary: {train.batch: [&a [*a]]}"),
        std::string("trials: [{train.batch: &a [*a]}]")}) {
    const auto study = Read(absl::StrCat(kBase, value, "\n"));

    EXPECT_EQ(ExitCodeFor(study.status()), kExitUsage);
    EXPECT_LT(study.status().message().size(), 400);
  }
}

TEST(StudyFile, ThoseToStartFromMakeJobs) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat(PACELINE_SOURCE_DIR, "/deploy/studies"))) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const auto study = ReadStudyFile(entry.path(), {});
    ASSERT_TRUE(study.ok()) << study.status();
    if (study->plan.has_value()) continue;  // plan_study_test.cc runs it
    std::vector<TrialJob> jobs = Jobs(*study);
    if (study->race.has_value()) {
      EXPECT_TRUE(BeginRace(*study, jobs).ok()) << entry.path();
    }
    for (const TrialJob& job : jobs) EXPECT_EQ(job.why, "") << entry.path();
  }
  EXPECT_GE(files, 4);
}

TEST(StudyFile, ReadsItsBaseBesideIt) {
  const TemporaryFolder folder;
  folder.Write("job.yaml", "model: {name: mlp}\ndata: {name: synthetic}\n");
  const auto study = ReadStudyFile(folder.Write("lab.yaml", "base: job.yaml\n"),
                                   {"train.steps=7"});

  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(study->name, "lab");
  const auto jobs = Jobs(*study);
  EXPECT_EQ(jobs[0].spec.model.name, "mlp");
  EXPECT_EQ(jobs[0].spec.train.steps, 7);
  EXPECT_EQ(study->measure.size(), 3) << "the usual ones";
}

// --- the command ------------------------------------------------------------

// A coordinator with workers.  A job runs when it is asked about for the first
// time and ends at the second time.
class StudyMesh final : public FakeControlClient {
 public:
  StudyMesh() { workers = IdleWorkers({"w1", "w2"}); }

  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      const v1::SubmitJobRequest& request) override {
    submitted.push_back(request);
    const bool bad = absl::StrContains(request.spec().name(), "stages=8");
    if (bad) return absl::ResourceExhaustedError("no worker has the memory");
    v1::SubmitJobResponse answer;
    if (request.dry_run() && busy) {
      answer.add_notes("queued: it waits for 1 more worker");
      return answer;
    }
    if (request.dry_run()) {
      answer.mutable_estimate()->set_step_seconds(0.5);
      *answer.mutable_stages() = Placed({{0, 0, 8, 1, "w1"}});
      return answer;
    }
    if (away > 0 && --away == 0) return absl::UnavailableError("it is away");
    for (const auto& [id, job] : held) {
      if (job.request_id() == request.request_id()) answer.set_id(id);
    }
    if (answer.id() == 0) {
      answer.set_id(++last);
      v1::Job& job = held[last];
      job = SucceededJob();
      job.set_id(last);
      job.set_request_id(request.request_id());
      job.set_state(v1::JOB_STATE_QUEUED);
      *job.mutable_spec() = request.spec();
    }
    most_open = std::max(most_open, Open());
    return answer;
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(int) override {
    v1::ListJobsResponse listed;
    for (const auto& [id, job] : held) *listed.add_jobs() = job;
    return listed;
  }
  absl::StatusOr<v1::Job> GetJob(int64_t id, int, int64_t) override {
    if (id == deleted) held.erase(id);
    if (!held.contains(id)) return absl::NotFoundError("no such job");
    v1::Job& job = held[id];
    const std::string& name = job.spec().name();
    if (absl::StrContains(name, "stages=7")) {
      job.set_why("waits for 5 more workers");
    } else if (job.state() == v1::JOB_STATE_QUEUED) {
      job.set_state(v1::JOB_STATE_RUNNING);
    } else if (job.state() == v1::JOB_STATE_RUNNING) {
      const bool fails = absl::StrContains(name, "stages=3");
      job.set_state(fails ? v1::JOB_STATE_FAILED : v1::JOB_STATE_SUCCEEDED);
      if (fails) job.set_why("a file is missing");
    }
    return job;
  }
  absl::StatusOr<v1::Job> StopJob(int64_t id) override { return held[id]; }
  absl::Status DeleteJob(int64_t id) override {
    held.erase(id);
    return absl::OkStatus();
  }
  int Open() const {
    int open = 0;
    for (const auto& [id, job] : held) open += !HasEnded(job.state());
    return open;
  }

  std::map<int64_t, v1::Job> held;
  int64_t last = 0;
  int most_open = 0;
  bool busy = false;
  int64_t deleted = 0;  // before anybody asks about it
  int away = 0;         // the so many-th submission gets no answer
};

class StudyScript final : public CommandScript {
 public:
  StudyScript() : CommandScript(std::make_unique<StudyMesh>()) {
    folder().Write("job.yaml",
                   "model: {name: lenet}\ndata: {name: synthetic}\n"
                   "train: {steps: 20, batch: 32, micro_batch: 8, seed: 5}\n");
  }

 private:
  StudyMesh& mesh() { return static_cast<StudyMesh&>(client()); }

  // busy | deleted JOB | away N
  bool Do(const std::string& verb) override {
    if (verb == "busy") {
      mesh().busy = true;
    } else if (verb == "deleted") {
      mesh().deleted = Number(1);
    } else if (verb == "away") {
      mesh().away = static_cast<int>(Number(1));
    } else {
      return CommandScript::Do(verb);
    }
    return true;
  }
  void TellCalls() override {
    CommandScript::TellCalls();
    Say(absl::StrCat("the mesh has ", mesh().held.size(), " jobs, ",
                     mesh().Open(), " open, at most ", mesh().most_open));
  }
};

TEST(StudyCommand, AnswersACommandLine) {
  ExpectAnswers("client/studies", [](const std::string& script) {
    return StudyScript().Play(script);
  });
}

}  // namespace
}  // namespace paceline
