// Messages as JSON for files that people may read.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace paceline {

// Over several lines, or on one; fields at their defaults are left out.
std::string ToJson(const google::protobuf::Message& message, bool lines = true);

// Errors: InvalidArgument  not JSON, or a field that the message lacks
absl::Status FromJson(const std::string& json,
                      google::protobuf::Message& message);

}  // namespace paceline
