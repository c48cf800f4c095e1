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

}  // namespace
}  // namespace paceline
