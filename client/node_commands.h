// `paceline node ...`.
#pragma once

#include <string>

#include "client/command.h"

namespace paceline {

ExitCode ListNodesCommand(const CommandContext& context);

// word: a worker's name or its number.
ExitCode ShowNodeCommand(const CommandContext& context,
                         const std::string& word);

}  // namespace paceline
