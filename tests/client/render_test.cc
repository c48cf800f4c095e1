// Jobs and workers as tables, documents and plots; reports and their charts.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/render/report.h"
#include "client/render/sections.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"
#include "tests/support/says.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

v1::ListJobsResponse Listed(const v1::Job& job) {
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = job;
  return jobs;
}

json JobJson(const v1::Job& job) {
  return json::parse(ToJson(ToDocument(job, /*with_curve=*/true)));
}

const struct {
  const char* what;
  const char* merged;  // into the job, after the change
  void (*change)(v1::Job&) = [](v1::Job&) {};
} kJobs[] = {
    {"has succeeded", ""},
    {"is queued: what is not there yet is null",
     "id: 1 state: JOB_STATE_QUEUED", [](v1::Job& job) { job.Clear(); }},
    {"has recovered", R"(
         floor_step: 40
         recovery { recoveries: 1 why: "w3 is lost" from_step: 40 again: 6
                    seconds { leave: 0.25 } })"},
    {"of inference has recovered: it counts micro-batches", R"(
         spec { kind: "infer" } floor_step: 40 step: 24 steps: 25
         recovery { recoveries: 1 why: "w3 is lost" from_step: 40 again: 6 }
         evaluations { loss: 0.5 accuracy: 0.75 samples: 8 })",
     [](v1::Job& job) { job.clear_evaluations(); }},
    {"has losses that are not finite, and a skipped step",
     R"(skipped_steps: 3 why: "3 of 20 steps were skipped")",
     [](v1::Job& job) {
       *job.mutable_curve() = Losses({{1, NAN, true}, {2, 0.5, false}});
       job.mutable_curve(1)->set_unix_ms(1'700'000'000'123);
     }},
    {"has no finite loss", "",
     [](v1::Job& job) {
       *job.mutable_curve() = Losses({{1, NAN, true}, {2, NAN, true}});
     }},
    {"goes on without blocks: of a fault, and of a worker that is gone", R"(
         spec { faults { kind: "skip_stage" block: 2 } }
         skipped_blocks: 1)"},
    {"goes on from a checkpoint, and has some", R"(
         resumed { job: 3 step: 40 } checkpoints { cut { step: 60 } }
         checkpoints { cut { step: 80 } })"},
    {"has predicted beside measured times", R"(
         estimate { step_seconds: 0.5 samples_per_second: 128
                    bubble_share: 0.25 stage_seconds: [0.01, 0.02]
                    measured: true source: "layer times measured on w1" }
         drift { stage: 0 predicted_seconds: 0.01 measured_seconds: 0.012
                 worker_id: 5 layer_seconds: 0.008 }
         drift { stage: 1 predicted_seconds: 0.02 worker_id: 6 }
         step_seconds: 0.6 stage_times { micro_batches: 7 })"},
    {"has no stages yet", "", [](v1::Job& job) { job.clear_workers(); }},
    {"has replicas of a stage, with what they computed", R"(
         workers { id: 5 name: "w1"
                   stages { stage: 0 worker_id: 5 share: 3 } }
         workers { id: 6 name: "w2"
                   stages { stage: 1 worker_id: 6 share: 1 } }
         workers { id: 7 name: "w3"
                   stages { stage: 0 worker_id: 7 share: 1 } }
         drift { stage: 0 worker_id: 5 }
         drift { stage: 0 worker_id: 7 }
         drift { stage: 1 worker_id: 6 }
         stage_times { micro_batches: 12 }
         stage_times { micro_batches: 4 })",
     [](v1::Job& job) { job.Clear(); }},
    {"has stages without a flush: staleness and versions", R"(
         versions { stage: 0 updates: 100 skipped_updates: 1 staleness: 250
                    versions: 3 version_bytes: 3145728 }
         versions { stage: 1 updates: 100 versions: 1
                    version_bytes: 1024 })"},
    {"has a peak of memory beside the planner's", "",
     [](v1::Job& job) {
       v1::JobWorker& worker = *job.mutable_workers(0);
       worker.set_predicted_memory_bytes(2 << 20);
       worker.mutable_run()->set_peak_memory_bytes(3 << 20);
       *job.add_workers() = v1::JobWorker(worker);
       job.mutable_workers(1)->set_name("w2");
       job.mutable_workers(1)->clear_run();
     }},
    {"has a reason with control characters", R"(why: "evil\n\033[2Jname: x")"},
    {"has a reason of several clauses",
     R"(why: "waits for w9; the same job would fail; put that right")"},
    {"has a reason that is long", "",
     [](v1::Job& job) { job.set_why(std::string(100, 'x')); }},
};

// The golden text has the table of each job, its line in a list, its outcome,
// and where its document differs from that of the first job.
TEST(Job, IsShownAsATableALineAndADocument) {
  Golden golden("client/job");
  const json first = JobJson(SucceededJob());
  for (const auto& test : kJobs) {
    v1::Job job = SucceededJob();
    test.change(job);
    job.MergeFrom(Parse<v1::Job>(test.merged));
    std::string text =
        absl::StrCat(RenderJob(job, {.columns = 10, .rows = 2}), "\n",
                     RenderJobs(Listed(job)), "\n", RenderOutcome(job), "\n");
    const json document = JobJson(job);
    if (document == first) absl::StrAppend(&text, document.dump(2), "\n");
    for (const json& change : json::diff(first, document)) {
      absl::StrAppend(&text, change.dump(), "\n");
    }
    golden.Add(absl::StrCat("A job that ", test.what), text);
  }
}

TEST(Tables, HaveMoreColumnsWhenWide) {
  v1::Job job = RunningJob(1, 20);
  job.set_why("waits for w9; the same job would fail; put that right first");
  *job.add_workers() = Parse<v1::JobWorker>(R"(name: "w1")");
  *job.add_workers() = Parse<v1::JobWorker>(R"(name: "w2")");
  v1::ListWorkersResponse workers = IdleWorkers({"w1"});
  *workers.add_workers() = Parse<v1::Worker>(R"(
    id: 2 state: WORKER_STATE_BUSY job: 3 stages: 1
    registration { name: "w2" pid: 4711 address: "127.0.0.1:40001" })");

  Golden golden("client/tables");
  for (const bool wide : {false, true}) {
    const char* const how = wide ? ", wide" : "";
    golden.Add(absl::StrCat("jobs", how), RenderJobs(Listed(job), wide));
    golden.Add(absl::StrCat("workers", how), RenderWorkers(workers, wide));
  }
  golden.Add("the document of a worker",
             ToJson(ToDocument(workers.workers(1)), /*pretty=*/true) + "\n");
}

TEST(Plot, RisesAndFallsWithTheLoss) {
  const LossCurve curve = Losses({{1, 1}, {2, 2}, {3, 3}, {4, 4}});

  EXPECT_EQ(PlotLoss(curve, {.columns = 4, .rows = 2, .unicode = true}),
            "         4 |  ▃█\n"
            "         1 |▁▆██\n"
            "            step 1 4\n");
}

TEST(Plot, LeavesOutWhatIsNotFinite) {
  const LossCurve curve = Losses({{1, 1}, {2, NAN}, {3, INFINITY}, {4, 2}});

  const std::string plot = PlotLoss(curve, {.columns = 4, .rows = 2});

  EXPECT_THAT(plot, HasSubstr("         2 |   #\n"));
}

TEST(Plot, SaysWhenNoLossIsFinite) {
  EXPECT_EQ(PlotLoss(Losses({{1, NAN}, {2, INFINITY}}), {}),
            "no finite loss\n");
  EXPECT_EQ(PlotLoss(Losses({{1, NAN}}), {}), "no finite loss\n");
}

TEST(Plot, NeedsTwoPointsInTheOrderOfTheirSteps) {
  EXPECT_EQ(PlotLoss(Losses({}), {}), "");
  EXPECT_EQ(PlotLoss(Losses({{1, 1}}), {}), "");
  EXPECT_EQ(PlotLoss(Losses({{9, 1}, {1, 2}}), {}), "");
  EXPECT_NE(PlotLoss(Losses({{1, 1}, {2, 1}}), {}), "");
  EXPECT_NE(PlotLoss(Losses({{1, 1}, {99, 5}, {10, 2}}), {}), "");
}

constexpr char kHostile[] = "<b>\"x\"&'y'</b>";

// How often `part` stands in `text`.
int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

Report WithRows(size_t rows) {
  Section section = {
      .name = "loss", .title = "Loss", .titles = {"job", "step"}};
  for (size_t row = 0; row < rows; ++row) {
    section.rows.push_back({"7", absl::StrCat("row ", row)});
  }
  Report report;
  report.sections.push_back(section);
  return report;
}

TEST(EscapeHtml, LeavesNoMarkupAndNoControlCharacter) {
  EXPECT_EQ(EscapeHtml(kHostile),
            "&lt;b&gt;&quot;x&quot;&amp;&#39;y&#39;&lt;/b&gt;");
  EXPECT_EQ(EscapeHtml("a\x01"
                       "b\x1b[31m\xff"),
            "a?b?[31m\xEF\xBF\xBD");
}

// --- Charts -----------------------------------------------------------------

TEST(LineChart, LeavesGapsWhereNothingIsFinite) {
  const LineChart chart = {
      .what = "loss",
      .x_name = "step",
      .lines = {{"7", {{1, NAN}, {2, 1}, {3, HUGE_VAL}, {4, 2}, {5, 3}}}}};

  const std::string svg = RenderLineChart(chart);

  // A lone point, then a line of two.
  EXPECT_EQ(Count(svg, "h0"), 2);
  EXPECT_THAT(svg, HasSubstr("h0L708.0 12.0\""));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(LineChart, IsEmptyWithoutAPoint) {
  EXPECT_EQ(RenderLineChart({.what = "loss", .marks = {{3, "here"}}}), "");
  EXPECT_EQ(RenderLineChart({.what = "loss", .lines = {{"7", {{1, NAN}}}}}),
            "");
}

TEST(LineChart, DrawsOneValueAndHugeValues) {
  for (const auto& points : {std::vector<std::pair<double, double>>{{1, 0}},
                             {{1, 5}, {2, 5}},
                             {{1, -9e99}, {2, 9e99}},
                             {{1e15, 1}, {1e15 + 2, 2}}}) {
    const std::string svg = RenderLineChart({.lines = {{"7", points}}});

    EXPECT_THAT(svg, HasSubstr("class=\"line c0\""));
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(LineChart, ShowsMarksBesideTheLinesToo) {
  const std::string svg = RenderLineChart(
      {.lines = {{"7", {{10, 1}, {20, 2}}}}, .marks = {{0, "attempt 2"}}});

  EXPECT_THAT(svg, Says("attempt 2", "M64.0 12.0L64.0 252.0\" class=\"mark\""));
}

TEST(LineChart, DashesLinesThatShareAColor) {
  LineChart chart;
  for (int i = 0; i < 9; ++i) chart.lines.push_back({"7", {{1, 1}}});

  EXPECT_EQ(Count(RenderLineChart(chart), "class=\"line c0"), 2);
  EXPECT_EQ(Count(RenderLineChart(chart), "class=\"line c0 dashed\""), 1);
}

TEST(BarChart, LaysBarsOnOneAxisAndNamesThoseWithRoom) {
  const BarChart chart = {.rows = {"w1", "w2"},
                          .legend = {"forward", "backward"},
                          .bars = {{0, 0, 50, 0, "half"},
                                   {1, 50, 49.9, 1, "later"},
                                   {1, 99.9, 0.1, 1, "thin"}}};

  const std::string svg = RenderBarChart(chart);

  EXPECT_THAT(svg, HasSubstr("<rect x=\"132.0\" y=\"14.0\" width=\"288.00\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"420.0\" y=\"38.0\" width=\"287.42\""));
  EXPECT_EQ(Count(svg, ">half<"), 2) << "a tooltip and a text";
  EXPECT_EQ(Count(svg, ">thin<"), 1) << "a tooltip";
}

TEST(BarChart, IsEmptyWithoutABar) {
  EXPECT_EQ(RenderBarChart({.rows = {"w1"}}), "");
}

TEST(Charts, EscapeAllThatTheyAreGiven) {
  const LineChart lines = {.what = kHostile,
                           .x_name = kHostile,
                           .lines = {{kHostile, {{1, 1}, {2, 2}}}},
                           .marks = {{1, kHostile}}};
  const BarChart bars = {.what = kHostile,
                         .axis = kHostile,
                         .rows = {kHostile},
                         .legend = {kHostile},
                         .bars = {{0, 0, 1, 0, kHostile}}};

  for (const std::string& svg :
       {RenderLineChart(lines), RenderBarChart(bars)}) {
    EXPECT_THAT(svg, HasSubstr("&lt;b&gt;"));
    EXPECT_THAT(svg, Not(HasSubstr("<b>")));
    EXPECT_THAT(svg, Not(HasSubstr("\"x\"")));
  }
}

// --- Forms ------------------------------------------------------------------

TEST(Html, EscapesAllThatItIsGiven) {
  Report report = WithRows(0);
  report.title = kHostile;
  report.notes = {kHostile};
  report.sections[0].title = kHostile;
  report.sections[0].notes = {kHostile};
  report.sections[0].titles = {kHostile};
  report.sections[0].rows = {{kHostile}};

  const std::string html = HtmlOf(report);

  EXPECT_EQ(Count(html, "&lt;b&gt;"), 7) << "the title stands twice";
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
}

TEST(Html, FoldsALongTableAndLeavesOutTheMiddleOfAVeryLongOne) {
  EXPECT_THAT(HtmlOf(WithRows(0)), HasSubstr("Nothing to show"));
  EXPECT_THAT(HtmlOf(WithRows(kMostOpenRows)), Not(HasSubstr("<details>")));
  EXPECT_THAT(HtmlOf(WithRows(kMostOpenRows + 1)), HasSubstr("<details>"));
  EXPECT_THAT(HtmlOf(WithRows(kMostHtmlRows)), Not(HasSubstr("left out")));

  const std::string html = HtmlOf(WithRows(10'000));

  EXPECT_THAT(html, HasSubstr("8000 rows are left out"));
  EXPECT_EQ(Count(html, ">row "), static_cast<int>(kMostHtmlRows));
  EXPECT_THAT(html, Says(">row 999<", ">row 9000<", ">row 9999<"));
  EXPECT_THAT(html, Not(HasSubstr(">row 1000<")));
}

TEST(Csv, HasEveryRowBehindTheNameOfItsTable) {
  Report report = WithRows(3000);
  report.sections[0].rows[0] = {"a,b", "say \"no\"\nor not"};

  const std::string csv = CsvOf(report);

  EXPECT_EQ(csv.rfind("loss,job,step\nloss,\"a,b\",\"say \"\"no\"\" or not\"\n"
                      "loss,7,row 1\n",
                      0),
            0u)
      << csv.substr(0, 100);
  EXPECT_EQ(Count(csv, "\nloss,"), 3000);
  EXPECT_EQ(CsvOf(WithRows(0)), "");
}

TEST(Csv, HasNoCellThatASpreadsheetTakesForAFormula) {
  Report report = WithRows(1);
  report.sections[0].rows = {{"=1+1", "-inf"}, {"@a,b", "+2"}, {"-x", "a=b"}};

  EXPECT_THAT(CsvOf(report), Says("loss,'=1+1,-inf\n", "loss,\"'@a,b\",+2\n",
                                  "loss,'-x,a=b\n"));
}

TEST(Forms, AlignAColumnAsNumbersOnlyWhereAllItsCellsAre) {
  Report report = WithRows(1);
  report.sections[0].rows = {{"1e5", ""}, {"train", "nan"}, {"2", "3"}};

  EXPECT_THAT(LatexOf(report), HasSubstr("{tabular}{lr}"));
  EXPECT_THAT(HtmlOf(report), Says("<td>1e5<", "<td class=\"n\">nan<"));
}

TEST(Latex, EscapesAndAlignsCells) {
  Report report = WithRows(1);
  report.sections[0].rows = {{"50% of {a_b} & $c #1", "2.5"},
                             {"~\\^<>|", "-3"}};

  const std::string latex = LatexOf(report);

  EXPECT_THAT(latex, Says("\\begin{tabular}{lr}", "\\label{tab:loss}",
                          "50\\% of \\{a\\_b\\} \\& \\$c \\#1 & 2.5 \\\\\n",
                          "\\texttt{\\symbol{126}}\\texttt{\\symbol{92}}"));
}

TEST(Latex, LeavesOutALongTableAndSaysSo) {
  const std::string latex = LatexOf(WithRows(kMostOpenRows + 1));

  EXPECT_THAT(latex, Says("% loss: 41 rows", "--format csv"));
  EXPECT_THAT(latex, Not(HasSubstr("tabular")));
  EXPECT_THAT(LatexOf(WithRows(0)), Not(HasSubstr("loss")));
}

}  // namespace
}  // namespace paceline
