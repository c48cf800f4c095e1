#include "core/rpc/convert/json_convert.h"

#include "core/base/errors.h"
#include "google/protobuf/util/json_util.h"

namespace paceline {

namespace util = google::protobuf::util;

std::string ToJson(const google::protobuf::Message& message, bool lines) {
  util::JsonPrintOptions options;
  options.add_whitespace = lines;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto written = util::MessageToJsonString(message, &json, options);
  return written.ok() ? json : "";  // only a message of "Any" cannot be
}

absl::Status FromJson(const std::string& json,
                      google::protobuf::Message& message) {
  const auto read = util::JsonStringToMessage(json, &message);
  return read.ok() ? absl::OkStatus() : InvalidArgument(read.ToString());
}

}  // namespace paceline
