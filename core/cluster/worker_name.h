// What a worker may be called.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace paceline {

inline constexpr size_t kMaxWorkerNameBytes = 63;  // a host name's label

// Why `name` is none; empty: it is.  Of a name that is none, at most 64 bytes
// are repeated, and nothing that a terminal would obey.
std::string WhyNoWorkerName(absl::string_view name);

}  // namespace paceline
