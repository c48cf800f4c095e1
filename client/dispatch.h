// Which command calls which function, with which of its options, on a machine
// and a mesh that main.cc or a test brings.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/commands/mesh/mesh.h"
#include "client/files/job_file.h"
#include "client/files/settings.h"
#include "client/options.h"

namespace paceline {

// Commands use these of this machine and, for `up` and trust, of others.
struct Tools {
  // The job of a file that the command line names.
  std::function<absl::StatusOr<ParsedJob>(const std::string& file,
                                          const std::vector<std::string>& sets)>
      read_job;
  ReadMetadata read_metadata = nullptr;
  LoadModelWeights load_weights = nullptr;
  ReadWeights read_weights = nullptr;
  ReadTensors read_tensors = nullptr;
  Connect connect = nullptr;
  OpenTrust open_trust = nullptr;
  // Random: two submissions of the whole world never share one.
  std::string request_id;
};

// A command line that is carried out.
struct Call {
  const ClientOptions& options;
  const Tools& tools;
  Console& console;
  const Clock& clock;
  Settings settings = {};
  const CommandContext* mesh = nullptr;  // null: the command needs none
  std::string named = {};                // the coordinator as the user calls it
  std::string tls_folder = {};           // of the user's certificate for it
};

enum class Needs {
  kNothing,   // not even settings
  kSettings,  // no mesh
  kContexts,  // no mesh; a context that is named need not exist yet
  kMesh,
  kDoctor,  // as kMesh; tells itself what is wrong with a certificate
  kTrust,   // the coordinator's tokens and certificates
  kLogin    // as kTrust; has no good certificate yet
};

struct CommandRow {
  absl::string_view name;  // ClientOptions::command
  Needs needs;
  Outcome (*run)(const Call&);
};

// There is one for every command of options.h.
const CommandRow& RowOf(const ClientOptions& options);

// How this program was called, without the command.
std::string ProgramText(const ClientOptions& options);

}  // namespace paceline
