// A daemon writes its ports to a file, for a caller that started it with port
// 0.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace paceline {

// Writes {"grpc": "host:port", "http": "host:port", "pid": N} to `path`, whole
// or not at all, for --port-file.  Writes nothing if the path is empty.
// Errors: Unavailable  the file cannot be written; names flag, path and why.
absl::Status WritePortFile(const std::string& path, const std::string& grpc,
                           const std::string& http);

}  // namespace paceline
