// The command line of `paceline simulate`.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/exit_code.h"
#include "client/options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::optional<ParseStop> Parse(std::vector<const char*> words,
                               ClientOptions* options) {
  words.insert(words.begin(), {"paceline", "simulate"});
  return ParseClientOptions(static_cast<int>(words.size()), words.data(),
                            options);
}

TEST(SimulateOptions, AreReadAsTheyAreGiven) {
  ClientOptions options;

  const auto stop = Parse({"--speed",
                           "1,0.5",
                           "--bandwidth",
                           "1e9",
                           "--schedule",
                           "gpipe",
                           "--micro-batches",
                           "8",
                           "--slow",
                           "d0@1=2",
                           "--slow",
                           "d1@2=3",
                           "--fail",
                           "d1@9",
                           "--stages",
                           "2",
                           "--steps",
                           "3",
                           "--inference",
                           "--trace",
                           "t.json",
                           "-o",
                           "json"},
                          &options);

  ASSERT_FALSE(stop.has_value()) << stop->err;
  const SimulateFlags& flags = options.simulate;
  EXPECT_EQ(options.command, Command::kSimulate);
  EXPECT_THAT(flags.playground.speeds, ElementsAre(1, 0.5));
  EXPECT_THAT(flags.playground.bandwidths, ElementsAre(1e9));
  EXPECT_EQ(flags.schedule, "gpipe");
  EXPECT_EQ(flags.micro_batches, 8);
  EXPECT_THAT(flags.slow, ElementsAre("d0@1=2", "d1@2=3"));
  EXPECT_THAT(flags.fail, ElementsAre("d1@9"));
  EXPECT_EQ(flags.playground.stages, 2);
  EXPECT_EQ(flags.steps, 3);
  EXPECT_TRUE(flags.inference);
  EXPECT_EQ(flags.trace_file, "t.json");
  EXPECT_EQ(options.output, "json");
}

TEST(SimulateOptions, NameTheFlagThatIsWrong) {
  for (const auto& [words, flag] :
       std::vector<std::pair<std::vector<const char*>, std::string>>{
           {{"--devices", "many"}, "--devices"},
           {{"--speed", "1,fast"}, "--speed"},
           {{"--bandwidth", "1gbit"}, "--bandwidth"},
           {{"--steps", "0"}, "--steps"},
           {{"--credit", "-1"}, "--credit"},
           {{"--micro-batches", "1.5"}, "--micro-batches"},
           {{"--plan", "p.json", "--devices", "3"}, "--devices"},
           {{"--model", "lenet", "--layers", "3"}, "--layers"},
           {{"--set", "model.depth=2"}, "--model"},
           {{"--flops", "1e9"}, "--model"}}) {
    ClientOptions options;

    const auto stop = Parse(words, &options);

    ASSERT_TRUE(stop.has_value()) << words[0];
    EXPECT_EQ(stop->exit_code, kExitUsage);
    EXPECT_THAT(stop->err, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace paceline
