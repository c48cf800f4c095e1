// Words of which there is a closed list: names of policies, of schedules.
#pragma once

#include <string>
#include <vector>

namespace paceline {

// "there is no policy 'mincut'; did you mean 'min-cut'?; there are: ..."; empty
// when `word` is one of `names`.  CLI11's IsMember says no "did you mean".
//   what  "policy"
std::string WhyNotAmong(const std::string& what, const std::string& word,
                        const std::vector<std::string>& names);

}  // namespace paceline
