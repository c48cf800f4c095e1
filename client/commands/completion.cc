#include "client/commands/completion.h"

#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/errors.h"
#include "core/model/description.h"
#include "core/model/job_keys.h"
#include "core/plan/policy.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// A node with its path and the options that hold there.
struct Place {
  std::vector<std::string> path;  // without the program's name
  const CommandNode* node = nullptr;
  std::vector<const CommandOption*> options;  // own first
};

void Visit(const CommandNode& node, const Place& parent,
           const std::function<void(const Place&)>& visit) {
  Place place;
  place.path = parent.path;
  if (parent.node != nullptr) place.path.push_back(node.name);
  place.node = &node;
  for (const CommandOption& option : node.options) {
    place.options.push_back(&option);
  }
  for (const CommandOption* option : parent.options) {
    // --help is on every node; -o of export hides the global one.
    bool hidden = false;
    for (const CommandOption& own : node.options) {
      hidden = hidden || own.names.front() == option->names.front();
    }
    if (!hidden) place.options.push_back(option);
  }
  visit(place);
  for (const CommandNode& child : node.commands) Visit(child, place, visit);
}

std::vector<std::string> WordsAt(const Place& place) {
  std::vector<std::string> words;
  for (const CommandNode& child : place.node->commands) {
    words.push_back(child.name);
  }
  words.insert(words.end(), place.node->words.begin(), place.node->words.end());
  return words;
}

// Whether something follows each of the option's words, a value after "KEY=".
bool TakesMore(const CommandOption& option) {
  return !option.values.empty() && absl::EndsWith(option.values[0], "=");
}

// The `case` line of bash and zsh that goes on from the place above to this one
// and keeps it in `variable`.
std::string StepInto(const Place& place, const char* variable) {
  if (place.path.empty()) return "";
  const auto last = place.path.end() - 1;
  return absl::StrCat("      \"", absl::StrJoin(place.path.begin(), last, " "),
                      ":", *last, "\") ", variable, "=\"",
                      absl::StrJoin(place.path, " "), "\";;\n");
}

// --- bash -------------------------------------------------------------------

constexpr char kNoBlank[] = "compopt -o nospace 2>/dev/null; ";

// `case` lines for "path:option" that takes a value.
std::string BashValues(const Place& place) {
  std::string text;
  for (const CommandOption* option : place.options) {
    if (!option->takes_value) continue;
    std::vector<std::string> keys;
    for (const std::string& name : option->names) {
      keys.push_back(
          absl::StrCat("\"", absl::StrJoin(place.path, " "), ":", name, "\""));
    }
    absl::StrAppend(&text, "    ", absl::StrJoin(keys, "|"), ") ");
    if (option->takes_file) {
      absl::StrAppend(&text, "COMPREPLY=($(compgen -f -- \"$current\"))");
    } else if (option->is_list && !option->values.empty()) {
      // The text before the last comma stays.
      absl::StrAppend(
          &text, kNoBlank,
          "COMPREPLY=($(compgen -P \"${current%\"${current##*,}\"}\" "
          "-W \"",
          absl::StrJoin(option->values, " "), "\" -- \"${current##*,}\"))");
    } else {
      // A word that ends with '=' gets no blank: the person goes on typing.
      absl::StrAppend(&text, TakesMore(*option) ? kNoBlank : "",
                      "COMPREPLY=($(compgen -W \"",
                      absl::StrJoin(option->values, " "),
                      "\" -- \"$current\"))");
    }
    absl::StrAppend(&text, "; return;;\n");
  }
  return text;
}

std::string RenderBash(const CommandNode& root) {
  std::string paths, values, words;
  std::vector<std::string> value_options;
  Visit(root, {}, [&](const Place& place) {
    const std::string path = absl::StrJoin(place.path, " ");
    std::vector<std::string> names = WordsAt(place);
    for (const CommandOption* option : place.options) {
      names.insert(names.end(), option->names.begin(), option->names.end());
    }
    absl::StrAppend(&words, "    \"", path, "\") words=\"",
                    absl::StrJoin(names, " "),
                    "\"; files=", place.node->takes_file ? "1" : "0", ";;\n");
    absl::StrAppend(&values, BashValues(place));
    absl::StrAppend(&paths, StepInto(place, "path"));
  });
  const std::string program = root.name;
  return absl::StrCat("# bash completion of ", program,
                      ".  Load it with:\n#   source <(", program,
                      " completion bash)\n_", program,
                      "() {\n"
                      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" "
                      "previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
                      "  local path=\"\" words=\"\" files=0 i\n"
                      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
                      "    case \"$path:${COMP_WORDS[i]}\" in\n",
                      paths,
                      "    esac\n"
                      "  done\n"
                      "  case \"$path:$previous\" in\n",
                      values,
                      "  esac\n"
                      "  case \"$path\" in\n",
                      words,
                      "  esac\n"
                      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                      "  if [[ $files == 1 && $current != -* ]]; then\n"
                      "    COMPREPLY+=($(compgen -f -- \"$current\"))\n"
                      "  fi\n"
                      "}\n"
                      "complete -o filenames -F _",
                      program, " ", program, "\n");
}

// --- zsh --------------------------------------------------------------------

std::string ZshQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// One _describe entry: "name:help".
std::string ZshEntry(const std::string& name, const std::string& help) {
  return ZshQuoted(
      absl::StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", help));
}

// Returns zsh's completion of the value of `option`.
std::string ZshValues(const CommandOption& option) {
  if (option.takes_file) return "_files";
  return absl::StrCat(option.is_list      ? "compset -P '*,'; compadd -qS , -- "
                      : TakesMore(option) ? "compadd -S '' -- "
                                          : "compadd -- ",
                      absl::StrJoin(option.values, " "));
}

std::string RenderZsh(const CommandNode& root) {
  std::string paths, cases, values;
  Visit(root, {}, [&](const Place& place) {
    const std::string path = absl::StrJoin(place.path, " ");
    absl::StrAppend(&cases, "    \"", path, "\")\n      entries=(");
    for (const CommandNode& child : place.node->commands) {
      absl::StrAppend(&cases, "\n        ", ZshEntry(child.name, child.help));
    }
    for (const std::string& word : place.node->words) {
      absl::StrAppend(&cases, "\n        ", ZshEntry(word, ""));
    }
    absl::StrAppend(&cases, ")\n      options=(");
    for (const CommandOption* option : place.options) {
      for (const std::string& name : option->names) {
        absl::StrAppend(&cases, "\n        ", ZshEntry(name, option->help));
        if (!option->takes_value) continue;
        absl::StrAppend(&values, "    \"", path, ":", name, "\") ",
                        ZshValues(*option), "; return;;\n");
      }
    }
    absl::StrAppend(
        &cases, ")\n      files=", place.node->takes_file ? "1" : "0", ";;\n");
    absl::StrAppend(&paths, StepInto(place, "position"));
  });
  const std::string program = root.name;
  return absl::StrCat(
      "#compdef ", program, "\n# zsh completion of ", program,
      ".  Load it with:\n#   source <(", program, " completion zsh)\n_",
      program,
      "() {\n"
      "  local position=\"\" files=0 i\n"
      "  local -a entries options\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    case \"$position:${words[i]}\" in\n",
      paths,
      "    esac\n"
      "  done\n"
      "  case \"$position:${words[CURRENT-1]}\" in\n",
      values,
      "  esac\n"
      "  case \"$position\" in\n",
      cases,
      "  esac\n"
      "  (( ${#entries} )) && _describe command entries\n"
      "  [[ ${words[CURRENT]} == -* ]] && _describe option options\n"
      "  (( files )) && _files\n"
      "}\n"
      "compdef _",
      program, " ", program, "\n");
}

// --- fish -------------------------------------------------------------------

std::string FishQuoted(const std::string& text) {
  return absl::StrCat(
      "'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string RenderFish(const CommandNode& root) {
  const std::string program = root.name;
  std::string text = absl::StrCat(
      "# fish completion of ", program, ".  Load it with:\n#   ", program,
      " completion fish | source\n"
      // The words of the command line that are no options, joined.
      "function __",
      program,
      "_at\n"
      "  set -l words (commandline -opc | string match -v -- '-*')\n"
      "  set -l here (string join ' ' $words[2..-1])\n"
      "  test \"$here\" = \"$argv[1]\"; or string match -q -- \"$argv[1] *\" "
      "\"$here\"\n"
      "end\n"
      "function __",
      program,
      "_exactly\n"
      "  set -l words (commandline -opc | string match -v -- '-*')\n"
      "  test (string join ' ' $words[2..-1] '') = (string join ' ' $argv "
      "'')\n"
      "end\n"
      // Each word, behind what stands before the last comma.
      "function __",
      program,
      "_list\n"
      "  set -l head (commandline -ct | string replace -r '[^,]*$' '')\n"
      "  set -q head[1]; or set head ''\n"
      "  printf '%s\\n' $head$argv\n"
      "end\n"
      "complete -c ",
      program, " -f\n");
  Visit(root, {}, [&](const Place& place) {
    const std::string path = absl::StrJoin(place.path, " ");
    const std::string exactly =
        FishQuoted(absl::StrCat("__", program, "_exactly ", path));
    for (const CommandNode& child : place.node->commands) {
      absl::StrAppend(&text, "complete -c ", program, " -n ", exactly, " -a ",
                      child.name, " -d ", FishQuoted(child.help), "\n");
    }
    if (!place.node->words.empty()) {
      absl::StrAppend(&text, "complete -c ", program, " -n ", exactly, " -a ",
                      FishQuoted(absl::StrJoin(place.node->words, " ")), "\n");
    }
    const std::string condition =
        place.path.empty()
            ? std::string()
            : absl::StrCat(" -n ", FishQuoted(absl::StrCat(
                                       "__", program, "_at \"", path, "\"")));
    if (place.node->takes_file) {
      absl::StrAppend(&text, "complete -c ", program, condition, " -F\n");
    }
    for (const CommandOption& option : place.node->options) {
      absl::StrAppend(&text, "complete -c ", program, condition);
      for (const std::string& name : option.names) {
        const bool is_long = name.size() > 2;
        absl::StrAppend(&text, is_long ? " -l " : " -s ",
                        name.substr(is_long ? 2 : 1));
      }
      if (option.takes_value) {
        absl::StrAppend(&text, option.takes_file ? " -r -F" : " -x");
      }
      if (!option.values.empty()) {
        const std::string words = absl::StrJoin(option.values, " ");
        absl::StrAppend(
            &text, " -a ",
            FishQuoted(option.is_list
                           ? absl::StrCat("(__", program, "_list ", words, ")")
                           : words));
      }
      absl::StrAppend(&text, " -d ", FishQuoted(option.help), "\n");
    }
  });
  return text;
}

}  // namespace

bool IsListType(const std::string& type) {
  return absl::EndsWith(type, ",...");
}

std::vector<std::string> WordsOfType(const std::string& type) {
  // IsMember appends its words to a type: "FORMAT:{table,json}" gives both.
  const size_t open = type.find('{');
  const size_t close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
  }
  const std::string word = type.substr(0, type.find(','));
  if (word == "KEY=VALUE") {
    std::vector<std::string> keys;
    for (const JobKey& key : JobKeys()) {
      if (!absl::StartsWith(key.path, "faults.")) {
        keys.push_back(absl::StrCat(key.path, "="));
      }
    }
    return keys;
  }
  if (word == "MODEL") return ModelNames();
  if (word == "POLICY") return PolicyNames();
  if (word == "SCHEDULE") return ScheduleNames();
  return {};
}

absl::StatusOr<std::string> RenderCompletion(const CommandNode& root,
                                             const std::string& shell) {
  if (shell == "bash") return RenderBash(root);
  if (shell == "zsh") return RenderZsh(root);
  if (shell == "fish") return RenderFish(root);
  return InvalidArgument("'", shell, "' is none of bash, zsh, fish");
}

}  // namespace paceline
