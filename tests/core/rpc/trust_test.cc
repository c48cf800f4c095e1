// Certificates, and who may call what, over real TLS.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/base/clock.h"
#include "core/os/files.h"
#include "core/os/thread.h"
#include "core/rpc/channel.h"
#include "core/rpc/enrol.h"
#include "core/rpc/status.h"
#include "core/rpc/tls.h"
#include "core/trust/certificates.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "gtest/gtest.h"
#include "paceline/v1/control.grpc.pb.h"
#include "paceline/v1/coordinator.grpc.pb.h"
#include "paceline/v1/round.grpc.pb.h"
#include "paceline/v1/stage.grpc.pb.h"
#include "paceline/v1/trust.grpc.pb.h"
#include "tests/core/rpc/open_calls.h"
#include "tests/support/temp_folder.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLife = absl::Hours(24);

// An authority, and identities that it has signed, each in a folder.
class TestAuthority {
 public:
  explicit TestAuthority(const std::string& folder) : folder_(folder) {}

  TlsFiles Issue(const Identity& identity,
                 absl::Time now = SystemClock().Today()) {
    const TlsFiles files(
        absl::StrCat(folder_, "/", RoleName(identity.role), "-", ++issued_));
    const std::string request =
        MakeSigningRequest(KeyOf(files).value()).value();
    const std::string certificate =
        Sign({request, identity, certificate_, key_, now, kLife}).value();
    EXPECT_TRUE(WriteIdentity(files, certificate, certificate_).ok());
    return files;
  }
  const std::string& certificate() const { return certificate_; }

 private:
  const std::string folder_;
  const std::string key_ = MakeKey();
  const std::string certificate_ =
      MakeAuthority(key_, SystemClock().Today()).value();
  int issued_ = 0;
};

TEST(Certificates, SayWhoseTheyAreAndHowLong) {
  const TempFolder folder;
  TestAuthority authority(folder.path());
  const absl::Time now = SystemClock().Today();

  const TlsFiles files = authority.Issue({Role::kWorker, "pi-1"}, now);

  const auto info = InspectIdentity(files, now);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->identity, (Identity{Role::kWorker, "pi-1"}));
  EXPECT_NEAR(absl::ToDoubleSeconds(info->not_after - now - kLife), 0, 2);
  EXPECT_FALSE(*RenewalIsDue(files, now + kLife / 2));
  EXPECT_TRUE(*RenewalIsDue(files, now + kLife * 3 / 4));
}

TEST(Certificates, SayWhatKeepsThemFromBeingUsed) {
  const TempFolder folder;
  TestAuthority authority(folder.path());
  TestAuthority other(folder.path() + "/other");
  const absl::Time now = SystemClock().Today();
  const TlsFiles files = authority.Issue({Role::kWorker, "a"}, now);
  const auto why = [&](absl::Time at) {
    return std::string(InspectIdentity(files, at).status().message());
  };

  EXPECT_THAT(why(now + 2 * kLife), HasSubstr("has expired"));
  EXPECT_THAT(why(now - absl::Minutes(10)), HasSubstr("set the clock"));
  EXPECT_THAT(InspectIdentity(TlsFiles(folder.path() + "/none"), now)
                  .status()
                  .message(),
              HasSubstr("there is no certificate"));
  ASSERT_TRUE(WriteFileAtomically(files.authority, other.certificate()).ok());
  EXPECT_THAT(why(now), HasSubstr("another authority"));
  ASSERT_TRUE(WriteFileAtomically(files.key, "no key").ok());
  EXPECT_THAT(why(now), HasSubstr("no private key"));
}

TEST(Certificates, AreOfUseThoughAClockWasAheadAndAreRenewedAtOnce) {
  const TempFolder folder;
  TestAuthority authority(folder.path());
  const absl::Time now = SystemClock().Today();

  const TlsFiles files =
      authority.Issue({Role::kWorker, "a"}, now + absl::Hours(24 * 30));

  const CertificateInfo info = CertificateOf(files).value();
  EXPECT_LT(info.not_before, now);
  EXPECT_GT(info.signed_at(), now + absl::Hours(24 * 29));
  EXPECT_TRUE(*RenewalIsDue(files, now));
  EXPECT_THAT(InspectIdentity(files, now).status().message(),
              HasSubstr("here or on the coordinator's host"));
  // Nobody signs earlier where the holder was revoked then.
  EXPECT_FALSE(*RenewalIsDue(files, now, info.signed_at() - absl::Seconds(1)));
}

TEST(RenewalPace, TriesAtLongerAndLongerPausesAndSaysEachReasonOnce) {
  const TempFolder folder;
  const TlsFiles none(folder.path() + "/none");
  RenewalPace pace;
  absl::Status outcome = absl::UnavailableError("away");
  int tries = 0;
  int said = 0;
  Instant now;
  const auto pass = [&](absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
      said += !pace.Run(none, now, [&] { return ++tries, outcome; }).ok();
      now = now + absl::Seconds(1);
    }
  };

  pass(absl::Seconds(63));
  EXPECT_EQ(tries, 6) << "1 + 2 + 4 + 8 + 16 + 32";
  EXPECT_EQ(said, 1);
  pass(absl::Hours(24));
  EXPECT_NEAR(tries, 24 * 6, 12);
  EXPECT_EQ(said, 1);

  outcome = absl::PermissionDeniedError("revoked");
  pass(absl::Minutes(11));
  EXPECT_EQ(said, 2);
  outcome = absl::OkStatus();
  pass(absl::Minutes(11));
  tries = 0;
  pass(absl::Seconds(10));
  EXPECT_EQ(tries, 10) << "a certificate that is fine is looked at each second";
}

TEST(Certificates, TakeNothingButTheKeyFromARequest) {
  const std::string key = MakeKey();
  const std::string authority =
      MakeAuthority(key, SystemClock().Today()).value();
  const auto sign = [&](const std::string& request) {
    return Sign({request,
                 {Role::kWorker, "a"},
                 authority,
                 key,
                 SystemClock().Today(),
                 kLife})
        .status();
  };

  EXPECT_TRUE(absl::IsInvalidArgument(sign("")));
  EXPECT_TRUE(absl::IsInvalidArgument(sign(authority)));
  std::string request = MakeSigningRequest(MakeKey()).value();
  EXPECT_TRUE(sign(request).ok());
  // Another signature, or none that can be read.
  request[request.size() / 2] = request[request.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_TRUE(absl::IsInvalidArgument(sign(request)));
}

TEST(JoinToken, IsReadAsItWasWritten) {
  const JoinTokenText token = DrawToken(std::string(kFingerprintDigits, 'a'));

  const auto read = JoinTokenText::Parse(token.ToText() + "\n");

  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToText(), token.ToText());
  for (const char* wrong : {"", "a.b.c", "..", "1234"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(JoinTokenText::Parse(wrong).status()))
        << wrong;
  }
}

TEST(Certificates, OnlyTheFirstOfATextIsTaken) {
  const std::string first =
      MakeAuthority(MakeKey(), SystemClock().Today()).value();
  const std::string second =
      MakeAuthority(MakeKey(), SystemClock().Today()).value();

  EXPECT_EQ(OnlyCertificate("words\n" + first + second).value(), first);
  EXPECT_TRUE(absl::IsInvalidArgument(OnlyCertificate("words").status()));
}

// Every service with no method of its own: a call that passes is UNIMPLEMENTED.
class AccessTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    authority_ = new TestAuthority(folder_->path());
    ASSERT_TRUE(UseTls(authority_->Issue({Role::kCoordinator, "c"})).ok());
  }
  void SetUp() override {
    server_ = StartServer({.listen = "127.0.0.1:0"},
                          {&control_, &coordinator_, &round_, &stage_, &trust_})
                  .value();
  }
  void TearDown() override { server_.server->Shutdown(); }

  absl::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                    absl::string_view method) {
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(absl::Seconds(60)));
    const std::string name(method);
    grpc::ByteBuffer request, response;
    const grpc::Slice empty;
    request = grpc::ByteBuffer(&empty, 1);
    return FromGrpc(
        grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
            channel.get(),
            grpc::internal::RpcMethod(name.c_str(),
                                      grpc::internal::RpcMethod::NORMAL_RPC),
            &context, request, &response));
  }
  std::shared_ptr<grpc::Channel> ChannelWith(const Credentials& credentials) {
    return MakeChannel(absl::StrCat("127.0.0.1:", server_.port), credentials);
  }
  std::shared_ptr<grpc::Channel> ChannelOf(const TlsFiles& files) {
    return ChannelWith(CredentialsWith(files, Role::kCoordinator));
  }
  static std::vector<std::string> AllMethods() {
    std::vector<std::string> methods;
    for (const char* service :
         {"Control", "Coordinator", "Round", "Stage", "Trust"}) {
      const auto* const found =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
              absl::StrCat("paceline.v1.", service));
      for (int i = 0; i < found->method_count(); ++i) {
        methods.push_back(absl::StrCat("/", found->full_name(), "/",
                                       found->method(i)->name()));
      }
    }
    return methods;
  }

  static TempFolder* folder_;
  static TestAuthority* authority_;
  v1::Control::Service control_;
  v1::Coordinator::Service coordinator_;
  v1::Round::Service round_;
  v1::Stage::Service stage_;
  v1::Trust::Service trust_;
  BoundServer server_;
};
TempFolder* AccessTest::folder_ = nullptr;
TestAuthority* AccessTest::authority_ = nullptr;

TEST_F(AccessTest, EveryMethodIsInTheTableAndNothingElse) {
  std::vector<std::string> methods = AllMethods();
  ASSERT_GT(methods.size(), 25u);
  methods.push_back("/grpc.health.v1.Health/Check");
  methods.push_back("/grpc.health.v1.Health/Watch");
  std::vector<std::string> table;
  for (const MethodAccess& row : AccessTable()) {
    table.push_back(std::string(row.method));
    EXPECT_NE(row.anybody, !row.roles.empty()) << row.method;
  }

  EXPECT_THAT(table, testing::UnorderedElementsAreArray(methods));
}

TEST_F(AccessTest, EveryRoleMayCallWhatTheTableSays) {
  std::vector<std::pair<std::optional<Role>, std::shared_ptr<grpc::Channel>>>
      callers;
  callers.push_back(
      {std::nullopt, ChannelWith(CredentialsTo(Role::kCoordinator,
                                               authority_->certificate()))});
  for (const Role role : {Role::kCoordinator, Role::kWorker, Role::kClient}) {
    callers.push_back({role, ChannelOf(authority_->Issue({role, "a"}))});
  }
  for (const MethodAccess& row : AccessTable()) {
    if (absl::StartsWith(row.method, "/grpc.health")) continue;
    for (const auto& [role, channel] : callers) {
      const bool may =
          row.anybody ||
          (role.has_value() && std::find(row.roles.begin(), row.roles.end(),
                                         *role) != row.roles.end());
      const absl::StatusCode code = Call(channel, row.method).code();

      EXPECT_EQ(code, may                ? absl::StatusCode::kUnimplemented
                      : role.has_value() ? absl::StatusCode::kPermissionDenied
                                         : absl::StatusCode::kUnauthenticated)
          << row.method << " as " << (role ? RoleName(*role) : "nobody");
    }
  }
}

TEST_F(AccessTest, AMethodThatTheTableLacksIsRefused) {
  const auto channel = ChannelOf(authority_->Issue({Role::kClient, "a"}));

  EXPECT_TRUE(absl::IsPermissionDenied(Call(channel, "/paceline.v1.New/Do")));
}

TEST_F(AccessTest, ACertificateThatHasExpiredOrIsForeignIsNotTaken) {
  TestAuthority foreign(folder_->path() + "/foreign");
  const TlsFiles expired = authority_->Issue({Role::kClient, "a"},
                                             SystemClock().Today() - 2 * kLife);
  const TlsFiles other = foreign.Issue({Role::kClient, "a"});
  // It trusts our server, and shows what another authority signed.
  ASSERT_TRUE(
      WriteFileAtomically(other.authority, authority_->certificate()).ok());
  for (const TlsFiles& files : {expired, other}) {
    for (const MethodAccess& row : AccessTable()) {
      if (!absl::StartsWith(row.method, "/paceline.v1.Control/L")) continue;
      const absl::Status refused = Call(ChannelOf(files), row.method);
      EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    }
  }
}

TEST_F(AccessTest, ARevokedCertificateIsRefusedEverywhereAndALaterOneIsNot) {
  const absl::Time now = SystemClock().Today();
  const auto stolen = ChannelOf(authority_->Issue({Role::kClient, "kim"}, now));
  const auto worker = ChannelOf(authority_->Issue({Role::kWorker, "kim"}, now));
  const auto later = ChannelOf(
      authority_->Issue({Role::kClient, "kim"}, now + absl::Seconds(1)));
  ASSERT_TRUE(
      absl::IsUnimplemented(Call(stolen, "/paceline.v1.Control/ListJobs")));

  RevokeCertificates("client/kim", now);

  for (const char* method :
       {"/paceline.v1.Control/ListJobs", "/paceline.v1.Trust/Renew",
        "/paceline.v1.Trust/GetAuthority"}) {
    const absl::Status refused = Call(stolen, method);
    EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("client kim was revoked"));
  }
  EXPECT_TRUE(
      absl::IsUnimplemented(Call(later, "/paceline.v1.Control/ListJobs")));
  EXPECT_TRUE(absl::IsUnimplemented(Call(worker, "/paceline.v1.Stage/Probe")));
}

TEST_F(AccessTest, WhoHasNoCertificateKeepsFewCallsOpen) {
  const auto stranger = [this] {
    return ChannelWith(
        CredentialsTo(Role::kCoordinator, authority_->certificate()));
  };

  CheckThatHealthWatchesAreFew(stranger);
  CheckThatOpenCallsAreFew(stranger, "/paceline.v1.Trust/GetAuthority");
}

// A suite has a process of its own: half calls that were given up keep their
// places for up to 20 s.
class UntakenAnswersWithTls : public AccessTest {};

TEST_F(UntakenAnswersWithTls, KeepFewCallsOpenOfWhoHasNoCertificate) {
  CheckThatOpenCallsAreFew(
      [this] {
        return DeafChannel(
            absl::StrCat("127.0.0.1:", server_.port),
            CredentialsTo(Role::kCoordinator, authority_->certificate()));
      },
      kCheckHealth, /*whole=*/true);
}

TEST_F(AccessTest, HealthWatchesOfMembersAreFewToo) {
  const TlsFiles files = authority_->Issue({Role::kWorker, "a"});

  CheckThatHealthWatchesAreFew([&] { return ChannelOf(files); });
}

TEST_F(AccessTest, AServerOfAnotherRoleOrMeshIsNotTrusted) {
  TestAuthority foreign(folder_->path() + "/foreign");
  const TlsFiles own = authority_->Issue({Role::kClient, "a"});
  const auto method = AccessTable().front().method;

  EXPECT_THAT(
      Call(ChannelWith(CredentialsWith(own, Role::kWorker)), method).message(),
      HasSubstr("not that of a worker"));
  EXPECT_TRUE(absl::IsUnavailable(
      Call(ChannelOf(foreign.Issue({Role::kClient, "a"})), method)));
}

// Whoever stands between could add an authority of its own to the answer.
class TwoAuthorities final : public v1::Trust::Service {
 public:
  TwoAuthorities(std::string authorities, std::string certificate)
      : authorities_(std::move(authorities)),
        certificate_(std::move(certificate)) {}

  grpc::Status GetAuthority(grpc::ServerContext*,
                            const v1::GetAuthorityRequest*,
                            v1::Authority* answer) override {
    answer->set_certificate(authorities_);
    answer->set_unix_ms(absl::ToUnixMillis(SystemClock().Today()));
    return grpc::Status::OK;
  }
  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest*,
                    v1::Certificate* answer) override {
    answer->set_certificate(certificate_);
    return grpc::Status::OK;
  }

 private:
  const std::string authorities_;
  const std::string certificate_;
};

TEST_F(AccessTest, ATokenVouchesForOneAuthorityOnly) {
  const std::string foreign =
      MakeAuthority(MakeKey(), SystemClock().Today()).value();
  const TlsFiles files = authority_->Issue({Role::kClient, "kim"});
  TwoAuthorities service(authority_->certificate() + foreign,
                         ReadFile(files.certificate, kMostPemBytes).value());
  const BoundServer server =
      StartServer({.listen = "127.0.0.1:0"}, {&service}).value();
  EnrolOptions options;
  options.coordinator = absl::StrCat("127.0.0.1:", server.port);
  options.identity = {Role::kClient, "kim"};
  options.token =
      DrawToken(FingerprintOf(authority_->certificate()).value()).ToText();

  const absl::Status joined = Enrol(options, files);

  EXPECT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(ReadFile(files.authority, kMostPemBytes).value(),
            authority_->certificate());
  options.token = DrawToken(FingerprintOf(foreign).value()).ToText();
  EXPECT_TRUE(absl::IsPermissionDenied(Enrol(options, files)));
  server.server->Shutdown();
}

TEST_F(AccessTest, ANewCertificateIsShownWithoutARestart) {
  const TlsFiles worker = authority_->Issue({Role::kWorker, "a"});
  const TlsFiles client = authority_->Issue({Role::kClient, "a"});
  const Credentials credentials = CredentialsWith(worker, Role::kCoordinator);
  const auto method = "/paceline.v1.Control/ListJobs";
  ASSERT_TRUE(absl::IsPermissionDenied(Call(ChannelWith(credentials), method)));

  for (const auto& [from, to] : {std::pair{client.key, worker.key},
                                 {client.certificate, worker.certificate}}) {
    ASSERT_TRUE(WriteFileAtomically(to, ReadFile(from, 1 << 16).value()).ok());
  }

  const Instant give_up = SteadyNow() + absl::Seconds(60);
  absl::Status answer;
  do {
    answer = Call(ChannelWith(credentials), method);
  } while (!absl::IsUnimplemented(answer) && SteadyNow() < give_up);
  EXPECT_TRUE(absl::IsUnimplemented(answer)) << answer;
}

}  // namespace
}  // namespace paceline
