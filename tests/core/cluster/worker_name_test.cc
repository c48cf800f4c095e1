#include "core/cluster/registration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(WorkerName, TakesUpTo63PlainBytes) {
  EXPECT_EQ(WhyNoWorkerName("pi-2.local_A"), "");
  EXPECT_EQ(WhyNoWorkerName(std::string(63, 'w')), "");
  EXPECT_THAT(WhyNoWorkerName(""), HasSubstr("1 to 63"));
  EXPECT_THAT(WhyNoWorkerName(std::string(64, 'w')), HasSubstr("(64 bytes)"));
  EXPECT_THAT(WhyNoWorkerName("a b"), HasSubstr("got 'a b'"));
}

// Whole, it filled the terminal, and could change what it shows.
TEST(WorkerName, RepeatsAtMost64BytesOfABadOneAndNoneThatATerminalObeys) {
  const std::string why = WhyNoWorkerName(std::string(100'000, 'w'));

  std::string repeated(64, 'w');
  repeated += "...'";
  EXPECT_THAT(why, AllOf(HasSubstr(repeated), HasSubstr("(100000 bytes)")));
  EXPECT_LT(why.size(), 160u);
  EXPECT_THAT(WhyNoWorkerName("\x1b[2J\n"),
              AllOf(HasSubstr("\\x1b[2J\\n"), Not(HasSubstr("\x1b"))));
  EXPECT_LT(WhyNoWorkerName(std::string(64, '\x1b')).size(), 160u);
}

}  // namespace
}  // namespace paceline
