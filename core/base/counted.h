// Numbers with what they count, as messages say them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace paceline {

// "1 worker", "2 workers", "0 batches", "3 copies".
//   noun  in the singular; its plural is a regular one
inline std::string Counted(int64_t count, absl::string_view noun) {
  if (count == 1) return absl::StrCat("1 ", noun);
  if (absl::EndsWith(noun, "y")) {
    noun.remove_suffix(1);
    return absl::StrCat(count, " ", noun, "ies");
  }
  const bool hisses = absl::EndsWith(noun, "s") || absl::EndsWith(noun, "ch");
  return absl::StrCat(count, " ", noun, hisses ? "es" : "s");
}

}  // namespace paceline
