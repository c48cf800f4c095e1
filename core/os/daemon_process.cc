#include "core/os/daemon_process.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/os/files.h"

namespace paceline {
namespace {

constexpr size_t kMostBytesShown = 60;

// Only a comment may follow a value.
bool IsRest(absl::string_view text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  return text.empty() || text[0] == '#';
}

// "VALUE # comment", 'VALUE' or VALUE; nothing if it is none of these.
std::optional<std::string> ParseValue(absl::string_view text) {
  if (text.empty() || text[0] == '#') return std::nullopt;
  if (text[0] == '"' || text[0] == '\'') {
    const size_t end = text.find(text[0], 1);
    if (end == absl::string_view::npos || !IsRest(text.substr(end + 1))) {
      return std::nullopt;
    }
    return std::string(text.substr(1, end - 1));
  }
  const size_t end = text.find_first_of(" \t#\"'");
  if (end == absl::string_view::npos) return std::string(text);
  if (!IsRest(text.substr(end))) return std::nullopt;
  return std::string(text.substr(0, end));
}

}  // namespace

absl::Status WritePortFile(const std::string& path, const std::string& grpc,
                           const std::string& http) {
  if (path.empty()) return absl::OkStatus();
  const absl::Status written = WriteFileAtomically(
      path, absl::StrCat("{\"grpc\": \"", grpc, "\", \"http\": \"", http,
                         "\", \"pid\": ", getpid(), "}\n"));
  if (written.ok()) return written;
  return Unavailable("cannot write --port-file ", path, ": ",
                     written.message());
}

sigset_t BlockSignals(std::initializer_list<int> signals) {
  sigset_t blocked;
  sigemptyset(&blocked);
  if (std::getenv("NOTIFY_SOCKET") != nullptr) sigaddset(&blocked, SIGHUP);
  for (const int signal : signals) sigaddset(&blocked, signal);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return blocked;
}

int AwaitSignal(const sigset_t& signals, const std::function<void()>& reload) {
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGHUP) return signal;
    reload();
  }
}

bool TakeSignal(const sigset_t& signals) {
  const timespec no_time = {};
  return sigtimedwait(&signals, nullptr, &no_time) > 0;
}

std::string DefaultStateFolder(const std::string& daemon) {
  if (const char* given = std::getenv("STATE_DIRECTORY")) return given;
  if (geteuid() == 0) return absl::StrCat("/var/lib/paceline-", daemon);
  return absl::StrCat(HomeFolder(), "/.local/state/paceline/", daemon);
}

int DaemonExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kAborted:
      return kConfigurationExit;
    default:
      return 1;
  }
}

absl::StatusOr<std::vector<ConfigEntry>> ReadConfigFile(
    const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  // A folder opens, and fails at the first read.
  if (file.is_open()) file.peek();
  if (!file.is_open() || file.bad()) {
    const int error = errno;
    const std::string why = absl::StrCat("cannot read the configuration file ",
                                         path, ": ", std::strerror(error));
    return error == ENOENT ? NotFound(why) : InvalidArgument(why);
  }
  std::vector<ConfigEntry> entries;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (IsRest(text)) continue;
    const size_t equals = text.find('=');
    const std::string key(absl::StripAsciiWhitespace(text.substr(0, equals)));
    const std::string shown =
        absl::Utf8SafeCHexEscape(ToUtf8(key, kMostBytesShown));
    const std::string where = absl::StrCat(path, ":", number, ": ", shown);
    if (equals == absl::string_view::npos) {
      return InvalidArgument(where, ": need KEY = VALUE");
    }
    for (const ConfigEntry& earlier : entries) {
      if (earlier.key != key) continue;
      return InvalidArgument(where, ": is set already, by ", earlier.where);
    }
    std::optional<std::string> value =
        ParseValue(absl::StripLeadingAsciiWhitespace(text.substr(equals + 1)));
    if (!value.has_value()) {
      return InvalidArgument(where, ": need one value after '=', as in ", shown,
                             " = \"text\"");
    }
    entries.push_back({where, key, *std::move(value)});
  }
  return entries;
}

absl::Status SetConfigValue(const std::string& path, const std::string& key,
                            const std::string& value) {
  std::string text;
  bool set = false;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    const bool is_key = absl::StripAsciiWhitespace(
                            stripped.substr(0, stripped.find('='))) == key;
    if (is_key) line = absl::StrCat(key, " = \"", value, "\"");
    set = set || is_key;
    absl::StrAppend(&text, line, "\n");
  }
  if (!set) absl::StrAppend(&text, key, " = \"", value, "\"\n");
  struct stat before = {};
  const bool is_there = stat(path.c_str(), &before) == 0;
  return WriteFileAtomically(path, text,
                             is_there ? before.st_mode & 0777 : 0644);
}

absl::Status AtOption(const ConfigOrigins& origins, const std::string& key,
                      const absl::Status& status) {
  if (status.ok()) return status;
  const auto origin = origins.find(key);
  return absl::Status(
      status.code(),
      absl::StrCat(origin == origins.end() ? "--" + key : origin->second, ": ",
                   status.message()));
}

}  // namespace paceline
