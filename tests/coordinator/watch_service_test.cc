// Watchers of the mesh over real sockets: gRPC's, and the page's.
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"
#include "coordinator/rpc/control_service.h"
#include "coordinator/store/file_weights_store.h"
#include "coordinator/watch/http.h"
#include "coordinator/watch/metrics.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/json_convert.h"
#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "paceline/v1/control.grpc.pb.h"
#include "tests/coordinator/checkpoint_files.h"
#include "tests/coordinator/memory_store.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/stranger.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WatchService : public testing::Test {
 protected:
  WatchService()
      : weights_store_(folder_.path()),
        metrics_(registry_, "test"),
        coordinator_(BrainPolicy{}, {}, store_, weights_store_, checkpoints_,
                     clock_, metrics_),
        clients_(MakeControlService(coordinator_, metrics_)) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    server_ = StartServer(options, {clients_.get()}).value();
    control_ = v1::Control::NewStub(
        MakeChannel(absl::StrCat("127.0.0.1:", server_.port)));
    ticker_ = std::make_unique<Ticker>("ticker", absl::Milliseconds(10),
                                       [this] { coordinator_.Tick(); });
  }
  ~WatchService() override {
    ticker_.reset();
    server_.server->Shutdown(DeadlineAfter(absl::ZeroDuration()));
    server_.server->Wait();
    coordinator_.Stop();
    weights_store_.Stop();
    checkpoints_.Stop();
  }

  TempFolder folder_;
  SystemClock clock_;
  MemoryStore store_;
  FileWeightsStore weights_store_;
  FakePieceFetcher fetcher_;
  FileCheckpointStore checkpoints_{folder_.path() + "/checkpoints", fetcher_};
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_;
  Coordinator coordinator_;
  const std::unique_ptr<grpc::Service> clients_;
  BoundServer server_;
  std::unique_ptr<v1::Control::Stub> control_;
  std::unique_ptr<Ticker> ticker_;
};

TEST_F(WatchService, TellsTheWholeMeshAndThenWhatChanges) {
  grpc::ClientContext context;
  const auto reader = control_->WatchMesh(&context, {});
  v1::MeshUpdate update;
  ASSERT_TRUE(reader->Read(&update));
  EXPECT_TRUE(update.whole());

  grpc::ClientContext submits;
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(
      control_->SubmitJob(&submits, SubmissionOf(SpecOf(1)), &submitted).ok());
  while (update.jobs_size() == 0) {
    update.Clear();
    ASSERT_TRUE(reader->Read(&update));
  }
  EXPECT_FALSE(update.whole());
  EXPECT_EQ(update.jobs(0).id(), submitted.id());

  coordinator_.RefuseWaiters();
  while (reader->Read(&update)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(WatchService, DropsAClientThatDoesNotReadAndServesTheOthers) {
  grpc::ClientContext context;
  const auto reader = control_->WatchMesh(&context, {});
  Stranger slow("127.0.0.1", server_.port, "/paceline.v1.Control/WatchMesh", 0);
  slow.Step();
  JobSpec spec = SpecOf(1);
  spec.name = std::string(120, 'x');

  v1::MeshUpdate update;
  while (!slow.ended()) {
    for (int i = 0; i < 30; ++i) {
      coordinator_.Submit(SubmissionOf(spec), [this](const auto& submitted) {
        coordinator_.Stop(JobId{submitted->id()}, [](const auto&) {});
      });
    }
    ASSERT_TRUE(reader->Read(&update));
    slow.Step();
  }

  const char counted[] = R"({code="CANCELLED",method="WatchMesh"} 1)";
  do {
    ASSERT_TRUE(reader->Read(&update));
  } while (!absl::StrContains(registry_.Text(), counted));
}

TEST(Page, CanBeReadWithoutItsScriptAndTakesNamesForText) {
  v1::MeshUpdate mesh;
  v1::Worker& worker = *mesh.add_workers();
  worker.mutable_registration()->set_name("w1");
  worker.set_state(v1::WORKER_STATE_LOST);
  v1::Job& job = *mesh.add_jobs();
  job.mutable_spec()->set_name("<script>alert(\"1\")</script>");
  job.set_why("a & b");
  job.set_loss(-NAN);
  mesh.add_events()->set_text("<img src=x>");

  const std::string page = RenderPage(mesh);

  EXPECT_THAT(page, HasSubstr("<td>w1</td><td>lost</td>"));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&quot;1&quot;)"));
  EXPECT_THAT(page, HasSubstr("<td>nan</td><td>a &amp; b"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
}

TEST(PublishedUpdate, IsOneLineOfJson) {
  v1::MeshUpdate message;
  message.add_events()->set_text("a\nb");
  const PublishedUpdate update(message);

  EXPECT_THAT(update.Json(), Not(HasSubstr("\n")));
  v1::MeshUpdate read;
  ASSERT_TRUE(FromJson(update.Json(), read).ok());
  EXPECT_EQ(read.events(0).text(), "a\nb");
}

}  // namespace
}  // namespace paceline
