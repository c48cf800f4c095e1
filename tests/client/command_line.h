// Command lines as a person types them, for tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "client/options.h"
#include "gtest/gtest.h"

namespace paceline {

// Parses "paceline WORDS", which have no blanks in them; '' is an empty word.
inline std::optional<ParseStop> ParseWords(const std::string& words,
                                           ClientOptions* options) {
  std::vector<std::string> all =
      absl::StrSplit("paceline " + words, ' ', absl::SkipEmpty());
  std::vector<const char*> arguments;
  for (const std::string& word : all) {
    arguments.push_back(word == "''" ? "" : word.c_str());
  }
  return ParseClientOptions(static_cast<int>(arguments.size()),
                            arguments.data(), options);
}

inline ClientOptions Parsed(const std::string& words) {
  ClientOptions options;
  const auto stop = ParseWords(words, &options);
  EXPECT_FALSE(stop.has_value()) << stop->err;
  return options;
}

inline ParseStop Stopped(const std::string& words) {
  ClientOptions options;
  const auto stop = ParseWords(words, &options);
  EXPECT_TRUE(stop.has_value());
  return stop.value_or(ParseStop());
}

}  // namespace paceline
