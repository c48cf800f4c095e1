#include "client/closed_word.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/job_spec.h"

namespace paceline {

std::string WhyNotAmong(const std::string& what, const std::string& word,
                        const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), word) != names.end()) return "";
  const std::string meant = DidYouMean(word, names);
  return absl::StrCat(
      "there is no ", what, " '", word, "'",
      meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?"),
      "; there are: ", absl::StrJoin(names, ", "));
}

}  // namespace paceline
