#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "worker/meters/cpu.h"

namespace paceline {
namespace {

// Two packages, and the cores of the first, which it counts too.
struct Counters {
  TempFolder folder;
  EnergyMeter meter{folder.path()};

  void Show(const std::string& first, const std::string& second) const {
    for (const auto& [name, text] : {std::pair("intel-rapl:0", first),
                                     {"intel-rapl:1", second},
                                     {"intel-rapl:2", first},
                                     {"intel-rapl:0:0", first}}) {
      folder.Write(absl::StrCat(name, "/energy_uj"), absl::StrCat(text, "\n"));
      folder.Write(absl::StrCat(name, "/max_energy_range_uj"), "10000000\n");
    }
    folder.Write("dtpm/energy_uj", "5");
    folder.Write("intel-rapl:0/name", "package-0\n");
    folder.Write("intel-rapl:2/name", "psys\n");
  }
};

TEST(EnergyMeter, AddsAllPackagesFromTheBeginningOn) {
  Counters counters;
  counters.Show("1000000", "2000000");
  counters.meter.Begin();
  counters.Show("1500000", "2250000");
  EXPECT_DOUBLE_EQ(counters.meter.Joules(), 0.75);

  counters.meter.Begin();
  EXPECT_EQ(counters.meter.Joules(), 0);
}

TEST(EnergyMeter, GoesOnWhereACounterBeginsAnew) {
  Counters counters;
  counters.Show("9000000", "0");
  counters.meter.Begin();
  counters.Show("1000000", "0");
  EXPECT_DOUBLE_EQ(counters.meter.Joules(), 2);
  counters.Show("1500000", "0");
  EXPECT_DOUBLE_EQ(counters.meter.Joules(), 2.5);
}

TEST(EnergyMeter, IsZeroWithoutCountersOrWithNoNumbers) {
  Counters counters;
  counters.meter.Begin();
  EXPECT_EQ(counters.meter.Joules(), 0);
  counters.Show("much", "");
  EXPECT_EQ(counters.meter.Joules(), 0);
  EnergyMeter nowhere("/no/such/folder");
  nowhere.Begin();
  EXPECT_EQ(nowhere.Joules(), 0);
}

}  // namespace
}  // namespace paceline
