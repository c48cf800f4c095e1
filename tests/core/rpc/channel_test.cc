#include "core/rpc/channel.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "core/os/host_port.h"
#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "google/protobuf/wrappers.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/server_context.h"
#include "gtest/gtest.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "tests/core/rpc/open_calls.h"
#include "tests/support/status_checks.h"

// The system's resolver, which alone knows one more name here, as it does where
// mDNS is set up.  Takes the place of libc's, also for gRPC.
extern "C" int getaddrinfo(const char* host, const char* port,
                           const addrinfo* hints, addrinfo** addresses) {
  static const auto libc =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool mine = host != nullptr && std::string(host) == "pi-1.local";
  return libc(mine ? "127.0.0.1" : host, port, hints, addresses);
}

namespace paceline {
namespace {

using ::testing::HasSubstr;

// Answers reports as `answer` says and remembers who asked.  Thread-safe.
class FakeStage final : public v1::Stage::Service {
 public:
  using Answer = std::function<absl::Status(v1::StepVerdict*)>;

  explicit FakeStage(Answer answer =
                         [](v1::StepVerdict*) { return absl::OkStatus(); })
      : answer_(std::move(answer)) {}

  grpc::Status ReportStep(grpc::ServerContext* context, const v1::StepReport*,
                          v1::StepVerdict* verdict) override {
    {
      absl::MutexLock lock(&mutex_);
      peers_.insert(context->peer());
    }
    return ToGrpc(answer_(verdict));
  }

  std::set<std::string> peers() const {
    absl::MutexLock lock(&mutex_);
    return peers_;
  }

 private:
  const Answer answer_;
  mutable absl::Mutex mutex_;
  std::set<std::string> peers_;
};

// A server on any port of 127.0.0.1.
BoundServer StartOnAnyPort(grpc::Service* service,
                           const std::string& host = "127.0.0.1") {
  absl::StatusOr<BoundServer> server =
      StartServer({.listen = absl::StrCat(host, ":0")}, {service});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::string AddressOf(const BoundServer& server) {
  return JoinHostPort(server.host, server.port);
}

std::shared_ptr<grpc::Channel> ChannelTo(const BoundServer& server) {
  return MakeChannel(AddressOf(server));
}

std::shared_ptr<grpc::Channel> DeafChannelTo(const BoundServer& server) {
  return DeafChannel(AddressOf(server), grpc::InsecureChannelCredentials());
}

struct Reply {
  absl::Status status;
  v1::StepVerdict verdict;
};

Reply Report(const std::shared_ptr<grpc::Channel>& channel,
             const v1::StepReport& report = {}, bool wait_for_ready = false) {
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(absl::Seconds(60)));
  context.set_wait_for_ready(wait_for_ready);
  Reply reply;
  const auto stub = v1::Stage::NewStub(channel);
  reply.status = FromGrpc(stub->ReportStep(&context, report, &reply.verdict));
  return reply;
}

// A bound, listening TCP socket on 127.0.0.1, of no gRPC server.
class ForeignListener {
 public:
  ForeignListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(fd_, 1), 0);
    socklen_t length = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  ~ForeignListener() { close(fd_); }
  ForeignListener(const ForeignListener&) = delete;
  ForeignListener& operator=(const ForeignListener&) = delete;

  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

// A stage on any port.
class RunningStage : public ::testing::Test {
 protected:
  FakeStage stage;
  BoundServer server = StartOnAnyPort(&stage);
};

TEST(StartServer, ServesOnTheFreePortThatItFound) {
  FakeStage stage([](v1::StepVerdict* verdict) {
    verdict->set_step(41);
    return absl::OkStatus();
  });
  const BoundServer server = StartOnAnyPort(&stage);

  const Reply reply = Report(ChannelTo(server));

  EXPECT_EQ(server.host, "127.0.0.1");
  EXPECT_TRUE(reply.status.ok()) << reply.status;
  EXPECT_EQ(reply.verdict.step(), 41);
}

TEST(StartServer, MayOpenAsManyFilesAsTheProcessMay) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  FakeStage stage;

  const BoundServer server = StartOnAnyPort(&stage);

  rlimit after = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
}

TEST(StartServer, ServesOnLocalhostByName) {
  FakeStage stage;
  const BoundServer server = StartOnAnyPort(&stage, "localhost");

  EXPECT_TRUE(
      Report(MakeChannel(absl::StrCat("127.0.0.1:", server.port))).status.ok());
}

TEST_F(RunningStage, AnswersHealthChecks) {
  grpc::TemplatedGenericStub<google::protobuf::StringValue,
                             google::protobuf::Int64Value>
      stub(ChannelTo(server));
  grpc::ClientContext context;
  // HealthCheckRequest{} and HealthCheckResponse{status} have the same bytes
  // as these two.
  const google::protobuf::StringValue request;
  google::protobuf::Int64Value response;
  grpc::Status status;
  absl::Notification done;

  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request,
                 &response, [&](grpc::Status s) {
                   status = std::move(s);
                   done.Notify();
                 });
  done.WaitForNotification();

  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.value(), 1) << "1 is SERVING";
}

TEST(StartServer, SaysThatAPortIsInUseAndWhatToChange) {
  const ForeignListener other;
  const std::string listen = absl::StrCat("127.0.0.1:", other.port());

  const absl::Status status =
      StartServer({.listen = listen, .flag = "--data"}, {}).status();

  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            absl::StrCat("port ", other.port(),
                         " on 127.0.0.1 is in use: stop the other process or "
                         "choose another with --data HOST:PORT"));
}

TEST(StartServer, RefusesAPortOfWhichLocalhostHasOnlyOneAddressFree) {
  const ForeignListener other;

  const absl::Status status =
      StartServer({.listen = absl::StrCat("localhost:", other.port())}, {})
          .status();

  ExpectError(status, absl::StatusCode::kUnavailable, HasSubstr("is in use"));
}

TEST_F(RunningStage, HasItsPortForItselfAlone) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(server.port);

  const int shared =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const absl::Status second =
      StartServer({.listen = AddressOf(server)}, {}).status();

  close(fd);
  EXPECT_NE(shared, 0) << "somebody else could take half of our connections";
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable) << second;
}

TEST_F(RunningStage, GivesItsPortBackWhenItEnds) {
  const std::string address = AddressOf(server);
  ASSERT_TRUE(Report(ChannelTo(server)).status.ok());
  server.server->Shutdown();
  server.server.reset();

  const absl::StatusOr<BoundServer> second =
      StartServer({.listen = address}, {&stage});

  EXPECT_TRUE(second.ok()) << second.status();
}

TEST(StartServer, StaysOnLoopbackUnlessToldThatTheNetworkIsTrusted) {
  FakeStage stage;
  for (const std::string listen : {":0", "0.0.0.0:0", "[::]:0"}) {
    const absl::Status refused =
        StartServer({.listen = listen}, {&stage}).status();
    const absl::StatusOr<BoundServer> allowed =
        StartServer({.listen = listen, .insecure = true}, {&stage});

    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << listen;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--insecure"));
    ASSERT_TRUE(allowed.ok()) << listen << ": " << allowed.status();
    EXPECT_TRUE(Report(MakeChannel(absl::StrCat("127.0.0.1:", allowed->port)))
                    .status.ok())
        << listen;
  }
}

TEST(StartServer, SaysThatAnAddressBelongsToAnotherMachine) {
  // 192.0.2.0/24 is for documentation (RFC 5737): nobody's.
  const absl::Status status =
      StartServer({.listen = "192.0.2.1:0", .insecure = true}, {}).status();

  ExpectError(status, absl::StatusCode::kUnavailable,
              HasSubstr("192.0.2.1 is not an address of this machine"));
}

TEST(StartServer, RefusesWhatIsNoAddress) {
  EXPECT_EQ(StartServer({.listen = "7400"}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(RunningStage, RefusesMessagesAboveItsLimit) {
  constexpr int kMostNorms = kMaxRequestBytes / sizeof(double);
  v1::StepReport small;
  small.mutable_squared_norms()->Resize(kMostNorms - 100, 1.0);
  v1::StepReport large;
  large.mutable_squared_norms()->Resize(kMostNorms, 1.0);

  EXPECT_TRUE(Report(ChannelTo(server), small).status.ok());
  EXPECT_EQ(Report(ChannelTo(server), large).status.code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Channel, RefusesAnswersAboveItsLimit) {
  size_t bytes = kMaxAnswerBytes - 100;
  FakeStage stage([&bytes](v1::StepVerdict* verdict) {
    verdict->set_why(std::string(bytes, 'x'));
    return absl::OkStatus();
  });
  const BoundServer server = StartOnAnyPort(&stage);

  EXPECT_TRUE(Report(ChannelTo(server)).status.ok());
  bytes = kMaxAnswerBytes;
  EXPECT_EQ(Report(ChannelTo(server)).status.code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Channel, CarriesAStatusWithAMessageOfAnyLength) {
  std::string text;
  while (text.size() < 100'000) text += "\xC3\xBC";
  FakeStage stage([&](v1::StepVerdict*) { return absl::AbortedError(text); });
  const BoundServer server = StartOnAnyPort(&stage);

  const Reply reply = Report(ChannelTo(server));

  EXPECT_EQ(reply.status.code(), absl::StatusCode::kAborted) << reply.status;
  EXPECT_EQ(reply.status.message().size(),
            static_cast<size_t>(kMaxStatusMessageBytes));
}

TEST_F(RunningStage, HasAConnectionOfItsOwn) {
  const auto one = ChannelTo(server);
  const auto two = ChannelTo(server);

  ASSERT_TRUE(Report(one).status.ok());
  ASSERT_TRUE(Report(one).status.ok());
  EXPECT_EQ(stage.peers().size(), 1u);
  ASSERT_TRUE(Report(two).status.ok());

  EXPECT_EQ(stage.peers().size(), 2u) << "two channels share a connection";
}

TEST(Channel, SaysThatNobodyIsThere) {
  int port = 0;
  {
    const ForeignListener gone;
    port = gone.port();
  }

  const Reply reply = Report(MakeChannel(absl::StrCat("127.0.0.1:", port)));

  EXPECT_EQ(reply.status.code(), absl::StatusCode::kUnavailable)
      << reply.status;
}

TEST_F(RunningStage, ComesBackWhenTheServerDoes) {
  const std::string address = AddressOf(server);
  const auto channel = ChannelTo(server);
  ASSERT_TRUE(Report(channel).status.ok());
  server.server->Shutdown();
  server.server.reset();
  ASSERT_EQ(Report(channel).status.code(), absl::StatusCode::kUnavailable);

  const auto again = Value(StartServer({.listen = address}, {&stage}));

  const Reply reply = Report(channel, {}, /*wait_for_ready=*/true);
  EXPECT_TRUE(reply.status.ok()) << reply.status;
}
TEST_F(RunningStage, FindsANameThatOnlyTheSystemsResolverKnows) {
  const Reply reply =
      Report(MakeChannel(JoinHostPort("pi-1.local", server.port)));

  EXPECT_TRUE(reply.status.ok()) << reply.status;
}

TEST_F(RunningStage, GoesPastTheEnvironmentsProxy) {
  setenv("http_proxy", "http://127.0.0.1:1", /*overwrite=*/1);

  const Reply reply = Report(ChannelTo(server));

  unsetenv("http_proxy");
  EXPECT_TRUE(reply.status.ok()) << reply.status;
}

TEST(Server, KeepsFewCallsOpenThatWaitForTheirMessageOrForHealth) {
  v1::Stage::CallbackService stage;
  const BoundServer server = StartOnAnyPort(&stage);
  const auto stranger = [&server] { return ChannelTo(server); };

  CheckThatHealthWatchesAreFew(stranger);
  CheckThatOpenCallsAreFew(stranger, "/paceline.v1.Stage/ReportStep");
}

// A suite has a process of its own: half calls that were given up keep their
// places for up to 20 s.
TEST(UntakenAnswers, KeepFewCallsOpen) {
  FakeStage stage;
  const BoundServer server = StartOnAnyPort(&stage);

  CheckThatOpenCallsAreFew([&server] { return DeafChannelTo(server); },
                           kCheckHealth, /*whole=*/true);
}

TEST(Server, EndsAStrangersConnectionWhoseCallDoesNotComeOrTakesNoAnswer) {
  FakeStage stage;
  const BoundServer server = StartOnAnyPort(&stage);
  const auto other = ChannelTo(server);
  ASSERT_TRUE(Report(other).status.ok());
  OpenCalls calls;
  calls.Open(ChannelTo(server), "/paceline.v1.Stage/ReportStep", false);
  const auto half = ChannelTo(server);
  ASSERT_TRUE(Report(half).status.ok());
  calls.Open(half, "/paceline.v1.Stage/ReportStep", false);
  calls.Open(DeafChannelTo(server), kCheckHealth, true);

  calls.AwaitAllBut(0);  // 10 s later

  EXPECT_EQ(calls.Ends()[grpc::StatusCode::UNAVAILABLE], 3);
  EXPECT_EQ(other->GetState(false), GRPC_CHANNEL_READY);
}

}  // namespace
}  // namespace paceline
