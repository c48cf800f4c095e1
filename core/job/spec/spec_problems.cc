#include "core/job/spec/spec_problems.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"

namespace paceline {

std::string MeantText(const std::string& word,
                      const std::vector<std::string>& known) {
  const std::string meant = DidYouMean(word, known);
  return meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?");
}

bool SpecProblems::Whole(const char* path, int64_t value, int64_t low,
                         int64_t high) {
  if (value >= low && value <= high) return true;
  Add(path, "must be a whole number from ", low, " to ", high, ", got ", value);
  return false;
}

bool SpecProblems::Number(const char* path, double value, bool good,
                          const char* range) {
  if (good && std::isfinite(value)) return true;
  Add(path, "must be ", range, ", got ", value);
  return false;
}

bool SpecProblems::OneOf(const char* path, const char* what,
                         const std::string& word,
                         const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return true;
  const std::string choices = absl::StrJoin(known, ", ");
  if (word.empty()) {
    Add(path, "names no ", what, "; choose one of: ", choices);
    return false;
  }
  Add(path, "unknown ", what, " '", word, "'", MeantText(word, known),
      "; choose one of: ", choices);
  return false;
}

// Daemons run in folders of their own: a relative path would mean another
// place on each of them.
bool SpecProblems::AbsolutePath(const char* path, const std::string& file,
                                const char* readers) {
  if (file.empty() || file.front() == '/') return true;
  Add(path, "must be an absolute path, at which ", readers, " finds it; got '",
      absl::CHexEscape(file), "'");
  return false;
}

void SpecProblems::Shares(const char* path, const std::vector<double>& shares,
                          size_t workers) {
  constexpr double kLeastShare = 1e-9, kGreatestShare = 1e9;
  const bool positive =
      std::all_of(shares.begin(), shares.end(), [](double share) {
        return share >= kLeastShare && share < kGreatestShare;
      });
  if (positive && shares.size() == workers) return;
  Add(path, "must be a positive number, ", kLeastShare, " to ", kGreatestShare,
      ", for each of the ", workers, " workers, got ",
      absl::StrJoin(shares, ","));
}

std::vector<SpecProblem> SpecProblems::Take() { return std::move(problems_); }

}  // namespace paceline
