#include "client/usage.h"

#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/values/text.h"
#include "core/job/job_keys.h"
#include "core/job/spec/job_spec.h"
#include "core/model/description.h"
#include "core/plan/search/policy.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

// The innermost command that was named.
const CLI::App* Innermost(const CLI::App* app) {
  for (;;) {
    const std::vector<CLI::App*> named = app->get_subcommands();
    if (named.empty()) return app;
    app = named.front();
  }
}

std::string FullName(const CLI::App* app) {
  return app->get_parent() == nullptr
             ? app->get_name()
             : absl::StrCat(FullName(app->get_parent()), " ", app->get_name());
}

using Apps = std::vector<const CLI::App*>;

Apps CommandsOf(const CLI::App* app) {
  return app->get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> NamesOf(const Apps& apps) {
  std::vector<std::string> names;
  for (const CLI::App* app : apps) names.push_back(app->get_name());
  return names;
}

// The options that hold at `here`: its own and those of the commands above.
std::vector<const CLI::Option*> OptionsAt(const CLI::App* here) {
  std::vector<const CLI::Option*> options;
  for (const CLI::App* app = here; app != nullptr; app = app->get_parent()) {
    absl::c_copy(app->get_options(), std::back_inserter(options));
  }
  return options;
}

std::vector<std::string> FlagsOf(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_snames()) {
    flags.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    flags.push_back("--" + name);
  }
  return flags;
}

std::string ExplainMissing(const CLI::App* here, const char* what) {
  std::vector<std::string> missing;
  for (const CLI::Option* option : OptionsAt(here)) {
    if (!option->get_required() || option->count() > 0) continue;
    // Without what a check has appended: "B:INT in [1 - 256]".
    const std::string type =
        option->get_type_name().substr(0, option->get_type_name().find(':'));
    const std::string flags = absl::StrJoin(FlagsOf(*option), ",");
    missing.push_back(
        absl::StrCat(option->get_positional() ? "" : absl::StrCat(flags, " "),
                     type, " is missing: ", option->get_description()));
  }
  if (!missing.empty()) return absl::StrJoin(missing, "; ");
  const Apps commands = CommandsOf(here);
  return commands.empty()
             ? what
             : absl::StrCat("name a command: ",
                            absl::StrJoin(NamesOf(commands), ", "));
}

// words: those that no option or command takes, in the order given.
std::string ExplainUnexpected(const CLI::App* here,
                              const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (!absl::StartsWith(word, "-")) continue;
    std::vector<std::string> known;
    for (const CLI::Option* option : OptionsAt(here)) {
      const std::vector<std::string> flags = FlagsOf(*option);
      known.insert(known.end(), flags.begin(), flags.end());
    }
    const std::string flag = word.substr(0, word.find('='));
    const std::string meant = DidYouMean(flag, known);
    return absl::StrCat(
        "there is no option ", Printable(flag), " here",
        meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"));
  }
  return absl::StrCat("not expected: ", Printable(absl::StrJoin(words, " ")));
}

// what: "Could not convert: --devices = abc", for a number too great as well.
std::string ExplainConversion(absl::string_view what) {
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::StripPrefix(what, "Could not convert: "),
                     absl::MaxSplits(" = ", 1));
  if (parts.size() < 2) return std::string(what);
  return absl::StrCat(parts[0], ": '", Printable(parts[1]),
                      "' is no number that fits here");
}

// One line: what is wrong with the command line, and what would be right.
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error) {
  switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
    case CLI::ExitCodes::RequiredError:
      return ExplainMissing(Innermost(&app), error.what());
    case CLI::ExitCodes::ExtrasError:
      return ExplainUnexpected(Innermost(&app),
                               app.remaining(/*recurse=*/true));
    case CLI::ExitCodes::ConversionError:
      return ExplainConversion(error.what());
    default:
      return Printable(error.what());
  }
}

// The first word that should have been a command and is none, with what was
// probably meant.
std::optional<std::string> UnknownWord(const CLI::App& app, int argc,
                                       const char* const* argv) {
  const CLI::App* here = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const Apps children = CommandsOf(here);
    if (children.empty()) return std::nullopt;
    if (absl::StartsWith(word, "-")) {
      const CLI::Option* option = app.get_option_no_throw(word);
      if (option != nullptr && option->get_items_expected_min() > 0) ++i;
      continue;
    }
    const auto next = absl::c_find_if(children, [&](const CLI::App* child) {
      return child->get_name() == word;
    });
    if (next == children.end()) {
      const std::vector<std::string> names = NamesOf(children);
      const std::string close = DidYouMean(word, names);
      return absl::StrCat(
          "'", Printable(word), "' is no command; ",
          close.empty()
              ? absl::StrCat("there are: ", absl::StrJoin(names, ", "))
              : absl::StrCat("did you mean '", close, "'?"));
    }
    here = *next;
  }
  return std::nullopt;
}

bool TakesValue(const CLI::Option& option) {
  return option.get_items_expected_min() > 0;
}

// The option of this name that holds at `here`: an inner one hides an outer
// one.  Null: there is none.
const CLI::Option* FindOption(const CLI::App* here, const std::string& name) {
  for (const CLI::Option* option : OptionsAt(here)) {
    if (absl::c_linear_search(FlagsOf(*option), name)) return option;
  }
  return nullptr;
}

void OfferOptions(const CLI::App* here, Completion& completion) {
  std::set<std::string> seen;
  for (const CLI::Option* option : OptionsAt(here)) {
    for (const std::string& flag : FlagsOf(*option)) {
      if (!seen.insert(flag).second) continue;
      completion.offers.push_back({flag, option->get_description()});
    }
  }
}

std::vector<std::string> WordsOf(const std::string& type) {
  // IsMember appends its words to a type: "FORMAT:{table,json}" gives both.
  const size_t open = type.find('{');
  const size_t close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
  }
  const std::string word = type.substr(0, type.find(','));
  if (word == "MODEL") return ModelNames();
  if (word == "POLICY") return PolicyNames();
  if (word == "SCHEDULE") return ScheduleNames();
  return {};
}

// Adds what a value of this type may be: the words that the type lists itself
// ("FORMAT:{table,json}"), of "POLICY,..." those behind a comma too, and those
// of JOB, NODE, CONTEXT, MODEL, POLICY, SCHEDULE, KEY=VALUE, FILE and DIR.
void AddOffersOfType(const std::string& type, Completion& completion) {
  for (std::string& word : WordsOf(type)) {
    completion.offers.push_back({std::move(word)});
  }
  if (absl::StrContains(type, ",...")) {
    const size_t end = completion.word.rfind(',') + 1;  // 0: no comma
    completion.head = completion.word.substr(0, end);
    completion.word.erase(0, end);
    completion.goes_on = true;
  }
  if (type == "KEY=VALUE") {
    for (const JobKey& key : JobKeys()) {
      if (absl::StartsWith(key.path, "faults.")) continue;
      completion.offers.push_back({absl::StrCat(key.path, "="), key.meaning});
    }
    completion.goes_on = true;
  }
  if (type == "JOB") completion.offers.push_back({"last", "the newest job"});
  if (type == "JOB" || type == "NODE" || type == "CONTEXT") {
    completion.ask = type;
  }
  completion.files = completion.files || type == "FILE" || type == "DIR";
}

constexpr char kBash[] = R"sh(# bash completion of paceline.  Load it with:
#   source <(paceline completion bash)
_paceline() {
  local line IFS=$'\n'
  COMPREPLY=()
  while read -r line; do
    case $line in
      :files) COMPREPLY+=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"));;
      :nospace) compopt -o nospace 2>/dev/null;;
      *) COMPREPLY+=("${line%%$'\t'*}");;
    esac
  done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" \
    2>/dev/null)
}
complete -o filenames -F _paceline paceline
)sh";

constexpr char kZsh[] = R"sh(#compdef paceline
# zsh completion of paceline.  Load it with:
#   source <(paceline completion zsh)
_paceline() {
  local line files=0
  local -a offers behind
  for line in ${(f)"$(${words[1]} __complete "${(@)words[2,CURRENT]}" \
      2>/dev/null)"}; do
    case $line in
      :files) files=1;;
      :nospace) behind=(-S '');;
      *) offers+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}");;
    esac
  done
  (( ${#offers} )) && _describe paceline offers $behind
  (( files )) && _files
}
# From a folder of completions, zsh runs this file for the first completion.
if [[ ${funcstack[1]} == _paceline ]]; then
  _paceline "$@"
else
  compdef _paceline paceline
fi
)sh";

constexpr char kFish[] = R"(# fish completion of paceline.  Load it with:
#   paceline completion fish | source
function __paceline_complete
  set -l words (commandline -opc)
  set -l last (commandline -ct)
  for line in ($words[1] __complete $words[2..-1] "$last" 2>/dev/null)
    switch $line
      case :files
        __fish_complete_path "$last"
      case :nospace
      case '*'
        printf '%s\n' $line
    end
  end
end
complete -c paceline -f -a '(__paceline_complete)'
)";

}  // namespace

std::string NameOf(const CLI::App& app) {
  return FullName(Innermost(&app)).substr(app.get_name().size() + 1);
}

std::string ExplainMistake(const CLI::App& app, const CLI::ParseError& error,
                           int argc, const char* const* argv) {
  const auto unknown = UnknownWord(app, argc, argv);
  return absl::StrCat(
      "paceline: ",
      ShortenWords(unknown.has_value() ? *unknown : ExplainUsage(app, error)),
      "\nsee '", FullName(Innermost(&app)), " --help'\n");
}

Completion Complete(const CLI::App& app,
                    const std::vector<std::string>& words) {
  Completion completion;
  const CLI::App* here = &app;
  const CLI::Option* open = nullptr;  // its value comes next
  for (const std::string& word : words) {
    if (&word == &words.back()) {
      completion.word = word;
    } else if (open != nullptr) {
      const std::string name = FlagsOf(*open).back();
      if (app.get_option_no_throw(name) == open) {
        completion.mesh.insert(completion.mesh.end(), {name, word});
      }
      open = nullptr;
    } else if (const CLI::Option* const option = FindOption(here, word)) {
      if (TakesValue(*option)) open = option;
    } else {
      for (const CLI::App* child : CommandsOf(here)) {
        if (child->get_name() == word) here = child;
      }
    }
  }
  if (open != nullptr) {
    AddOffersOfType(open->get_type_name(), completion);
    return completion;
  }
  if (absl::StartsWith(completion.word, "-")) {
    OfferOptions(here, completion);
    return completion;
  }
  for (const CLI::App* child : CommandsOf(here)) {
    completion.offers.push_back({child->get_name(), child->get_description()});
  }
  for (const CLI::Option* option : here->get_options()) {
    if (!option->get_positional()) continue;
    AddOffersOfType(option->get_type_name(), completion);
  }
  return completion;
}

std::string CompletionText(const Completion& completion) {
  std::string text = completion.files ? ":files\n" : "";
  if (completion.goes_on) absl::StrAppend(&text, ":nospace\n");
  for (const Offer& offer : completion.offers) {
    if (!absl::StartsWith(offer.word, completion.word)) continue;
    absl::StrAppend(&text, completion.head, offer.word, "\t", offer.help, "\n");
  }
  return text;
}

std::string CompletionScript(const std::string& shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
}

const char kProgramFooter[] =
    "Examples:\n"
    "  paceline up --workers 4\n"
    "  paceline profile --model lenet --batch 16\n"
    "  paceline plan -f job.yaml --compare\n"
    "  paceline bench infer --model vit --stages 1,2,4\n"
    "  paceline job submit job.yaml --set train.epochs=3\n"
    "  paceline job show last\n"
    "  paceline report last -o report.html\n"
    "  paceline study deploy/studies/batch-size.yaml\n"
    "  paceline node list -o json\n"
    "\n"
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 unreachable,\n"
    "5 no room, 6 stopped, 7 not permitted, 124 timed out, 130 interrupted";

}  // namespace paceline
