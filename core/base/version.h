// The version that `--version` prints.
#pragma once

namespace paceline {

constexpr char kVersion[] = "0.1.0";

}  // namespace paceline
