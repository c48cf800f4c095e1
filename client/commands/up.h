// `paceline up`: a whole mesh on this machine until Ctrl-C.
#pragma once

#include <string>

#include "client/commands/command.h"
#include "client/commands/mesh.h"
#include "client/commands/pause.h"
#include "client/render/console.h"

namespace paceline {

struct UpOptions {
  MeshOptions mesh;
  std::string ready_file;  // written once ready; empty: none
};

// Runs until the pauser says so, and then ends with kExitOk: stopping is what
// Ctrl-C is for here.
ExitCode UpCommand(const UpOptions& options, Console& console,
                   const Clock& clock, Pauser& pauser, Connect connect);

// $XDG_STATE_HOME/paceline/up or ~/.local/state/paceline/up.
std::string DefaultUpState();

}  // namespace paceline
