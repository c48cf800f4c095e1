#include "client/commands/completion.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/job/job_keys.h"
#include "core/model/description.h"
#include "core/plan/search/policy.h"
#include "core/schedule/schedule.h"

namespace paceline {
namespace {

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

std::string CompletionText(const Completion& completion) {
  std::string text = completion.files ? ":files\n" : "";
  if (completion.goes_on) absl::StrAppend(&text, ":nospace\n");
  for (const Offer& offer : completion.offers) {
    if (!absl::StartsWith(offer.word, completion.word)) continue;
    absl::StrAppend(&text, completion.head, offer.word, "\t", offer.help, "\n");
  }
  return text;
}

ExitCode AskCompletionCommand(const CommandContext& context,
                              Completion completion) {
  completion = {.word = completion.word, .ask = completion.ask};
  if (completion.ask == "JOB") {
    const auto jobs = context.client.ListJobs(/*limit=*/50);
    if (!jobs.ok()) return ReportError(context.console, jobs.status());
    for (const v1::Job& job : jobs->jobs()) {
      completion.offers.push_back(
          {absl::StrCat(job.id()),
           absl::StrCat(Printable(job.spec().name()), ", ",
                        JobStateName(job.state()))});
    }
  } else {
    const auto workers = context.client.ListWorkers();
    if (!workers.ok()) return ReportError(context.console, workers.status());
    for (const v1::Worker& worker : workers->workers()) {
      completion.offers.push_back(
          {Printable(worker.registration().name()), StateText(worker)});
    }
  }
  context.console.Print(CompletionText(completion));
  return kExitOk;
}

std::string CompletionScript(const std::string& shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
}

}  // namespace paceline
