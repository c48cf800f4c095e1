// `paceline context ...`: names for meshes.  These commands ask no coordinator.
// Each prints to the console and returns the exit code.
#pragma once

#include <string>

#include "client/commands/command.h"

namespace paceline {

ExitCode ListContextsCommand(Console& console);

ExitCode SetContextCommand(Console& console, const std::string& name,
                           const std::string& coordinator);

// name: empty for no context.
ExitCode UseContextCommand(Console& console, const std::string& name);

ExitCode DeleteContextCommand(Console& console, const std::string& name);

}  // namespace paceline
