// Completion scripts for shells, from the tree of commands that the parser
// itself uses.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paceline {

struct CommandOption {
  std::vector<std::string> names;  // with dashes: "-o", "--output"
  std::string help;
  bool takes_value = false;
  std::vector<std::string> values;  // all it may take; empty: anything
  bool takes_file = false;
};

struct CommandNode {
  std::string name;
  std::string help;
  std::vector<CommandOption> options;
  std::vector<std::string> words;  // values of a positional argument
  bool takes_file = false;         // a positional argument
  std::vector<CommandNode> commands;
};

// shell: bash, zsh, fish.  Options of a node hold below it too.
// Errors: InvalidArgument  another shell
absl::StatusOr<std::string> RenderCompletion(const CommandNode& root,
                                             const std::string& shell);

}  // namespace paceline
