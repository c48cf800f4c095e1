// Matchers of texts by the words that matter in them.
#pragma once

#include "gmock/gmock.h"

namespace paceline {

// Matches text that has all of these parts.
template <typename... Parts>
auto Says(const Parts&... parts) {
  return testing::AllOf(testing::HasSubstr(parts)...);
}

// Matches a list that has a text with all of these parts.
template <typename... Parts>
auto Tells(const Parts&... parts) {
  return testing::Contains(Says(parts...));
}

}  // namespace paceline
