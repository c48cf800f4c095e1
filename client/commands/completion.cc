#include "client/commands/completion.h"

#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/render/report.h"
#include "client/render/text.h"
#include "core/base/errors.h"
#include "core/model/description.h"
#include "core/model/job_keys.h"
#include "core/plan/search/policy.h"
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

// The words that lead to a place.
std::string PathOf(const Place& place) {
  return absl::StrJoin(place.path, " ");
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
                      ":", *last, "\") ", variable, "=\"", PathOf(place),
                      "\";;\n");
}

// --- bash -------------------------------------------------------------------

constexpr char kNoBlank[] = "compopt -o nospace 2>/dev/null; ";

// `case` lines for "path:option" that takes a value.
std::string BashValues(const Place& place) {
  std::string text;
  for (const CommandOption* option : place.options) {
    if (!option->takes_value) continue;
    const std::string asked =
        option->ask.empty() ? "" : absl::StrCat(" $($ask ", option->ask, ")");
    std::vector<std::string> keys;
    for (const std::string& name : option->names) {
      keys.push_back(absl::StrCat("\"", PathOf(place), ":", name, "\""));
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
                      absl::StrJoin(option->values, " "), asked,
                      "\" -- \"$current\"))");
    }
    absl::StrAppend(&text, "; return;;\n");
  }
  return text;
}

constexpr char kBash[] = R"sh(# bash completion of @program@.  Load it with:
#   source <(@program@ completion bash)
_@program@_ask() {
  "${COMP_WORDS[0]}" "${mesh[@]}" completion "$1" 2>/dev/null | cut -f 1
}
_@program@() {
  local ask=_@program@_ask
  local current="${COMP_WORDS[COMP_CWORD]}"
  local previous="${COMP_WORDS[COMP_CWORD-1]}"
  local path="" words="" files=0 kind="" i
  local -a mesh=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${COMP_WORDS[i]} == --context ]] && mesh=(--context "${COMP_WORDS[i+1]}")
    case "$path:${COMP_WORDS[i]}" in
@paths@    esac
  done
  case "$path:$previous" in
@values@  esac
  case "$path" in
@words@  esac
  [[ -n $kind && $current != -* ]] && words+=" $($ask $kind)"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $files == 1 && $current != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _@program@ @program@
)sh";

std::string RenderBash(const CommandNode& root) {
  std::string paths, values, words;
  Visit(root, {}, [&](const Place& place) {
    std::vector<std::string> names = WordsAt(place);
    for (const CommandOption* option : place.options) {
      names.insert(names.end(), option->names.begin(), option->names.end());
    }
    absl::StrAppend(&words, "    \"", PathOf(place), "\") words=\"",
                    absl::StrJoin(names, " "),
                    "\"; files=", place.node->takes_file ? "1" : "0",
                    "; kind=", place.node->ask, ";;\n");
    absl::StrAppend(&values, BashValues(place));
    absl::StrAppend(&paths, StepInto(place, "path"));
  });
  return absl::StrReplaceAll(kBash, {{"@program@", root.name},
                                     {"@paths@", paths},
                                     {"@values@", values},
                                     {"@words@", words}});
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
                      absl::StrJoin(option.values, " "),
                      option.ask.empty() ? "" : "; $ask ", option.ask);
}

constexpr char kZsh[] = R"sh(#compdef @program@
# zsh completion of @program@.  Load it with:
#   source <(@program@ completion zsh)
_@program@_ask() {
  local -a found
  found=(${(f)"$(${words[1]} $mesh completion $1 2>/dev/null)"})
  found=("${(@)found/$'\t'/:}")
  _describe $1 found
}
_@program@() {
  local ask=_@program@_ask
  local position="" files=0 kind="" i
  local -a entries options mesh
  for ((i = 2; i < CURRENT; ++i)); do
    [[ ${words[i]} == --context ]] && mesh=(--context ${words[i+1]})
    case "$position:${words[i]}" in
@paths@    esac
  done
  case "$position:${words[CURRENT-1]}" in
@values@  esac
  case "$position" in
@cases@  esac
  [[ -n $kind ]] && $ask $kind
  (( ${#entries} )) && _describe command entries
  [[ ${words[CURRENT]} == -* ]] && _describe option options
  (( files )) && _files
}
# From a folder of completions, zsh runs this file for the first completion.
if [[ ${funcstack[1]} == _@program@ ]]; then
  _@program@ "$@"
else
  compdef _@program@ @program@
fi
)sh";

std::string RenderZsh(const CommandNode& root) {
  std::string paths, cases, values;
  Visit(root, {}, [&](const Place& place) {
    const std::string path = PathOf(place);
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
    absl::StrAppend(&cases,
                    ")\n      files=", place.node->takes_file ? "1" : "0",
                    "; kind=", place.node->ask, ";;\n");
    absl::StrAppend(&paths, StepInto(place, "position"));
  });
  return absl::StrReplaceAll(kZsh, {{"@program@", root.name},
                                    {"@paths@", paths},
                                    {"@values@", values},
                                    {"@cases@", cases}});
}

// --- fish -------------------------------------------------------------------

std::string FishQuoted(const std::string& text) {
  return absl::StrCat(
      "'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// @program@_at: whether the words of the command line that are no options begin
// with a path; _exactly: whether they are it; _list: the words offered, each
// behind what stands before the last comma.
constexpr char kFish[] = R"(# fish completion of @program@.  Load it with:
#   @program@ completion fish | source
function __@program@_at
  set -l words (commandline -opc | string match -v -- '-*')
  set -l here (string join ' ' $words[2..-1])
  test "$here" = "$argv[1]"; or string match -q -- "$argv[1] *" "$here"
end
function __@program@_exactly
  set -l words (commandline -opc | string match -v -- '-*')
  test (string join ' ' $words[2..-1] '') = (string join ' ' $argv '')
end
function __@program@_list
  set -l head (commandline -ct | string replace -r '[^,]*$' '')
  set -q head[1]; or set head ''
  printf '%s\n' $head$argv
end
function __@program@_ask
  set -l words (commandline -opc)
  set -l mesh
  set -l at (contains -i -- --context $words)
  and set mesh --context $words[(math $at + 1)]
  $words[1] $mesh completion $argv[1] 2>/dev/null
end
complete -c @program@ -f
)";

std::string RenderFish(const CommandNode& root) {
  const std::string program = root.name;
  const std::string complete = absl::StrCat("complete -c ", program);
  const auto asked = [&program](const std::string& kind) {
    return absl::StrCat("(__", program, "_ask ", kind, ")");
  };
  std::string text = absl::StrReplaceAll(kFish, {{"@program@", program}});
  Visit(root, {}, [&](const Place& place) {
    const std::string path = PathOf(place);
    const std::string exactly =
        FishQuoted(absl::StrCat("__", program, "_exactly ", path));
    for (const CommandNode& child : place.node->commands) {
      absl::StrAppend(&text, complete, " -n ", exactly, " -a ", child.name,
                      " -d ", FishQuoted(child.help), "\n");
    }
    if (!place.node->words.empty()) {
      absl::StrAppend(&text, complete, " -n ", exactly, " -a ",
                      FishQuoted(absl::StrJoin(place.node->words, " ")), "\n");
    }
    if (!place.node->ask.empty()) {
      absl::StrAppend(&text, complete, " -n ", exactly, " -a ",
                      FishQuoted(asked(place.node->ask)), "\n");
    }
    const std::string condition =
        place.path.empty()
            ? std::string()
            : absl::StrCat(" -n ", FishQuoted(absl::StrCat(
                                       "__", program, "_at \"", path, "\"")));
    if (place.node->takes_file) {
      absl::StrAppend(&text, complete, condition, " -F\n");
    }
    for (const CommandOption& option : place.node->options) {
      absl::StrAppend(&text, complete, condition);
      for (const std::string& name : option.names) {
        const bool is_long = name.size() > 2;
        absl::StrAppend(&text, is_long ? " -l " : " -s ",
                        name.substr(is_long ? 2 : 1));
      }
      if (option.takes_value) {
        absl::StrAppend(&text, option.takes_file ? " -r -F" : " -x");
      }
      std::string words = absl::StrJoin(option.values, " ");
      if (!words.empty() && option.is_list) {
        words = absl::StrCat("(__", program, "_list ", words, ")");
      }
      if (!option.ask.empty()) absl::StrAppend(&words, " ", asked(option.ask));
      if (!words.empty()) absl::StrAppend(&text, " -a ", FishQuoted(words));
      absl::StrAppend(&text, " -d ", FishQuoted(option.help), "\n");
    }
  });
  return text;
}

}  // namespace

std::string KindToAsk(const std::string& type) {
  if (type == "JOB") return "jobs";
  if (type == "NODE") return "nodes";
  return type == "CONTEXT" ? "contexts" : "";
}

ExitCode AnswerCompletion(const CommandContext& context,
                          const std::string& kind) {
  Console& console = context.console;
  if (kind == "jobs") {
    const auto jobs = context.client.ListJobs(/*limit=*/50);
    if (!jobs.ok()) return ReportError(console, jobs.status());
    for (const v1::Job& job : jobs->jobs()) {
      console.Print(absl::StrCat(job.id(), "\t", Printable(job.spec().name()),
                                 ", ", JobStateName(StateOf(job)), "\n"));
    }
    return kExitOk;
  }
  const auto workers = context.client.ListWorkers();
  if (!workers.ok()) return ReportError(console, workers.status());
  for (const v1::Worker& worker : workers->workers()) {
    console.Print(absl::StrCat(Printable(worker.registration().name()), "\t",
                               StateText(worker), "\n"));
  }
  return kExitOk;
}

bool IsListType(const std::string& type) {
  return absl::StrContains(type, ",...");
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
  if (word == "JOB") return {"last"};
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
