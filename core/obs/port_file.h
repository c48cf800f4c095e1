// Where a daemon says which ports it got, for whoever started it with port 0.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace paceline {

// Writes {"grpc": "host:port", "http": "host:port", "pid": N} to `path`, whole
// or not at all, for --port-file.  An empty path: nothing is to be written.
// Errors: Unavailable  the file cannot be written; names flag, path and why.
absl::Status WritePortFile(const std::string& path, const std::string& grpc,
                           const std::string& http);

}  // namespace paceline
