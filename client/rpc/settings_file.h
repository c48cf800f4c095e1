// The client's configuration file: YAML with the keys `coordinator` and
// `output`.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/settings.h"

namespace paceline {

// Errors: InvalidArgument  not YAML, an unknown or duplicate key, a value that
//                          is no text; names the line
absl::StatusOr<SettingsSource> ParseSettingsFile(const std::string& path,
                                                 const std::string& text);

// Nothing when nothing is there.
// Errors: as above, and InvalidArgument when something is there but cannot be
//         read, is no regular file, or is far too large
absl::StatusOr<std::optional<SettingsSource>> ReadSettingsFile(
    const std::string& path);

}  // namespace paceline
