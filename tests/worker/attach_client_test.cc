// AttachClient against a coordinator that does what the test's script says.
#include "worker/transport/attach_client.h"

#include <time.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/obs/log.h"
#include "core/os/host_port.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/convert/mirror.h"
#include "core/rpc/status.h"
#include "core/rpc/tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "tests/worker/control/fake_run_factory.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLongestWait = absl::Seconds(60);
constexpr int64_t kWorker = 5;

using Stream =
    grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;

// One life of the control stream, seen from the coordinator.
class Talk {
 public:
  explicit Talk(Stream& stream) : stream_(stream) {}

  // The next message; an empty one when the stream has ended.
  v1::WorkerMessage Read() {
    v1::WorkerMessage message;
    stream_.Read(&message);
    return message;
  }
  // The next heartbeat for which `wanted` holds; an empty one at the end.
  v1::Heartbeat ReadBeat(
      const std::function<bool(const v1::Heartbeat&)>& wanted) {
    for (v1::WorkerMessage message; stream_.Read(&message);) {
      if (wanted(message.heartbeat())) return message.heartbeat();
    }
    return {};
  }
  void Welcome(int64_t worker) {
    v1::CoordinatorMessage message;
    message.mutable_welcome()->set_worker_id(worker);
    message.mutable_welcome()->set_heartbeat_period_ms(10);
    stream_.Write(message);
  }
  void Order(const std::optional<RunOrder>& order) {
    v1::CoordinatorMessage message;
    v1::StandingOrder& standing = *message.mutable_order();
    if (order.has_value()) *standing.mutable_run() = ToProto(*order);
    stream_.Write(message);
  }
  void Settle(const std::string& capability) {
    v1::CoordinatorMessage message;
    message.mutable_order()->set_settle(capability);
    Send(message);
  }
  void Release() {
    v1::CoordinatorMessage message;
    message.mutable_order()->set_released(true);
    stream_.Write(message);
  }
  void Send(const v1::CoordinatorMessage& message) { stream_.Write(message); }
  void Ack(int64_t sequence) {
    v1::CoordinatorMessage message;
    message.mutable_ack()->set_sequence(sequence);
    stream_.Write(message);
  }

 private:
  Stream& stream_;
};

// A coordinator does this with one stream, and ends it so.
using Scene = std::function<grpc::Status(Talk&)>;

// Welcomes the worker, does `then`, and stays to its end.
Scene Served(std::function<void(Talk&)> then) {
  return [then = std::move(then)](Talk& talk) {
    talk.Read();
    talk.Welcome(kWorker);
    then(talk);
    talk.ReadBeat([](const auto&) { return false; });
    return grpc::Status::OK;
  };
}

// The first heartbeat of a stream.
bool IsFirst(const v1::Heartbeat& beat) { return beat.sequence() == 1; }

// Plays one scene a stream; the last one again and again.
class ScriptedCoordinator final : public v1::Coordinator::Service {
 public:
  explicit ScriptedCoordinator(std::vector<Scene> scenes)
      : scenes_(std::move(scenes)) {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    auto server = StartServer(options, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~ScriptedCoordinator() override {
    server_.server->Shutdown(DeadlineAfter(absl::ZeroDuration()));
    server_.server->Wait();
  }

  std::string address() const {
    return JoinHostPort("127.0.0.1", server_.port);
  }
  int streams() const {
    absl::MutexLock lock(&mutex_);
    return streams_;
  }

 private:
  grpc::Status Attach(grpc::ServerContext*, Stream* stream) override {
    size_t scene = 0;
    {
      absl::MutexLock lock(&mutex_);
      scene = std::min<size_t>(streams_++, scenes_.size() - 1);
    }
    Talk talk(*stream);
    return scenes_[scene](talk);
  }

  const std::vector<Scene> scenes_;
  BoundServer server_;
  mutable absl::Mutex mutex_;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Every run fails, which a heartbeat says.
class NothingToRunOn final : public FakeRunFactory {
 public:
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(
      const EngineOptions&) override {
    return absl::UnimplementedError("no engine here");
  }
};

RunOrder OrderOfJob(int64_t job) {
  JobSpec spec;
  spec.model.name = "mlp";
  spec.model.hidden = {4};
  spec.data.name = "synthetic";
  return WholeModelOrder({JobId{job}, 1, 1}, spec, WorkerId{kWorker});
}

bool HasFailed(const v1::Heartbeat& beat) {
  return beat.run().phase() == v1::RunState::PHASE_FAILED;
}

AgentOptions PlainOptions() {
  AgentOptions options;
  options.cpu_capability = "avx2";
  return options;
}

// A worker's control stream and what it serves.
class Worker {
 public:
  explicit Worker(const std::string& coordinator)
      : agent_(PlainOptions(), factory_, clock_) {
    AttachOptions options;
    options.coordinator = coordinator;
    options.registration.set_name("w");
    options.registration.set_incarnation(77);
    options.on_refused = [this](absl::Status why) {
      EXPECT_FALSE(refused_.HasBeenNotified()) << "said twice";
      refusal_ = std::move(why);
      refused_.Notify();
    };
    options.renew = [this](const std::string& capability) {
      absl::MutexLock lock(&mutex_);
      renewed_.push_back(capability);
    };
    client_ = std::make_unique<AttachClient>(std::move(options),
                                             MakeChannel(coordinator), agent_);
  }

  Agent& agent() { return agent_; }
  AttachClient& client() { return *client_; }
  // The capabilities at which the process was asked to start anew.
  std::vector<std::string> renewed() const {
    absl::MutexLock lock(&mutex_);
    return renewed_;
  }
  bool refused() const { return refused_.HasBeenNotified(); }
  // Why the coordinator will not have us; OK when it did not say so.
  absl::Status AwaitRefusal() {
    return refused_.WaitFor(kLongestWait) ? refusal_ : absl::OkStatus();
  }

 private:
  NothingToRunOn factory_;
  const SystemClock clock_{};
  Agent agent_;
  absl::Status refusal_;
  SteadyNotification refused_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> renewed_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<AttachClient> client_;  // first to go: it calls the others
};

bool Await(SteadyNotification& notification) {
  return notification.WaitFor(kLongestWait);
}

TEST(AttachClient, RegistersFirstAndIsAttachedWhenWelcome) {
  v1::WorkerMessage hello;
  SteadyNotification heard, go_on, beaten;
  ScriptedCoordinator coordinator({[&](Talk& talk) {
    hello = talk.Read();
    heard.Notify();
    go_on.WaitFor(kLongestWait);
    talk.Welcome(kWorker);
    talk.ReadBeat([](const auto& beat) { return beat.sequence() == 2; });
    beaten.Notify();
    talk.Read();
    return grpc::Status::OK;
  }});
  Worker worker(coordinator.address());

  ASSERT_TRUE(Await(heard));
  EXPECT_EQ(hello.registration().name(), "w");
  EXPECT_EQ(hello.registration().incarnation(), 77u);
  EXPECT_FALSE(worker.client().attached());
  go_on.Notify();
  ASSERT_TRUE(Await(beaten));
  EXPECT_TRUE(worker.client().attached());
}

TEST(AttachClient, CarriesOrdersOutAndReportsThem) {
  v1::Heartbeat failed;
  SteadyNotification done;
  ScriptedCoordinator coordinator({Served([&](Talk& talk) {
    talk.Order(OrderOfJob(9));
    failed = talk.ReadBeat(HasFailed);
    done.Notify();
  })});
  Worker worker(coordinator.address());

  ASSERT_TRUE(Await(done));
  EXPECT_EQ(failed.run().job(), 9);
  EXPECT_THAT(failed.run().error_message(), HasSubstr("no engine here"));
}

TEST(AttachClient, IsAskedOnceToStartAnewAtAnotherCapability) {
  SteadyNotification done;
  ScriptedCoordinator coordinator({Served([&](Talk& talk) {
    talk.Settle("default");
    talk.Settle("default");
    talk.Order(OrderOfJob(9));
    talk.ReadBeat(HasFailed);
    done.Notify();
  })});
  const Worker worker(coordinator.address());

  ASSERT_TRUE(Await(done));
  EXPECT_EQ(worker.renewed(), std::vector<std::string>{"default"});
}

TEST(AttachClient, LearnsWhoseCertificatesCountNoMore) {
  SteadyNotification done;
  ScriptedCoordinator coordinator({Served([&](Talk& talk) {
    v1::CoordinatorMessage message;
    v1::RevokedHolder& thief = *message.mutable_order()->add_revoked();
    thief.set_holder("worker/thief");
    thief.set_unix_ms(5000);
    talk.Send(message);
    talk.Order(OrderOfJob(9));
    talk.ReadBeat(HasFailed);
    done.Notify();
  })});
  const Worker worker(coordinator.address());

  ASSERT_TRUE(Await(done));
  EXPECT_EQ(RevokedUntil({Role::kWorker, "thief"}), absl::FromUnixMillis(5000));
}

TEST(AttachClient, DropsAnOrderThatMakesNoSenseAndStays) {
  SteadyNotification done;
  int64_t job = 0;
  ScriptedCoordinator coordinator({Served([&](Talk& talk) {
    RunOrder wrong = OrderOfJob(8);
    wrong.stages[0].stage = 3;
    talk.Order(wrong);
    talk.Order(OrderOfJob(9));
    job = talk.ReadBeat(HasFailed).run().job();
    done.Notify();
  })});
  Worker worker(coordinator.address());

  ASSERT_TRUE(Await(done));
  EXPECT_EQ(job, 9);
}

// A run's line of the log, sent and never acknowledged, comes again after the
// break under the same number; one that was acknowledged does not.
TEST(AttachClient, ComesBackAfterABreakWithWhatWasNotAcknowledged) {
  SteadyNotification failed, acknowledged, done;
  v1::WorkerMessage second_hello;
  v1::Heartbeat again;
  const auto has_log = [](const auto& beat) { return beat.logs_size() > 0; };
  ScriptedCoordinator coordinator(
      {[&](Talk& talk) {
         talk.Read();
         talk.Welcome(kWorker);
         talk.Order(OrderOfJob(9));
         talk.ReadBeat(HasFailed);
         failed.Notify();
         talk.Ack(talk.ReadBeat(has_log).sequence());
         acknowledged.Notify();
         talk.ReadBeat(has_log);
         return grpc::Status(grpc::StatusCode::UNAVAILABLE, "pulled");
       },
       [&](Talk& talk) {
         second_hello = talk.Read();
         talk.Welcome(kWorker);
         again = talk.ReadBeat(has_log);
         done.Notify();
         talk.Read();
         return grpc::Status::OK;
       }});
  Worker worker(coordinator.address());
  ASSERT_TRUE(Await(failed));
  worker.agent().AddLog(LineOf("one"));
  ASSERT_TRUE(Await(acknowledged));
  worker.agent().AddLog(LineOf("two"));

  ASSERT_TRUE(Await(done));
  EXPECT_EQ(second_hello.registration().incarnation(), 77u);
  EXPECT_EQ(again.sequence(), 1) << "of this stream";
  ASSERT_EQ(again.logs_size(), 1);
  EXPECT_EQ(again.logs(0).text(), "two");
  EXPECT_EQ(again.logs(0).sequence(), 2);
  EXPECT_EQ(again.run().job(), 9) << "the run goes on without the stream";
}

// A worker's warnings while it was declined three times, then welcomed.
std::vector<std::string> WarningsOfDeclined(grpc::StatusCode code,
                                            const std::string& why) {
  absl::Mutex mutex;
  std::vector<std::string> warnings;
  SetLogSink([&](LogLevel level, const std::string& line) {
    absl::MutexLock lock(&mutex);
    if (level == LogLevel::kWarn) warnings.push_back(line);
  });
  SteadyNotification welcomed;
  const Scene declined = [&](Talk& talk) {
    talk.Read();
    return grpc::Status(code, why);
  };
  ScriptedCoordinator coordinator({declined, declined, declined,
                                   Served([&](Talk&) { welcomed.Notify(); })});
  {
    Worker worker(coordinator.address());
    EXPECT_TRUE(Await(welcomed));
    EXPECT_FALSE(worker.refused());
  }
  SetLogSink(nullptr);
  EXPECT_EQ(coordinator.streams(), 4);
  return warnings;
}

// Was logged as "no coordinator", with nothing about the name.
TEST(AttachClient, TriesAgainWhenTheNameIsTakenAndSaysOnceByWhom) {
  const std::vector<std::string> warnings =
      WarningsOfDeclined(grpc::StatusCode::ALREADY_EXISTS,
                         "the name w1 is held by a live worker at h2:7401");

  ASSERT_THAT(warnings, testing::SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("the name is taken"));
  EXPECT_THAT(warnings[0], HasSubstr("h2:7401"));
  EXPECT_THAT(warnings[0], HasSubstr("--name"));
}

TEST(AttachClient, TriesAgainUntilTheCoordinatorIsUpgradedAndSaysSoOnce) {
  const std::vector<std::string> warnings = WarningsOfDeclined(
      grpc::StatusCode::UNIMPLEMENTED, "upgrade the coordinator");

  ASSERT_THAT(warnings, testing::SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("another release"));
  EXPECT_THAT(warnings[0], HasSubstr("upgrade the coordinator"));
}

TEST(AttachClient, ARefusalEndsTheTryingAndIsSaidOnce) {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::ABORTED, grpc::StatusCode::INVALID_ARGUMENT,
        grpc::StatusCode::PERMISSION_DENIED}) {
    ScriptedCoordinator coordinator({[code](Talk& talk) {
      talk.Read();
      return grpc::Status(code, "we will not have you");
    }});
    Worker worker(coordinator.address());

    const absl::Status refusal = worker.AwaitRefusal();

    EXPECT_EQ(static_cast<int>(refusal.code()), static_cast<int>(code));
    EXPECT_EQ(refusal.message(), "we will not have you");
    EXPECT_FALSE(worker.client().attached());
    EXPECT_EQ(coordinator.streams(), 1);
  }
}

// Ended the daemon for good, whoever was to blame for the heartbeat.
TEST(AttachClient, AttachesAgainWhenAHeartbeatWasRefused) {
  SteadyNotification again;
  const Scene refuses_a_beat = [](Talk& talk) {
    talk.Read();
    talk.Welcome(kWorker);
    talk.ReadBeat(IsFirst);
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        "measurement: latency_seconds is nan");
  };
  ScriptedCoordinator coordinator(
      {refuses_a_beat, refuses_a_beat, Served([&](Talk& talk) {
         talk.ReadBeat(IsFirst);
         again.Notify();
       })});
  Worker worker(coordinator.address());

  ASSERT_TRUE(Await(again));
  EXPECT_EQ(coordinator.streams(), 3);
  EXPECT_FALSE(worker.refused());
}

TEST(AttachClient, WaitsUntilTheCoordinatorKnowsThatItRestartsOrStops) {
  for (const bool restarts : {true, false}) {
    const auto says_so = [restarts](const v1::Heartbeat& beat) {
      return restarts ? beat.restarting() : beat.stopping();
    };
    SteadyNotification attached, acknowledged;
    ScriptedCoordinator coordinator({Served([&](Talk& talk) {
      talk.ReadBeat(IsFirst);
      attached.Notify();
      const v1::Heartbeat goodbye = talk.ReadBeat(says_so);
      acknowledged.Notify();
      talk.Ack(goodbye.sequence());
    })});
    Worker worker(coordinator.address());
    ASSERT_TRUE(Await(attached));

    worker.agent().Announce(restarts ? WorkerEnd::kRestarting
                                     : WorkerEnd::kStopping);
    worker.client().AwaitEndKnown(kLongestWait);

    EXPECT_TRUE(acknowledged.HasBeenNotified());
  }
}

TEST(AttachClient, IsReleasedByTheCoordinatorOrWhereThereIsNone) {
  SteadyNotification attached;
  ScriptedCoordinator coordinator({Served([&](Talk& talk) {
    talk.ReadBeat(IsFirst);
    attached.Notify();
    talk.ReadBeat([](const v1::Heartbeat& beat) { return beat.leaving(); });
    talk.Release();
    const v1::Heartbeat stopping = talk.ReadBeat(
        [](const v1::Heartbeat& beat) { return beat.stopping(); });
    talk.Ack(stopping.sequence());
  })});
  Worker worker(coordinator.address());
  ASSERT_TRUE(Await(attached));
  EXPECT_FALSE(worker.client().AwaitRelease(absl::ZeroDuration()));

  worker.agent().Announce(WorkerEnd::kLeaving);

  EXPECT_TRUE(worker.client().AwaitRelease(kLongestWait));
  worker.agent().Announce(WorkerEnd::kStopping);
  worker.client().AwaitEndKnown(kLongestWait);
  EXPECT_TRUE(Worker("127.0.0.1:1").client().AwaitRelease(kLongestWait));
}

TEST(AttachClient, DoesNotWaitForACoordinatorThatIsNotThere) {
  Worker worker("127.0.0.1:1");
  const Instant before = SteadyNow();

  worker.agent().Announce(WorkerEnd::kRestarting);
  worker.client().AwaitEndKnown(kLongestWait);

  EXPECT_LT(SteadyNow() - before, kLongestWait / 2);
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Rounds go on meanwhile, and need the CPU.
TEST(AttachClient, RestsWhileItCannotTellWhatHasChanged) {
  Worker worker("127.0.0.1:1");
  worker.agent().Announce(WorkerEnd::kRestarting);
  const double before = CpuSeconds();

  SteadyNotification never;
  never.WaitFor(absl::Milliseconds(300));

  EXPECT_LT(CpuSeconds() - before, 0.1);
}

}  // namespace
}  // namespace paceline
