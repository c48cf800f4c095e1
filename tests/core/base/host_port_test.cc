#include "core/os/host_port.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
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

}  // namespace
}  // namespace paceline
