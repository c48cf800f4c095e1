// Byte counts for people.  Pure.
#pragma once

#include <cstdint>
#include <string>

namespace paceline {

// "512 B", "1.5 GiB": the largest binary unit that gives at least 1, one
// decimal, rounded down so that a bound never reads larger than it is.
// bytes >= 0.
std::string BytesText(int64_t bytes);

}  // namespace paceline
