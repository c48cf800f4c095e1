#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/job/job.h"
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

// A lenet in two stages, which take 30 and 60 ms a micro-batch.
v1::Job TwoStages(int64_t id) {
  v1::Job job = SucceededJob();
  job.set_id(id);
  job.MergeFrom(Parse<v1::Job>(R"(
    attempt: 2
    attempts { attempt: 1 } attempts { attempt: 2 base { attempt: 1 step: 5 } }
    recovery { recoveries: 1 replayed_steps: 3 why: "w3 is lost" from_step: 5
               seconds { detect: 0.25 } }
    estimate { step_seconds: 0.2 source: "measured on w1" }
    step_seconds: 0.25
    drift { stage: 0 worker_id: 1 predicted_seconds: 0.02
            measured_seconds: 0.03 }
    drift { stage: 1 worker_id: 2 measured_seconds: 0.06 }
    workers { id: 2 name: "w2" run {
      peak_memory_bytes: 2048
      seconds { data: 1 forward: 2 evaluation: 3 receive_wait: 1.5 wall: 10 }
    } })"));
  *job.mutable_workers(0)->mutable_stages() = Placed({{0, 0, 4, 1, "w1"}});
  *job.mutable_workers(1)->mutable_stages() = Placed({{1, 4, 8, 2, "w2"}});
  return job;
}

v1::Job QueuedJob() {
  v1::Job job;
  job.set_id(3);
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_why("it waits for workers");
  *job.mutable_spec() = ToProto(LenetSpec(16));
  return job;
}

struct ReportBed : CommandBed {
  explicit ReportBed(const std::vector<v1::Job>& jobs) {
    for (const v1::Job& job : jobs) {
      client.job_answers.push_back(job);
      options.jobs.push_back(absl::StrCat(job.id()));
    }
    client.workers = IdleWorkers({"w1", "w2"});
    client.workers->set_unix_ms(1'120'000);
  }
  std::string Print(const std::string& format) {
    options.format = format;
    EXPECT_EQ(Code(ReportCommand(context, options)), kExitOk) << err.str();
    return out.str();
  }
  ExitCode Fail(const std::string& format = "html") {
    options.format = format;
    const ExitCode code = Code(ReportCommand(context, options));
    EXPECT_EQ(out.str(), "");
    return code;
  }
  ReportOptions options;
};

void AddEvent(CommandBed& bed, const std::string& kind,
              const std::string& text) {
  v1::JobEvent& event = *bed.client.events.add_events();
  event.set_sequence(bed.client.events.events_size());
  event.set_kind(kind);
  event.set_text(text);
}

// Without the simulated step, of which there is a test below.
TEST(ReportCommand, PrintsTablesAsCsv) {
  v1::Job stopped = QueuedJob(), odd = TwoStages(7);
  stopped.set_state(v1::JOB_STATE_STOPPED);
  *odd.mutable_curve() = Losses({{1, -NAN, true}, {2, 0.5}, {3, HUGE_VAL}});
  const std::pair<const char*, std::vector<v1::Job>> kCases[] = {
      {"two jobs side by side; no event that every job has",
       {TwoStages(7), stopped}},
      {"a job that is named twice has one column",
       {TwoStages(7), TwoStages(7)}},
      {"losses that are not finite", {odd}}};
  Golden golden("client/report");
  for (const auto& [what, jobs] : kCases) {
    ReportBed bed(jobs);
    AddEvent(bed, "running", "runs");
    AddEvent(bed, "attempt", "attempt 1 begins from the seed");
    AddEvent(bed, "attempt", "attempt 2 begins from step 5");
    AddEvent(bed, "lost", "w3 is lost");

    std::vector<std::string> lines = absl::StrSplit(bed.Print("csv"), '\n');
    std::erase_if(lines, [](const std::string& line) {
      return absl::StartsWith(line, "step,");
    });

    golden.Add(what, absl::StrJoin(lines, "\n"));
  }
  EXPECT_THAT(ReportBed({odd}).Print("html"), Not(HasSubstr("h0Lnan")));
}

// The tables once had the newest 1,000 evaluations and 1,000 steps.
TEST(ReportCommand, HasAllRowsAndAChartOfSome) {
  v1::Job job = TwoStages(7);
  job.clear_curve();
  job.clear_evaluations();
  for (int step = 1; step <= 5000; ++step) {
    *job.add_curve() = Loss({step, 1.0 / step});
    job.add_evaluations()->set_step(step);
  }
  ReportBed bed({job});
  const std::string csv = bed.Print("csv");

  EXPECT_THAT(bed.client.asked_whole, testing::ElementsAre(7));
  const auto rows = [&](const char* table) {
    return std::ssize(std::vector<absl::string_view>(
               absl::StrSplit(csv, absl::StrCat("\n", table, ",7,")))) -
           1;
  };
  EXPECT_EQ(rows("loss"), 5000);
  EXPECT_EQ(rows("accuracy"), 5000);
  const std::string html = ReportBed({job}).Print("html");
  const size_t line = html.find("\" class=\"line");
  ASSERT_NE(line, std::string::npos);
  const size_t begin = html.rfind('M', line);
  const auto points =
      std::count(html.begin() + begin, html.begin() + line, 'L');
  EXPECT_GT(points, 500);
  EXPECT_LT(points, 1001);
}

TEST(ReportCommand, AStepTakesTheTimesThatItsStagesTook) {
  const std::string csv = ReportBed({TwoStages(7)}).Print("csv");

  std::map<std::string, double> seconds;  // by stage
  std::map<std::string, int> forwards;
  for (const absl::string_view line : absl::StrSplit(csv, '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    if (cells[0] != "step" || (cells[4] != "F" && cells[4] != "B")) continue;
    double each = 0;
    ASSERT_TRUE(absl::SimpleAtod(cells[7], &each)) << line;
    seconds[cells[3]] += each;
    forwards[cells[3]] += cells[4] == "F";
  }
  EXPECT_EQ(forwards, (std::map<std::string, int>{{"0", 4}, {"1", 4}}));
  EXPECT_NEAR(seconds["0"], 4 * 0.03, 1e-5);
  EXPECT_NEAR(seconds["1"], 4 * 0.06, 1e-5);
}

TEST(ReportCommand, ThePageHasChartsAndMarksWhereAnAttemptBegan) {
  const std::string html =
      ReportBed({TwoStages(7), TwoStages(8)}).Print("html");

  EXPECT_THAT(html, Says("<title>Report of job 7 first, job 8 first</title>",
                         "Training loss over steps", "job 8, attempt 2",
                         "share of each worker&#39;s time",
                         "ms of a step of job 8 first",
                         "times that 2 of 2 stages took</p>"));
  EXPECT_THAT(html, Not(HasSubstr("http")));
}

TEST(ReportCommand, ATraceHasTheWorkersOfAllJobs) {
  const json trace =
      json::parse(ReportBed({TwoStages(7), TwoStages(8)}).Print("perfetto"));

  std::vector<std::string> names;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(names, testing::ElementsAre("job 7: w1", "job 7: w2", "job 8: w1",
                                          "job 8: w2"));
}

TEST(ReportCommand, AnEmptyJobHasAReportAndNoStep) {
  EXPECT_THAT(ReportBed({QueuedJob()}).Print("html"),
              Says("Report of job 3 lenet", "it waits for workers",
                   "Job 3: it has no place on workers", "has not ended"));
  EXPECT_THAT(ReportBed({QueuedJob()}).Print("latex"),
              Says("\\label{tab:summary}", "queued"));

  ReportBed bed({QueuedJob()});
  EXPECT_EQ(bed.Fail("perfetto"), kExitFailed);
  EXPECT_THAT(bed.err.str(), Says("no step to draw", "no place on workers"));
}

TEST(ReportCommand, ARunningJobSaysWhenThatWas) {
  v1::Job job = TwoStages(7);
  job.set_state(v1::JOB_STATE_RUNNING);
  job.clear_ended_unix_ms();

  const std::string html = ReportBed({job}).Print("html");

  EXPECT_THAT(html, Says("has not ended", HumanTime(1'120'000),
                         "<td>seconds</td><td>120</td>"));
}

TEST(ReportCommand, AFailedJobSaysWhy) {
  v1::Job job = TwoStages(7);
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_why("data.path is missing");

  EXPECT_THAT(ReportBed({job}).Print("html"),
              HasSubstr("data.path is missing"));
}

TEST(ReportCommand, DataParallelJobsAndUnknownModelsSayWhyThereIsNoStep) {
  v1::Job parallel = TwoStages(7);
  parallel.mutable_spec()->mutable_aggregation()->set_mode("rolling");
  v1::Job unknown = TwoStages(8);
  unknown.mutable_spec()->mutable_model()->set_name("of tomorrow");
  v1::Job other = TwoStages(9);
  other.mutable_workers(1)->mutable_stages(0)->set_last_layer(100);

  EXPECT_THAT(ReportBed({parallel, unknown, other}).Print("html"),
              Says("Job 7: every member holds the whole model", "of tomorrow",
                   "Job 9: "));
}

TEST(ReportCommand, NamesWithHtmlAreText) {
  v1::Job job = TwoStages(7);
  job.mutable_spec()->set_name("<script>alert(1)</script>");
  job.mutable_workers(0)->set_name("\"><img src=x onerror=alert(1)>");
  ReportBed bed({job, job});
  AddEvent(bed, "lost", "</table><iframe src='//x'>");

  const std::string html = bed.Print("html");

  EXPECT_THAT(html, Says("&lt;script&gt;", "&lt;img", "&lt;iframe"));
  for (const char* markup : {"<script", "<img", "<iframe", "\"\">"}) {
    EXPECT_THAT(html, Not(HasSubstr(markup)));
  }
}

TEST(ReportCommand, TenThousandEventsAreAllInTheTableAndFewOnThePage) {
  ReportBed csv({TwoStages(7)}), html({TwoStages(7)});
  for (int i = 0; i < 10'000; ++i) {
    for (ReportBed* const bed : {&csv, &html}) AddEvent(*bed, "lost", "w3");
  }

  const std::vector<std::string> parts =
      absl::StrSplit(csv.Print("csv"), "\nfaults,7,");
  EXPECT_EQ(parts.size(), 10'001u);
  EXPECT_THAT(html.Print("html"), HasSubstr("8000 rows are left out"));
  EXPECT_LT(html.out.str().size(), 500'000u);
}

TEST(ReportCommand, AnUnknownJobIsNotFound) {
  ReportBed bed({TwoStages(7)});
  bed.client.job_answers.push_back(absl::NotFoundError("there is no job 99"));
  bed.options.jobs.push_back("99");

  EXPECT_EQ(bed.Fail(), kExitNotFound);
  EXPECT_THAT(bed.err.str(), HasSubstr("no job 99"));
}

TEST(ReportCommand, WritesAFileInsteadOfStandardOutput) {
  const TemporaryFolder folder;
  ReportBed bed({TwoStages(7)});
  bed.options.file = folder.Path("r.html");

  EXPECT_EQ(bed.Print("html"), "");
  EXPECT_THAT(bed.err.str(), HasSubstr("r.html"));
  EXPECT_THAT(folder.Read("r.html"), HasSubstr("</html>"));
}

TEST(ReportCommand, AFileThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  for (const auto& [file, why] :
       {std::pair(folder.Path("none/r.html"), "No such file"),
        std::pair(folder.path(), "no regular file"),
        std::pair(folder.Path("pipe"), "no regular file")}) {
    ReportBed bed({TwoStages(7)});
    bed.options.file = file;

    EXPECT_EQ(bed.Fail(), kExitUsage);
    EXPECT_THAT(bed.err.str(), Says("cannot write", file, why));
  }
}

}  // namespace
}  // namespace paceline
