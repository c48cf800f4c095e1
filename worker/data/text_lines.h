// Texts of which a sample is a line: where their files are, and which lines are
// for evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/model/job_spec.h"

namespace paceline {

// `path` itself; or of a folder its train.txt and, if there is one, val.txt.
std::vector<std::string> TextFilesOf(const std::string& path);

// How many of `train` lines of the only file are for evaluation, the last ones.
int64_t TestLinesOf(const DataSpec& data, int64_t train);

// Errors: InvalidArgument  a split without lines
//   has_test  evaluation is wanted
absl::Status CheckLines(const DataSpec& data, int64_t train, int64_t test,
                        bool has_test);

// Takes evaluation's lines, which have a file of their own or are the last of
// the only one.  Errors: as CheckLines.
template <typename Line>
absl::Status DivideLines(const DataSpec& data, bool one_file,
                         std::vector<Line>& train, std::vector<Line>& test) {
  if (one_file) {
    const int64_t lines = TestLinesOf(data, static_cast<int64_t>(train.size()));
    test.assign(train.end() - lines, train.end());
    train.resize(train.size() - lines);
  }
  return CheckLines(data, static_cast<int64_t>(train.size()),
                    static_cast<int64_t>(test.size()),
                    !one_file || data.test_fraction > 0);
}

}  // namespace paceline
