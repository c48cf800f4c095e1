#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/job/watch.h"
#include "client/values/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fakes.h"
#include "tests/support/golden.h"

namespace paceline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two workers that train in two stages, an idle one and a lost one.
v1::MeshUpdate WholeMesh() {
  v1::MeshUpdate mesh = Parse<v1::MeshUpdate>(R"(
    whole: true unix_ms: 1000 version: "1"
    job_counts { key: "queued" value: 31 } job_counts { key: "running" value: 1 }
    events { unix_ms: 500 job: 7 kind: "running" text: "on w1, w2" })");
  for (int i = 1; i <= 2; ++i) {
    v1::Worker& worker = *mesh.add_workers();
    worker = AWorker(i, absl::StrCat("w", i), v1::WORKER_STATE_BUSY);
    worker.set_job(7);
    worker.add_stages(i - 1);
  }
  *mesh.add_workers() = AWorker(3, "w3");
  *mesh.add_workers() = AWorker(4, "w4", v1::WORKER_STATE_LOST);
  v1::Job& job = *mesh.add_jobs();
  job = RunningJob(10, 40);
  job.set_loss(0.5);
  job.MergeFrom(Parse<v1::Job>(R"(
    workers { id: 1 name: "w1"
      run { seconds { forward: 2 backward: 3 receive_wait: 4 wall: 10 } } }
    workers { id: 2 name: "w2" }
    drift { stage: 0 worker_id: 1 measured_seconds: 0.012 }
    links { from: "w1" to: "w2" capacity_bytes_per_second: 1048576
            sent_bytes_per_second: 262144 })"));
  *job.mutable_workers(0)->mutable_stages() = Placed({{0, 0, 4, 1, "w1"}});
  *job.mutable_workers(1)->mutable_stages() = Placed({{1, 4, 8, 2, "w2"}});
  return mesh;
}

v1::MeshUpdate At(int64_t unix_ms) {
  v1::MeshUpdate update;
  update.set_unix_ms(unix_ms);
  return update;
}

MeshView ViewOf(const v1::MeshUpdate& update) {
  MeshView view;
  view.Merge(update);
  return view;
}

std::string TextOf(const std::vector<ScreenLine>& lines) {
  std::string text;
  for (const ScreenLine& line : lines) absl::StrAppend(&text, line.text, "\n");
  return text;
}

TEST(MeshView, TakesWhatChangedAndDropsWhatIsForgotten) {
  MeshView view = ViewOf(WholeMesh());
  v1::MeshUpdate update = At(2000);
  *update.add_workers() = AWorker(3, "w3", v1::WORKER_STATE_LOST);
  update.add_forgotten_workers(4);
  update.add_forgotten_jobs(7);
  view.Merge(update);

  EXPECT_EQ(view.workers.size(), 3);
  EXPECT_EQ(view.workers[3].state(), v1::WORKER_STATE_LOST);
  EXPECT_TRUE(view.jobs.empty());

  // It is told of no more, and its silence grows.
  view.Merge(At(5000));
  EXPECT_EQ(view.workers[3].last_heard_seconds(), 3);

  view.Merge(WholeMesh());
  EXPECT_EQ(view.jobs.size(), 1);
  EXPECT_EQ(view.events.size(), 1);
}

TEST(Top, ShowsJobsWorkersTimesLinksAndEvents) {
  v1::MeshUpdate recovering = WholeMesh(), recovered = WholeMesh();
  recovering.mutable_jobs(0)->MergeFrom(Parse<v1::Job>(R"(
    phase: "recovering" why: "recovering: w3 is lost"
    recovering { seconds { detect: 2 } })"));
  recovered.mutable_jobs(0)->MergeFrom(
      Parse<v1::Job>(R"(recovery { recoveries: 1 why: "w3 is lost" })"));
  v1::MeshUpdate rounds = WholeMesh(), hostile = WholeMesh();
  rounds.mutable_jobs(0)->set_server(2);
  for (v1::JobWorker& worker : *rounds.mutable_jobs(0)->mutable_workers()) {
    worker.mutable_member()->set_next(11);
  }
  hostile.mutable_jobs(0)->mutable_spec()->set_name("<b>\x1b[2Jx");
  hostile.mutable_events(0)->set_text("\x1b[2Jy");

  Golden golden("client/top");
  const std::pair<const char*, const v1::MeshUpdate*> kCases[] = {
      {"a job in two stages, an idle worker, a lost one", nullptr},
      {"a job that recovers says why", &recovering},
      {"one that has recovered does not", &recovered},
      {"who serves the next round", &rounds},
      {"no name moves the cursor", &hostile}};
  for (const auto& [what, mesh] : kCases) {
    golden.Add(what,
               TextOf(RenderTop(ViewOf(mesh == nullptr ? WholeMesh() : *mesh),
                                "", {100, 24})));
  }
}

TEST(Top, FitsIntoAScreenOfAnySize) {
  v1::MeshUpdate mesh = WholeMesh();
  for (int i = 10; i < 210; ++i) {
    *mesh.add_workers() = AWorker(i, absl::StrCat("worker-", i));
  }
  for (int i = 10; i < 60; ++i) {
    *mesh.add_jobs() = RunningJob(1, 2);
    mesh.mutable_jobs()->rbegin()->set_id(i);
  }
  for (int i = 0; i < 10'000; ++i) {
    v1::JobEvent& event = *mesh.add_events();
    event.set_text(absl::StrCat("event-", i));
  }
  for (const ScreenSize size : {ScreenSize{80, 24}, ScreenSize{20, 24},
                                ScreenSize{1, 1}, ScreenSize{300, 100}}) {
    const std::vector<ScreenLine> lines = RenderTop(ViewOf(mesh), "", size);
    EXPECT_LE(lines.size(), size.rows);
    for (const ScreenLine& line : lines) {
      EXPECT_LE(DisplayWidth(line.text), size.columns) << line.text;
    }
  }
  const std::string text = TextOf(RenderTop(ViewOf(mesh), "", {80, 24}));
  EXPECT_THAT(text, AllOf(HasSubstr(" more\n"), HasSubstr("event-9999"),
                          HasSubstr("lost"), HasSubstr("training")));
}

TEST(Top, PrintsALineForEachChangeWhereNothingCanBeRedrawn) {
  CommandBed bed;
  v1::MeshUpdate change = At(2000);
  *change.add_workers() = AWorker(3, "w3", v1::WORKER_STATE_LOST);
  *change.add_events() =
      Parse<v1::JobEvent>(R"(unix_ms: 2000 job: 7 kind: "lost" text: "w3")");
  // The coordinator starts again meanwhile; what was told is not told again.
  v1::MeshUpdate again = WholeMesh();
  again.set_unix_ms(3000);
  *again.add_events() =
      Parse<v1::JobEvent>(R"(unix_ms: 2500 job: 7 kind: "again" text: "now")");
  bed.client.meshes = {{WholeMesh(), std::nullopt, change}, {again}};
  bed.pauser.leave_at = 10;

  EXPECT_EQ(TopCommand(bed.context), kExitInterrupted);

  const std::string out = bed.out.str();
  EXPECT_THAT(out,
              Says("workers: 2 busy", "worker w3 is lost", "job 7  lost  w3",
                   "worker w3 is idle", "job 7  again  now"));
  EXPECT_EQ(out.find("on w1, w2"), out.rfind("on w1, w2")) << out;
  EXPECT_THAT(out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(bed.err.str(),
              Says("the coordinator does not answer", "answers again"));
}

TEST(Top, DrawsOnATerminalAndLeavesItAsItWas) {
  CommandBed bed(OutputFormat::kTable, {.screen = [] {
                   return ScreenSize{80, 24};
                 }});
  bed.client.meshes = {{WholeMesh()}};
  bed.pauser.leave_at = 3;

  EXPECT_EQ(TopCommand(bed.context), kExitInterrupted);

  EXPECT_THAT(bed.out.str(),
              Says("\x1b[?1049h", "workers: 2 busy", "\x1b[31mw4", "\x1b[0m",
                   "does not answer", "\x1b[?1049l"));
}

TEST(Top, PrintsOneDocumentForPrograms) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.meshes = {{std::nullopt, WholeMesh()}};
  EXPECT_EQ(TopCommand(bed.context), kExitOk);
  EXPECT_EQ(bed.Output()["workers"].size(), 4);
}

// A large mesh comes in several messages; half of it is never shown.
TEST(Top, ShowsAnUpdateWhenAllOfItIsThere) {
  v1::MeshUpdate first = WholeMesh();
  first.mutable_workers()->DeleteSubrange(1, 3);
  first.set_more(true);
  v1::MeshUpdate rest = WholeMesh();
  rest.clear_whole();
  rest.clear_events();
  rest.mutable_workers()->DeleteSubrange(0, 1);

  CommandBed document(OutputFormat::kJson);
  document.client.meshes = {{first, std::nullopt, rest}};
  EXPECT_EQ(TopCommand(document.context), kExitOk);
  EXPECT_EQ(document.Output()["workers"].size(), 4);
  EXPECT_EQ(document.Output()["events"].size(), 1);

  CommandBed table;
  table.client.meshes = {{first, rest, At(1500)}};
  table.pauser.leave_at = 4;
  EXPECT_EQ(WatchNodesCommand(table.context), kExitInterrupted);
  EXPECT_EQ(table.out.str(),
            RenderWorkers(ViewOf(WholeMesh()).Workers()) + "\n");
}

TEST(Top, EndsWhereItsOutputCannotBeWritten) {
  CommandBed top, nodes;
  for (CommandBed* const bed : {&top, &nodes}) {
    bed->client.meshes = {{WholeMesh()}};
    bed->pauser.leave_at = 9;
    bed->out.setstate(std::ios::badbit);
  }

  EXPECT_EQ(TopCommand(top.context), kExitFailed);
  EXPECT_EQ(WatchNodesCommand(nodes.context), kExitFailed);
  EXPECT_THAT(top.err.str(), HasSubstr("cannot write"));
}

TEST(Top, EndsWhereThereIsNoCoordinatorToBeginWith) {
  CommandBed bed;
  EXPECT_EQ(TopCommand(bed.context), kExitUnreachable);
  EXPECT_THAT(bed.err.str(), HasSubstr("it is away"));
}

TEST(Watch, PrintsTheTableAgainWhereItDiffers) {
  CommandBed bed;
  v1::MeshUpdate change = At(2000);
  *change.add_workers() = AWorker(3, "w3", v1::WORKER_STATE_LOST);
  bed.client.meshes = {{WholeMesh(), At(1500), change}};
  bed.pauser.leave_at = 4;

  EXPECT_EQ(WatchNodesCommand(bed.context), kExitInterrupted);

  const std::string out = bed.out.str();
  const std::string first = RenderWorkers(ViewOf(WholeMesh()).Workers());
  EXPECT_EQ(out.substr(0, first.size()), first);
  EXPECT_THAT(out.substr(first.size()), HasSubstr("w3    lost"));
}

TEST(Watch, AsksForAJobAgainOnlyWhenItHasChanged) {
  CommandBed bed;
  v1::MeshUpdate other = At(1500);
  *other.add_jobs() = RunningJob(1, 2);
  other.mutable_jobs(0)->set_id(8);
  v1::MeshUpdate own = At(2000);
  *own.add_jobs() = RunningJob(11, 40);
  bed.client.meshes = {{WholeMesh(), other, own}};
  bed.client.job_answers = {RunningJob(10, 40), RunningJob(11, 40)};
  bed.pauser.leave_at = 4;

  EXPECT_EQ(WatchOneJobCommand(bed.context, 7), kExitInterrupted);

  EXPECT_EQ(bed.client.asked, (std::vector<int64_t>{7, 7}));
  EXPECT_THAT(bed.out.str(), Says("10/40", "11/40"));
}

TEST(Watch, AsksForAJobThatTheUpdatesLeaveOut) {
  CommandBed bed;
  v1::MeshUpdate left = At(1500);
  left.add_forgotten_jobs(7);
  // After a restart of the coordinator the job may be another.
  v1::MeshUpdate again = WholeMesh();
  again.clear_jobs();
  bed.client.meshes = {{WholeMesh(), left, At(2000)}, {again}};
  bed.client.job_answers = {RunningJob(10, 40), RunningJob(11, 40),
                            RunningJob(12, 40)};
  bed.pauser.leave_at = 7;

  EXPECT_EQ(WatchOneJobCommand(bed.context, 7), kExitInterrupted);

  EXPECT_EQ(bed.client.asked, (std::vector<int64_t>{7, 7, 7}));
  EXPECT_THAT(bed.out.str(), Says("10/40", "11/40", "12/40"));
}

TEST(Watch, SaysHowManyJobsAreNotWatched) {
  CommandBed bed;
  bed.client.meshes = {{WholeMesh()}};
  bed.pauser.leave_at = 2;

  EXPECT_EQ(WatchJobsCommand(bed.context, {}), kExitInterrupted);

  EXPECT_THAT(bed.out.str(), HasSubstr("\n31 more are not watched\n"));
}

TEST(Watch, SaysOnceThatTheCoordinatorIsSilentAndOnceThatItIsBack) {
  CommandBed bed;
  bed.client.meshes = {{WholeMesh(), std::nullopt, std::nullopt, std::nullopt,
                        At(9000), At(9500)}};
  bed.pauser.least = absl::Seconds(3);
  bed.pauser.leave_at = 7;

  EXPECT_EQ(WatchJobsCommand(bed.context, {}), kExitInterrupted);

  const std::string err = bed.err.str();
  EXPECT_THAT(err, Says("has said nothing for 6 s", "answers again"));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 2) << err;
}

// It was said to answer as soon as somebody tried to ask it.
TEST(Watch, TakesOnlyAnUpdateForAnAnswer) {
  CommandBed bed;
  bed.client.meshes = {{WholeMesh()}, {std::nullopt, std::nullopt}};
  bed.pauser.leave_at = 6;

  EXPECT_EQ(WatchJobsCommand(bed.context, {}), kExitInterrupted);

  EXPECT_THAT(bed.err.str(), AllOf(HasSubstr("does not answer"),
                                   Not(HasSubstr("answers again"))));
}

TEST(Watch, IsForTablesAndForJobsThatThereAre) {
  CommandBed json(OutputFormat::kJson);
  EXPECT_EQ(WatchJobsCommand(json.context, {}), kExitUsage);
  EXPECT_THAT(json.err.str(), HasSubstr("top -o json"));

  CommandBed bed;
  bed.client.meshes = {{WholeMesh()}};
  bed.client.job_answers = {absl::NotFoundError("no job 9")};
  EXPECT_EQ(WatchOneJobCommand(bed.context, 9), kExitNotFound);
}

}  // namespace
}  // namespace paceline
