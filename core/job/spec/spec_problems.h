// Gathers what the checks of a job spec find.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

// "; did you mean 'equal'?" of the one in `known` that is like `word`; empty
// where none is.
std::string MeantText(const std::string& word,
                      const std::vector<std::string>& known);

// Gathers what is wrong, in the order in which it is asked for.
// Thread-compatible.
class SpecProblems {
 public:
  // why: joined as absl::StrCat joins.
  template <typename... Parts>
  void Add(std::string path, const Parts&... why) {
    problems_.push_back({std::move(path), absl::StrCat(why...)});
  }

  // Adds nothing and returns true when low <= value <= high.
  bool Whole(const char* path, int64_t value, int64_t low, int64_t high);

  // Adds nothing and returns true when `value` is finite and `good`, which
  // `range` says in words.
  bool Number(const char* path, double value, bool good, const char* range);

  // Adds nothing and returns true when `word` is one of `known`; else names
  // them, and the one that was probably meant.  what: "data set".
  bool OneOf(const char* path, const char* what, const std::string& word,
             const std::vector<std::string>& known);

  // Adds nothing when `file`, which workers open, is an absolute path or empty.
  // readers: "every worker".
  bool AbsolutePath(const char* path, const std::string& file,
                    const char* readers);

  // Adds nothing when `shares` has a positive number for each of the workers.
  void Shares(const char* path, const std::vector<double>& shares,
              size_t workers);

  std::vector<SpecProblem> Take();

 private:
  std::vector<SpecProblem> problems_;
};

}  // namespace paceline
