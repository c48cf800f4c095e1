#include "client/files/settings.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/files/whole_file.h"
#include "client/files/yaml.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/cluster/registration.h"
#include "core/job/spec/job_spec.h"
#include "core/os/files.h"
#include "core/os/host_port.h"

namespace paceline {

namespace {

// The settings: keys of a file, variables of the environment.
struct SettingKey {
  const char* name;
  const char* variable;
  std::optional<std::string> SettingsSource::*value;
};
constexpr SettingKey kKeys[] = {
    {"coordinator", "PACELINE_COORDINATOR", &SettingsSource::coordinator},
    {"output", "PACELINE_OUTPUT", &SettingsSource::output},
    {"secret-file", "PACELINE_SECRET_FILE", &SettingsSource::secret_file}};

// Nothing for a variable that is empty or not set.
std::optional<std::string> Given(const char* name) {
  const std::string value = Environment(name);
  return value.empty() ? std::nullopt : std::optional(value);
}

// Room for the keys and for comments on them.
constexpr int64_t kMostFileBytes = 1 << 16;
// The unit's StateDirectory=.
constexpr char kHostFolder[] = "/var/lib/paceline-coordinator/tls/client";

// Empty: the user has no home.
std::string UserFolder() {
  if (const auto folder = Given("XDG_CONFIG_HOME")) {
    return *folder + "/paceline";
  }
  const auto home = Given("HOME");
  return home.has_value() ? *home + "/.config/paceline" : "";
}

std::string CurrentContextFile() { return UserFolder() + "/context"; }

// Errors: InvalidArgument  no name is like this one
absl::StatusOr<std::string> ContextFile(const std::string& name) {
  const std::string why = WhyNoWorkerName(name, "context");
  if (!why.empty()) return InvalidArgument(why);
  return absl::StrCat(UserFolder(), "/contexts/", name, ".yaml");
}

// With its folder.
absl::Status WriteUserFile(const std::string& path, const std::string& text) {
  if (UserFolder().empty()) {
    return FailedPrecondition(
        "there is no folder for settings: set HOME or XDG_CONFIG_HOME");
  }
  PACELINE_RETURN_IF_ERROR(
      MakeFolders(std::filesystem::path(path).parent_path()));
  return WriteWholeFile(path, text);
}

// In quotes: YAML takes a bare [::1]:7400 for a list.
std::string CoordinatorLine(const std::string& coordinator) {
  return absl::StrCat("coordinator: \"", coordinator, "\"\n");
}

}  // namespace

absl::Status CheckCoordinator(const std::string& address) {
  if (address == kAutoCoordinator) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(address));
  if (!where.host.empty() && where.port > 0) return absl::OkStatus();
  return InvalidArgument("'", address, "' names no ",
                         where.host.empty() ? "host" : "port",
                         ": it must be HOST:PORT, as in ", kDefaultCoordinator);
}

absl::StatusOr<Settings> ResolveSettings(
    const std::vector<SettingsSource>& sources) {
  Settings settings;
  bool have_coordinator = false, have_output = false;
  for (const SettingsSource& source : sources) {
    if (source.coordinator.has_value() &&
        !std::exchange(have_coordinator, true)) {
      if (const absl::Status checked = CheckCoordinator(*source.coordinator);
          !checked.ok()) {
        return InvalidArgument(source.where, ": coordinator ",
                               checked.message());
      }
      settings.coordinator = *source.coordinator;
    }
    // A secret is of one mesh: that of a file which names another is not shown.
    const bool is_of_mesh = source.coordinator.value_or(settings.coordinator) ==
                            settings.coordinator;
    if (source.secret_file.has_value() && settings.secret_file.empty() &&
        is_of_mesh) {
      settings.secret_file = *source.secret_file;
    }
    if (source.output.has_value() && !std::exchange(have_output, true) &&
        !ParseOutputFormat(*source.output, &settings.output)) {
      return InvalidArgument(source.where, ": output '", *source.output,
                             "' is none of table, json, jsonl, yaml");
    }
  }
  return settings;
}

absl::StatusOr<Settings> GatherSettings(
    const SettingsSource& flags, const std::optional<std::string>& context) {
  std::vector<SettingsSource> sources = {flags};
  std::string other;  // context, that is not named on the command line
  if (context.has_value()) {
    PACELINE_ASSIGN_OR_RETURN(sources.emplace_back(), ReadContext(*context));
  } else {
    other = Given("PACELINE_CONTEXT").value_or(CurrentContext());
  }
  sources.push_back(EnvironmentSettings());
  if (!other.empty()) {
    PACELINE_ASSIGN_OR_RETURN(sources.emplace_back(), ReadContext(other));
  }
  for (const std::string& path : SettingsFiles()) {
    PACELINE_ASSIGN_OR_RETURN(std::optional<SettingsSource> source,
                              ReadSettingsFile(path));
    if (source.has_value()) sources.push_back(*std::move(source));
  }
  return ResolveSettings(sources);
}

std::vector<std::string> ContextNames() {
  std::vector<std::string> names;
  std::error_code error;  // no such folder: no contexts
  for (const auto& entry :
       std::filesystem::directory_iterator(UserFolder() + "/contexts", error)) {
    if (entry.path().extension() != ".yaml") continue;
    names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<SettingsSource> ReadContext(const std::string& name) {
  PACELINE_ASSIGN_OR_RETURN(const std::string path, ContextFile(name));
  PACELINE_ASSIGN_OR_RETURN(std::optional<SettingsSource> source,
                            ReadSettingsFile(path));
  if (source.has_value()) return *std::move(source);
  const std::vector<std::string> names = ContextNames();
  return NotFound(
      "there is no context '", name, "'; there ",
      names.empty() ? "are none" : "are: " + absl::StrJoin(names, ", "),
      "; make it with 'paceline context set ", name, " HOST:PORT'");
}

std::string CurrentContext() {
  const auto text = ReadWholeFile(CurrentContextFile(), kMostFileBytes);
  return std::string(absl::StripAsciiWhitespace(text.value_or("")));
}

absl::Status UseContext(const std::string& name) {
  if (!name.empty()) PACELINE_RETURN_IF_ERROR(ReadContext(name).status());
  return WriteUserFile(CurrentContextFile(), name + "\n");
}

absl::Status SetContext(const std::string& name,
                        const std::string& coordinator) {
  PACELINE_RETURN_IF_ERROR(CheckCoordinator(coordinator));
  PACELINE_ASSIGN_OR_RETURN(const std::string path, ContextFile(name));
  return WriteUserFile(path, CoordinatorLine(coordinator));
}

absl::Status DeleteContext(const std::string& name) {
  PACELINE_ASSIGN_OR_RETURN(const std::string path, ContextFile(name));
  if (unlink(path.c_str()) != 0) return FileError("remove", path, errno);
  return CurrentContext() == name ? UseContext("") : absl::OkStatus();
}

SettingsSource EnvironmentSettings() {
  SettingsSource source;
  source.where = "environment";
  for (const SettingKey& key : kKeys) source.*key.value = Given(key.variable);
  return source;
}

std::vector<std::string> SettingsFiles() {
  std::vector<std::string> files = {"paceline.yaml"};
  if (const std::string folder = UserFolder(); !folder.empty()) {
    files.push_back(UserSettingsFile());
  }
  files.push_back("/etc/paceline/paceline.yaml");
  return files;
}

std::string UserSettingsFile() { return UserFolder() + "/paceline.yaml"; }

std::string UserName() {
  const passwd* const user = getpwuid(geteuid());
  return user == nullptr ? "user" : user->pw_name;
}

std::string TlsFolder(const std::optional<std::string>& given,
                      const std::string& coordinator) {
  if (given.has_value()) return *given;
  if (const auto variable = Given("PACELINE_TLS_DIR")) return *variable;
  const std::string own = absl::StrCat(UserFolder(), "/tls/", coordinator);
  // Another mesh on this host, as of 'paceline up', has another port.
  const bool has_own =
      access(absl::StrCat(own, "/certificate.pem").c_str(), F_OK) == 0;
  if (!has_own && coordinator == kDefaultCoordinator &&
      access(absl::StrCat(kHostFolder, "/key.pem").c_str(), R_OK) == 0) {
    return kHostFolder;
  }
  return own;
}

absl::StatusOr<bool> RememberCoordinator(const std::string& path,
                                         const std::string& coordinator) {
  PACELINE_ASSIGN_OR_RETURN(const std::optional<SettingsSource> there,
                            ReadSettingsFile(path));
  if (there.has_value() && there->coordinator.has_value()) {
    return *there->coordinator == coordinator;
  }
  std::string text;
  if (there.has_value()) {
    PACELINE_ASSIGN_OR_RETURN(text, ReadWholeFile(path, kMostFileBytes));
    if (!text.empty() && text.back() != '\n') text += '\n';
  }
  PACELINE_RETURN_IF_ERROR(
      WriteUserFile(path, text + CoordinatorLine(coordinator)));
  return true;
}

namespace {

template <typename... Parts>
absl::Status Wrong(const std::string& path, const YAML::Node& node,
                   const Parts&... why) {
  return InvalidArgument(path, ":", node.Mark().line + 1, ": ", why...);
}

absl::Status ReadEntry(const std::string& path, const YAML::Node& key,
                       const YAML::Node& value, SettingsSource& source) {
  if (!key.IsScalar()) return Wrong(path, key, "expected a key");
  const std::string name = Printable(key.Scalar());
  std::vector<std::string> names;
  std::optional<std::string>* target = nullptr;
  for (const SettingKey& known : kKeys) {
    names.emplace_back(known.name);
    if (name == known.name) target = &(source.*known.value);
  }
  if (target == nullptr) {
    return Wrong(path, key, name, ": ", UnknownKeyText(name, names));
  }
  if (target->has_value()) return Wrong(path, key, name, ": duplicate key");
  if (!value.IsScalar()) return Wrong(path, key, name, ": expected text");
  *target = value.Scalar();
  source.where = absl::StrCat(path, ":", key.Mark().line + 1);
  return absl::OkStatus();
}

absl::Status ReadRoot(const std::string& path, const YAML::Node& root,
                      SettingsSource& source) {
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) {
    return Wrong(path, root, "expected the keys coordinator and output");
  }
  for (const auto& entry : root) {
    PACELINE_RETURN_IF_ERROR(
        ReadEntry(path, entry.first, entry.second, source));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SettingsSource> ParseSettingsFile(const std::string& path,
                                                 const std::string& text) {
  SettingsSource source;
  source.where = path;
  PACELINE_RETURN_IF_ERROR(ReadYaml(
      path, text, "a file of settings", /*needs=*/"",
      [&](const YAML::Node& root) { return ReadRoot(path, root, source); }));
  return source;
}

absl::StatusOr<std::optional<SettingsSource>> ReadSettingsFile(
    const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 &&
      (errno == ENOENT || errno == ENOTDIR)) {
    return std::nullopt;
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(path, kMostFileBytes);
  if (!text.ok()) {
    return InvalidArgument(
        text.status().message(),
        "; settings are looked for there: rename what it is, or make it a "
        "readable file of settings");
  }
  PACELINE_ASSIGN_OR_RETURN(SettingsSource source,
                            ParseSettingsFile(path, *text));
  return source;
}

}  // namespace paceline
