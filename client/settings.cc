#include "client/settings.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/base/host_port.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

std::optional<std::string> Environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// Errors: InvalidArgument  no coordinator can be there
absl::Status CheckCoordinator(const std::string& address) {
  PACELINE_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(address));
  if (!where.host.empty() && where.port > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", address, "' names no ", where.host.empty() ? "host" : "port",
      ": it must be HOST:PORT, as in ", kDefaultCoordinator));
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
      if (const absl::Status checked = CheckCoordinator(*source.coordinator);
          !checked.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(source.where, ": coordinator ", checked.message()));
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
