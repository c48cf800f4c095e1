#include "client/node_commands.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using json = nlohmann::json;

TEST(Nodes, AreDrainedAndTakenBack) {
  CommandBed bed(OutputFormat::kJson);
  WorkerView worker;
  worker.name = "w1";
  worker.state = "draining";
  worker.drained = true;
  worker.job = 7;
  bed.client.drain_answer = worker;

  EXPECT_EQ(DrainNodeCommand(bed.context, "w1", true), kExitOk);
  const json shown = json::parse(bed.out.str());
  EXPECT_EQ(DrainNodeCommand(bed.context, "4", false), kExitOk);

  EXPECT_EQ(shown["state"], "draining");
  EXPECT_EQ(shown["drained"], true);
  EXPECT_EQ(bed.client.drained, (std::vector<std::pair<std::string, bool>>{
                                    {"w1", true}, {"4", false}}));
}

TEST(Nodes, SayWhatDrainingThemComesTo) {
  const struct {
    int64_t job;
    bool drain;
    const char* text;
  } kCases[] = {
      {0, true, "worker w1 is drained: it gets nothing new\n"},
      {7, true,
       "worker w1 is draining: it gets nothing new, and ends its part in job 7 "
       "first\n"},
      {0, false, "worker w1 takes new work again\n"},
  };
  for (const auto& test : kCases) {
    CommandBed bed;
    WorkerView worker;
    worker.name = "w1";
    worker.job = test.job;
    bed.client.drain_answer = worker;

    EXPECT_EQ(DrainNodeCommand(bed.context, "w1", test.drain), kExitOk);

    EXPECT_EQ(bed.out.str(), test.text);
  }
}

TEST(Nodes, ThatDoNotExistCannotBeDrained) {
  CommandBed bed;
  bed.client.drain_answer =
      absl::NotFoundError("no worker 'w9'; known are: w1, w2");

  EXPECT_EQ(DrainNodeCommand(bed.context, "w9", true), kExitNotFound);

  EXPECT_THAT(bed.err.str(), HasSubstr("known are: w1, w2"));
}

}  // namespace
}  // namespace paceline
