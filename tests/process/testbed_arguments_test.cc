// deploy/testbed.sh: what cannot be asked for.  Needs no root.

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/child.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

Finished Testbed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), PACELINE_SOURCE_DIR "/deploy/testbed.sh");
  return RunCommand(arguments, std::chrono::seconds(60));
}

struct BadArguments {
  std::vector<std::string> arguments;
  std::string complaint;
};

TEST(TestbedArguments, ThatAreWrongAreNamed) {
  const std::vector<BadArguments> all = {
      {{"up", "--cpu", "0"}, "--cpu 0: a node needs at least 0.01"},
      {{"up", "--cpu", "-1"}, "--cpu -1: need a number"},
      {{"up", "--cpu", "nan"}, "--cpu nan: need a number"},
      {{"up", "--cpu", "."}, "--cpu .: need a number"},
      {{"up", "--cpu", "9999"}, "--cpu 9999: a node cannot get more"},
      {{"up", "--cpu-of", "9=0.2"}, "no node 9; this bed has 1 to 4"},
      {{"up", "--cpu-of", "0=0.2"}, "no node 0; this bed has 1 to 4"},
      {{"up", "--cpu-of", "3"}, "--cpu-of 3: need NODE=VALUE"},
      {{"up", "--cpu-of", "3=0"}, "at least 0.01"},
      {{"up", "--rate", "10"}, "--rate 10: need a rate as 1gbit"},
      {{"up", "--rate", "0mbit"}, "--rate 0mbit: need 64kbit to 100gbit"},
      {{"up", "--rate", "999999999999gbit"}, "need 64kbit to 100gbit"},
      {{"up", "--rate-of", "9=1gbit"}, "no node 9; this bed has 1 to 4"},
      {{"up", "--rate-of", "1=fast"}, "--rate-of fast: need a rate"},
      {{"up", "--nodes", "0"}, "--nodes 0: need a whole number from 1 to 200"},
      {{"up", "--nodes", "2.5"}, "--nodes 2.5: need a whole number"},
      {{"up", "--threads", "0"}, "--threads 0: need a whole number from 1"},
      {{"up", "--lease", "0.5"}, "--lease 0.5: need a whole number from 1"},
      {{"up", "--name", "../x"}, "--name '../x': need 1 to 32"},
      {{"up", "--nodes"}, "--nodes needs a value"},
      {{"up", "--speed", "1"}, "unknown option '--speed'"},
      {{"exec"}, "which command?"},
      {{"kill"}, "which node?"},
      {{"start", "two"}, "which node?"},
      {{"set"}, "give --cpu-of"},
      {{"status", "-o", "xml"}, "-o xml: need table or json"},
      {{"dance"}, "unknown command 'dance'"},
  };
  for (const BadArguments& bad : all) {
    const Finished finished = Testbed(bad.arguments);

    EXPECT_EQ(finished.exit_code, 2) << bad.complaint;
    EXPECT_THAT(finished.errors, HasSubstr(bad.complaint));
  }
}

}  // namespace
}  // namespace paceline
