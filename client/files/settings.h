// Settings that may come from a flag, the environment or a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/values/document.h"

namespace paceline {

constexpr char kDefaultCoordinator[] = "127.0.0.1:7400";

// The settings of one source; an absent one says nothing.
struct SettingsSource {
  std::string where;  // for error messages: "--coordinator", a file's name
  std::optional<std::string> coordinator;
  std::optional<std::string> output;
  std::optional<std::string> secret_file = {};
};

struct Settings {
  std::string coordinator = kDefaultCoordinator;
  OutputFormat output = OutputFormat::kTable;
  std::string secret_file;  // of the coordinator; empty: none is named
};

// sources: in falling order of rank, the flags first.  The first source that
// has a word on a setting decides.
// Errors: InvalidArgument  an output format that does not exist, or a
//                          coordinator that is not host:port; names where it
//                          is from
absl::StatusOr<Settings> ResolveSettings(
    const std::vector<SettingsSource>& sources);

// Settings from all places: `flags`, the environment, files.
//   context  that of the command line
// Errors: those of ResolveSettings(), ReadContext() and ReadSettingsFile()
absl::StatusOr<Settings> GatherSettings(
    const SettingsSource& flags, const std::optional<std::string>& context);

// Errors: InvalidArgument  it is neither HOST:PORT nor "auto"
absl::Status CheckCoordinator(const std::string& address);

// The settings of the environment: PACELINE_COORDINATOR, PACELINE_OUTPUT,
// PACELINE_SECRET_FILE.
SettingsSource EnvironmentSettings();

// Where files are looked for, in falling order of rank: ./paceline.yaml, the
// user's, /etc/paceline/paceline.yaml.
std::vector<std::string> SettingsFiles();

// The folder of the certificate for a coordinator: `given`, or
// $PACELINE_TLS_DIR, or where 'login' writes it.  For the default coordinator
// it is the one that the coordinator's service made, where this user may read
// that and has no own.
std::string TlsFolder(const std::optional<std::string>& given,
                      const std::string& coordinator);
// The user's own file of settings and login name.
std::string UserSettingsFile();
std::string UserName();

// A context is a mesh's settings under a name: a file in the folder `contexts`
// beside the user's own file of settings.

// Sorted.
std::vector<std::string> ContextNames();
// Errors: NotFound  there is none of this name; lists those there are
//         InvalidArgument  no name is like this one
//         and those of ReadSettingsFile()
absl::StatusOr<SettingsSource> ReadContext(const std::string& name);
// The one that holds where nothing else names one; empty: none does.
std::string CurrentContext();
// Empty: none from now on.
// Errors: those of ReadContext(), MakeFolders() and WriteWholeFile()
absl::Status UseContext(const std::string& name);
// Makes one, or writes it anew.
// Errors: InvalidArgument  no name is like this one
//         and those of CheckCoordinator(), MakeFolders() and WriteWholeFile()
absl::Status SetContext(const std::string& name,
                        const std::string& coordinator);
// Errors: NotFound  there is none
//         InvalidArgument  no name is like this one
//         and those of UseContext() and FileError()
absl::Status DeleteContext(const std::string& name);

// Writes the coordinator to the file of settings where that names none yet.
// False: it names one.
// Errors: those of WriteWholeFile() and ReadSettingsFile()
absl::StatusOr<bool> RememberCoordinator(const std::string& path,
                                         const std::string& coordinator);

// The client's configuration file: YAML with the keys `coordinator`, `output`
// and `secret-file`.

// Errors: InvalidArgument  not YAML, an unknown or duplicate key, a value that
//                          is no text; names the line
absl::StatusOr<SettingsSource> ParseSettingsFile(const std::string& path,
                                                 const std::string& text);

// Nothing when nothing is there.
// Errors: as above, and InvalidArgument when something is there but cannot be
//         read, is no regular file, or is far too large
absl::StatusOr<std::optional<SettingsSource>> ReadSettingsFile(
    const std::string& path);

}  // namespace paceline
