#include "core/os/host_port.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
