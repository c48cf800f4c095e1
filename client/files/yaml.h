// YAML files of people.  Only for client/files: yaml-cpp stays in there.
#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "yaml-cpp/yaml.h"

namespace paceline {

// Hands the one document of `text` to `read`.  Nothing that yaml-cpp throws
// leaves this function, not even out of `read`.
//   name  of the file, for errors
//   kind  "a job file"
//   needs  what the least such file holds: "names at least model.name"; empty:
//          the file may be empty
// Errors: InvalidArgument  no YAML, empty, or with a second document
//         and those of `read`
absl::Status ReadYaml(const std::string& name, const std::string& text,
                      const std::string& kind, const std::string& needs,
                      absl::FunctionRef<absl::Status(const YAML::Node&)> read);

// Names what stands where something else is expected: "a list", "'text'".
std::string NodeText(const YAML::Node& node);

// "unknown key; did you mean 'x'?", else "unknown key; known here: x, y".
std::string UnknownKeyText(const std::string& key,
                           const std::vector<std::string>& known);

// The text as a message quotes it: printable, and its beginning if it is long.
std::string Excerpt(absl::string_view text);

}  // namespace paceline
