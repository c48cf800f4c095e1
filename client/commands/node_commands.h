// `paceline node ...`.
#pragma once

#include <string>

#include "client/commands/command.h"

namespace paceline {

ExitCode ListNodesCommand(const CommandContext& context);

// word: a worker's name or its number.
ExitCode ShowNodeCommand(const CommandContext& context,
                         const std::string& word);

// The worker gets nothing new, and leaves its round group; or is taken back.
ExitCode DrainNodeCommand(const CommandContext& context,
                          const std::string& word, bool drain);

// A worker that is gone leaves the list.
ExitCode ForgetNodeCommand(const CommandContext& context,
                           const std::string& word);

}  // namespace paceline
