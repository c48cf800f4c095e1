#include "core/os/host_port.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using testing::AllOf;
using ::testing::HasSubstr;
using testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST(HostPort, ReadsNamesAddressesAndTheEmptyHost) {
  const auto parsed = [](const std::string& address) {
    const absl::StatusOr<HostPort> result = ParseHostPort(address);
    EXPECT_TRUE(result.ok()) << result.status();
    return std::make_pair(result->host, result->port);
  };

  EXPECT_THAT(parsed("127.0.0.1:7400"), Pair("127.0.0.1", 7400));
  EXPECT_THAT(parsed("pi-2.lan:0"), Pair("pi-2.lan", 0));
  EXPECT_THAT(parsed("[::1]:7400"), Pair("::1", 7400));
  EXPECT_THAT(parsed("[fe80::1%eth0]:1"), Pair("fe80::1%eth0", 1));
  EXPECT_THAT(parsed(":65535"), Pair("", 65535));
}

TEST(HostPort, RefusesEverythingElseAndShowsIt) {
  for (const std::string bad :
       {"", "7400", "localhost", "localhost:", "localhost:65536",
        "localhost:-1", "localhost:+1", "localhost: 1", "localhost:0x10",
        "localhost:99999999999", "::1:7400", "[::1]", "[::1:7400", "[]:7400",
        "[localhost]:7400", "a]:1", "http://host:80", "two words:1"}) {
    const absl::Status status = ParseHostPort(bad).status();

    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad));
  }
}

// The former was called an IPv6 address without brackets,
// and nobody said how the latter is written.
TEST(HostPort, SaysOfASchemeAndOfIpv6WhatIsRight) {
  const auto why = [](const std::string& address) {
    return std::string(ParseHostPort(address).status().message());
  };

  for (const char* url : {"http://pi:7400", "http://pi", "grpc://[::1]:1/"}) {
    EXPECT_THAT(why(url), HasSubstr("has no scheme and no path")) << url;
    EXPECT_THAT(why(url), Not(HasSubstr("IPv6"))) << url;
  }
  EXPECT_THAT(why("::1:7411"), HasSubstr("[::1]:7411"));
  EXPECT_THAT(why("fe80::1%eth0:1"), HasSubstr("[fe80::1%eth0]:1"));
  EXPECT_THAT(why("a:b:1"), Not(HasSubstr("IPv6")));
}

TEST(HostPort, RepeatsOnlyTheBeginningOfALongMistake) {
  const auto status = ParseHostPort(std::string(5000, 'x')).status();

  EXPECT_LT(status.message().size(), 200u);
}

TEST(HostPort, IsPutTogetherAsItIsRead) {
  EXPECT_EQ(JoinHostPort("127.0.0.1", 1), "127.0.0.1:1");
  EXPECT_EQ(JoinHostPort("::1", 1), "[::1]:1");
  EXPECT_EQ(JoinHostPort("", 1), ":1");
}

TEST(HostPort, KnowsLoopbackFromNamesThatLookLikeIt) {
  for (const char* yes : {"localhost", "LOCALHOST", "127.0.0.1", "127.9.8.7",
                          "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(yes)) << yes;
  }
  for (const char* no :
       {"", "0.0.0.0", "::", "128.0.0.1", "127.0.0.1.evil.net",
        "localhost.evil.net", "127.1", "10.0.0.1", "::ffff:10.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(no)) << no;
  }
}

std::string Line(const std::string& kind_and_interface, const std::string& host,
                 const std::string& address, const std::string& port = "7400") {
  return kind_and_interface + ";Paceline\\032on\\032" + host +
         ";_paceline._tcp;local;" + host + ".local;" + address + ";" + port +
         ";\n";
}

TEST(Discovery, TakesTheOnlyCoordinator) {
  EXPECT_EQ(*OnlyCoordinator("+;eth0;IPv4;x;_paceline._tcp;local\n" +
                             Line("=;eth0;IPv4", "pi", "10.0.0.1", "7411")),
            "10.0.0.1:7411");
  EXPECT_EQ(*OnlyCoordinator(Line("=;eth0;IPv6", "pi", "fd00::1")),
            "[fd00::1]:7400");
}

TEST(Discovery, CountsACoordinatorOnSeveralInterfacesOnce) {
  EXPECT_EQ(*OnlyCoordinator(Line("=;eth0;IPv6", "pi", "fe80::1") +
                             Line("=;eth0;IPv6", "pi", "fd00::1") +
                             Line("=;eth0;IPv4", "pi", "10.0.0.1") +
                             Line("=;wlan0;IPv4", "pi", "10.1.0.1")),
            "10.0.0.1:7400");
}

TEST(Discovery, RefusesNoneAndListsSeveral) {
  for (const std::string none :
       {"", "\n", "=;eth0;IPv4;too;short\n", "=;;;;;;;;port;\n"}) {
    const auto found = OnlyCoordinator(none);
    EXPECT_TRUE(absl::IsNotFound(found.status())) << none;
    EXPECT_THAT(found.status().message(), HasSubstr("--coordinator HOST:PORT"));
  }

  const auto several = OnlyCoordinator(Line("=;eth0;IPv4", "b", "10.0.0.2") +
                                       Line("=;eth0;IPv4", "a", "10.0.0.1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(several.status()));
  EXPECT_THAT(several.status().message(),
              AllOf(HasSubstr("a.local:7400 (10.0.0.1:7400), b.local:7400"),
                    HasSubstr("--coordinator HOST:PORT")));
}

TEST(Discovery, OnlyAutoIsLookedForAndOnlyWhereSomebodyVouches) {
  EXPECT_EQ(*FindCoordinator("pi:7400", /*vouched=*/false), "pi:7400");

  const auto found = FindCoordinator("auto", /*vouched=*/false);
  EXPECT_TRUE(absl::IsInvalidArgument(found.status()));
  EXPECT_THAT(found.status().message(), HasSubstr("needs a certificate"));
}

}  // namespace
}  // namespace paceline
