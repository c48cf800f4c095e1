#include "client/settings.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

std::optional<std::string> Environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// host:port with a port that a coordinator can have.
bool LooksLikeAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '/') return false;
  }
  int port = 0;
  return absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 &&
         port <= 65535;
}

}  // namespace

absl::StatusOr<Settings> ResolveSettings(
    const std::vector<SettingsSource>& sources) {
  Settings settings;
  bool have_coordinator = false;
  bool have_output = false;
  for (size_t i = 0; i < sources.size(); ++i) {
    const SettingsSource& source = sources[i];
    if (source.coordinator.has_value() && !have_coordinator) {
      if (!LooksLikeAddress(*source.coordinator)) {
        return absl::InvalidArgumentError(
            absl::StrCat(source.where, ": coordinator '", *source.coordinator,
                         "' is not HOST:PORT, as in ", kDefaultCoordinator));
      }
      have_coordinator = true;
      settings.coordinator = *source.coordinator;
      settings.coordinator_from_flag = i == 0;
    }
    if (source.output.has_value() && !have_output) {
      if (!ParseOutputFormat(*source.output, &settings.output)) {
        return absl::InvalidArgumentError(
            absl::StrCat(source.where, ": output '", *source.output,
                         "' is none of table, json, jsonl, yaml"));
      }
      have_output = true;
    }
  }
  return settings;
}

SettingsSource EnvironmentSettings() {
  return {.where = "environment",
          .coordinator = Environment("PACELINE_COORDINATOR"),
          .output = Environment("PACELINE_OUTPUT")};
}

std::vector<std::string> SettingsFiles() {
  std::vector<std::string> files = {"paceline.yaml"};
  if (const auto folder = Environment("XDG_CONFIG_HOME"); folder.has_value()) {
    files.push_back(*folder + "/paceline/paceline.yaml");
  } else if (const auto home = Environment("HOME"); home.has_value()) {
    files.push_back(*home + "/.config/paceline/paceline.yaml");
  }
  files.push_back("/etc/paceline/paceline.yaml");
  return files;
}

}  // namespace paceline
