// The step gate between workers.
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/os/thread.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/cluster/data_plane_mesh.h"

namespace paceline {
namespace {

StepReport ReportOf(int stage, int64_t step = 0) {
  StepReport report;
  report.step = step;
  report.stage = stage;
  report.squared_norms = {1};
  report.samples = 8;
  return report;
}

class GateTest : public ::testing::Test {
 protected:
  GateTest() : mesh_(MeshSpec{{0, 1, 1, 2}}) {}

  absl::Status OpenGate() {
    return mesh_.node(0).plane.OpenGate(Fence{JobId{1}, 1, 1},
                                        {TrainSpec{}, 10});
  }
  std::vector<StepReport> ReportsOf(int worker, int64_t step = 0) {
    if (worker == 0) return {ReportOf(0, step)};
    if (worker == 2) return {ReportOf(3, step)};
    return {ReportOf(1, step), ReportOf(2, step)};
  }

  // Threads that call `work` with their worker.
  static std::vector<Thread> OnEachWorker(
      const std::function<void(int)>& work) {
    std::vector<Thread> threads;
    for (int worker = 0; worker < 3; ++worker) {
      threads.emplace_back("worker", [work, worker] { work(worker); });
    }
    return threads;
  }

  RpcLinkMesh mesh_;
};

TEST_F(GateTest, GivesAllWorkersTheSameVerdictStepByStep) {
  ASSERT_TRUE(OpenGate().ok());
  std::vector<std::vector<StepVerdict>> verdicts(3);
  {
    const auto workers = OnEachWorker([&](int worker) {
      for (int step = 0; step < 10; ++step) {
        const auto verdict = mesh_.gate(worker).Decide(ReportsOf(worker, step));
        ASSERT_TRUE(verdict.ok()) << verdict.status();
        verdicts[worker].push_back(*verdict);
      }
    });
  }

  ASSERT_EQ(verdicts[0].size(), 10u);
  EXPECT_EQ(verdicts[0], verdicts[1]);
  EXPECT_EQ(verdicts[0], verdicts[2]);
  EXPECT_EQ(verdicts[0][9].step, 9);
}

TEST_F(GateTest, ReportsWaitForTheGateToOpen) {
  std::atomic<int> decided{0};
  {
    const auto workers = OnEachWorker([&](int worker) {
      const auto verdict = mesh_.gate(worker).Decide(ReportsOf(worker));
      EXPECT_TRUE(verdict.ok()) << verdict.status();
      ++decided;
    });
    EXPECT_EQ(decided, 0);
    ASSERT_TRUE(OpenGate().ok());
  }
  EXPECT_EQ(decided, 3);
}

TEST_F(GateTest, AnswersAgainAfterTheAnswerWasLost) {
  ASSERT_TRUE(OpenGate().ok());
  absl::StatusOr<StepVerdict> first, again;
  {
    Thread two("two", [&] { first = mesh_.gate(2).Decide(ReportsOf(2)); });
    Thread one("one", [&] { (void)mesh_.gate(1).Decide(ReportsOf(1)); });
    ASSERT_TRUE(mesh_.gate(0).Decide(ReportsOf(0)).ok());
  }

  again = mesh_.gate(2).Decide(ReportsOf(2));

  ASSERT_TRUE(first.ok() && again.ok()) << first.status() << again.status();
  EXPECT_EQ(*first, *again);
}

TEST_F(GateTest, CancelWakesHereAndThere) {
  ASSERT_TRUE(OpenGate().ok());
  absl::Status here, there;
  {
    Thread local("local",
                 [&] { here = mesh_.gate(0).Decide(ReportsOf(0)).status(); });
    Thread remote("remote",
                  [&] { there = mesh_.gate(1).Decide(ReportsOf(1)).status(); });
    mesh_.gate(0).Cancel(absl::CancelledError("first"));
    mesh_.gate(0).Cancel(absl::CancelledError("second"));
    mesh_.gate(1).Cancel(absl::CancelledError("first"));
  }

  EXPECT_EQ(here, absl::CancelledError("first"));
  EXPECT_EQ(there, absl::CancelledError("first"));
}

// The last stage sends the first one nothing but reports.
TEST(GateLink, IsToldToBeBrokenUntilTheFirstStageIsBack) {
  absl::Mutex mutex;
  bool changed = false;
  MeshSpec spec{{0, 1, 2}};
  spec.on_links = [&] {
    absl::MutexLock lock(&mutex);
    changed = true;
  };
  RpcLinkMesh mesh(spec);
  ASSERT_TRUE(mesh.node(0).plane.OpenGate(spec.fence, {TrainSpec{}, 10}).ok());
  EXPECT_FALSE(mesh.gate(2).broken().has_value());
  const int port = mesh.node(0).port();
  mesh.node(0).StopServer();
  {
    const Thread last(
        "last", [&] { EXPECT_TRUE(mesh.gate(2).Decide({ReportOf(2)}).ok()); });
    const Instant give_up = SteadyNow() + absl::Seconds(60);
    const auto await = [&](const auto& as) {
      while (!as(mesh.gate(2).broken()) && SteadyNow() < give_up) {
        absl::SleepFor(absl::Milliseconds(5));
      }
      return as(mesh.gate(2).broken());
    };

    EXPECT_TRUE(await([](const std::optional<BrokenLink>& broken) {
      return broken.has_value() && broken->neighbour == WorkerId{0} &&
             broken->refused;
    }));
    mesh.node(0).StartServerOn(port);
    // Before the verdict, for which two stages are missing.
    EXPECT_TRUE(await([](const auto& broken) { return !broken.has_value(); }));

    const Thread middle("middle", [&] {
      EXPECT_TRUE(mesh.gate(1).Decide({ReportOf(1)}).ok());
    });
    EXPECT_TRUE(mesh.gate(0).Decide({ReportOf(0)}).ok());
  }
  absl::MutexLock lock(&mutex);
  EXPECT_TRUE(changed);
}

// Nobody looked at the link between the two outages: the first one must not
// count for the second.
TEST(GateLink, AnOutageIsOverWhenAReportIsAnswered) {
  constexpr absl::Duration kReach = absl::Milliseconds(400);
  RpcLinkMesh mesh(MeshSpec{{0, 1}}, {.reach = kReach});
  const Fence fence = MeshSpec().fence;
  ASSERT_TRUE(mesh.node(0).plane.OpenGate(fence, {TrainSpec{}, 10}).ok());
  const int port = mesh.node(0).port();
  mesh.node(0).StopServer();
  absl::Notification answered;
  const Thread last("last", [&] {
    EXPECT_TRUE(mesh.gate(1).Decide({ReportOf(1)}).ok());
    answered.Notify();
  });
  const Instant give_up = SteadyNow() + absl::Seconds(60);
  while (!mesh.gate(1).broken().has_value() && SteadyNow() < give_up) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  mesh.node(0).StartServerOn(port);
  ASSERT_TRUE(mesh.gate(0).Decide({ReportOf(0)}).ok());
  answered.WaitForNotification();

  absl::SleepFor(kReach);
  mesh.node(0).StopServer();
  EXPECT_FALSE(mesh.gate(1).broken().has_value()) << "no report waits";
  const Instant begin = SteadyNow();
  EXPECT_TRUE(
      absl::IsUnavailable(mesh.gate(1).Decide({ReportOf(1, 1)}).status()));
  EXPECT_GE(SteadyNow() - begin, kReach);
}

// The job stood still for ever.
TEST(GateLink, EndsTheRunWhenTheFirstStageIsOutOfReachForLong) {
  RpcLinkMesh mesh(MeshSpec{{0, 1, 2}}, {.reach = absl::Milliseconds(100)});
  mesh.node(0).StopServer();

  const absl::Status end = mesh.gate(2).Decide({ReportOf(2)}).status();

  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  EXPECT_THAT(end.message(), ::testing::HasSubstr("worker 0"));
}

TEST_F(GateTest, SaysWhatCannotBeRetried) {
  ASSERT_TRUE(OpenGate().ok());

  EXPECT_TRUE(
      absl::IsInvalidArgument(mesh_.gate(2).Decide({ReportOf(17)}).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(OpenGate()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      mesh_.node(1).plane.OpenGate({JobId{1}, 1, 1}, {})));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      mesh_.node(0).plane.OpenGate({JobId{1}, 1, 2}, {})));
}

TEST_F(GateTest, AnswersStrangersByTheirFence) {
  ASSERT_TRUE(OpenGate().ok());
  const auto ask = [&](const Fence& fence) {
    const auto stub = v1::Stage::NewStub(MakeChannel(mesh_.node(0).address()));
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(absl::Seconds(60)));
    v1::StepReport report = ToProto(ReportOf(3));
    report.set_job(fence.job.value);
    report.set_attempt(fence.attempt);
    report.set_plan_version(fence.plan_version);
    v1::StepVerdict verdict;
    return FromGrpc(stub->ReportStep(&context, report, &verdict)).code();
  };

  EXPECT_EQ(ask({JobId{1}, 1, 2}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ask({JobId{1}, 1, 0}), absl::StatusCode::kAborted);
}

TEST_F(GateTest, ClosingTheFirstStageAnswersThoseWhoWait) {
  ASSERT_TRUE(OpenGate().ok());
  absl::Status there;
  {
    Thread remote("remote",
                  [&] { there = mesh_.gate(2).Decide(ReportsOf(2)).status(); });
    mesh_.Drop(0);
  }

  EXPECT_TRUE(absl::IsAborted(there)) << there;
}

}  // namespace
}  // namespace paceline
