// Messages as JSON for files that people may read.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace paceline {

// Over several lines; fields at their defaults are left out.
std::string ToJson(const google::protobuf::Message& message);
// The same on one line.
std::string ToJsonLine(const google::protobuf::Message& message);

// Errors: InvalidArgument  not JSON, or a field that the message lacks
absl::Status FromJson(const std::string& json,
                      google::protobuf::Message& message);

}  // namespace paceline
