#include "client/commands/job_keys.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/render/text.h"
#include "core/model/job_keys.h"

namespace paceline {
namespace {

constexpr size_t kColumns = 80;

std::vector<std::string> Words(const char* between_blanks) {
  return absl::StrSplit(between_blanks, ' ', absl::SkipEmpty());
}

bool IsIn(const JobKey& key, const std::string& section) {
  return section.empty() || absl::StartsWith(key.path, section + ".");
}

// "train", "train.optimizer", ...
std::vector<std::string> Sections() {
  std::vector<std::string> sections;
  for (const JobKey& key : JobKeys()) {
    const std::string path = key.path;
    for (size_t dot = path.find('.'); dot != std::string::npos;
         dot = path.find('.', dot + 1)) {
      const std::string section = path.substr(0, dot);
      if (std::find(sections.begin(), sections.end(), section) ==
          sections.end()) {
        sections.push_back(section);
      }
    }
  }
  return sections;
}

// The default, as YAML; empty: key.absent says it.
std::string DefaultText(const JobKey& key) {
  if (*key.absent != '\0') return "";
  JobSpec spec;
  spec.faults.emplace_back();
  return ValueText(key.at(spec, 0));
}

// The keys that are written down: with a default of their own that has an
// effect beside the other defaults.  A list has no elements unless somebody
// writes them.
std::set<std::string> WrittenKeys() {
  std::vector<GivenKey> given;
  for (const JobKey& key : JobKeys()) {
    const bool in_list = absl::StartsWith(key.path, "faults.");
    if (!in_list && !DefaultText(key).empty()) given.push_back({key.path});
  }
  std::set<std::string> written;
  for (const GivenKey& key : given) written.insert(key.path);
  for (const UnusedKey& key : UnusedKeys(JobSpec(), given)) {
    written.erase(key.path);
  }
  return written;
}

// Returns the sentences of the key's comment.
std::string Sentences(const JobKey& key) {
  const std::string range = RangeText(key);
  std::string text = absl::StrCat(key.meaning, " Type: ", TypeText(key),
                                  range.empty() ? "" : ", ", range, ".");
  if (*key.absent != '\0') {
    absl::StrAppend(&text, " Default: ", key.absent, ".");
  }
  if (*key.decider != '\0') {
    absl::StrAppend(&text, " Only with ", key.decider, " ",
                    absl::StrJoin(Words(key.needs), ", "), ".");
  }
  return text;
}

void AppendComment(const std::string& indent, const std::string& text,
                   std::string& out) {
  std::string line = absl::StrCat(indent, "#");
  for (const std::string& word : Words(text.c_str())) {
    if (line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, line, "\n");
      line = absl::StrCat(indent, "#");
    }
    absl::StrAppend(&line, " ", word);
  }
  absl::StrAppend(&out, line, "\n");
}

}  // namespace

std::string JobReference(const std::string& section) {
  std::string out =
      "# All keys of a job file with their defaults; leave out what you do not "
      "change.\n"
      "# A key is commented out where its default needs no writing down, or "
      "where it\n# has no effect beside the other defaults; a section, where "
      "all its keys are.\n";
  const std::set<std::string> written = WrittenKeys();
  std::vector<std::string> open;  // the sections around the last key
  const auto is_written = [&] {   // whether a key of the innermost one is
    const std::string above = absl::StrCat(absl::StrJoin(open, "."), ".");
    const auto first = written.lower_bound(above);
    return first != written.end() && absl::StartsWith(*first, above);
  };
  for (const JobKey& key : JobKeys()) {
    if (!IsIn(key, section)) continue;
    std::vector<std::string> sections = absl::StrSplit(key.path, '.');
    const std::string name = sections.back();
    sections.pop_back();
    const bool in_list = !sections.empty() && sections[0] == "faults";
    bool first = false;  // of its section
    for (size_t depth = 0; depth < sections.size(); ++depth) {
      if (depth < open.size() && open[depth] == sections[depth]) continue;
      open.resize(depth);
      open.push_back(sections[depth]);
      first = true;
      absl::StrAppend(&out, "\n", is_written() ? "" : "# ",
                      std::string(2 * depth, ' '), sections[depth], ":\n");
    }
    open.resize(sections.size());
    const std::string indent(2 * sections.size(), ' ');
    AppendComment(indent, Sentences(key), out);
    const std::string value = DefaultText(key);
    absl::StrAppend(&out, indent, written.contains(key.path) ? "" : "# ",
                    !in_list ? ""
                    : first  ? "- "
                             : "  ",
                    name, ":", value.empty() ? "" : " ", value, "\n");
  }
  return out;
}

Document JobReferenceDocument(const std::string& section) {
  Document keys = Document::array();
  for (const JobKey& key : JobKeys()) {
    if (!IsIn(key, section)) continue;
    Document only_with;
    if (*key.decider != '\0') {
      only_with = {{"key", key.decider}, {"values", Words(key.needs)}};
    }
    keys.push_back(Document{{"key", key.path},
                            {"type", TypeText(key)},
                            {"range", OrNull(RangeText(key))},
                            {"default", OrNull(DefaultText(key))},
                            {"absent", key.absent},
                            {"meaning", key.meaning},
                            {"only_with", std::move(only_with)}});
  }
  return {{"keys", std::move(keys)}};
}

ExitCode JobKeysCommand(Console& console, const std::string& section) {
  const std::string why =
      section.empty() ? "" : WhyNotAmong("section", section, Sections());
  if (!why.empty()) {
    return ReportError(console, absl::InvalidArgumentError(why));
  }
  if (console.table()) {
    console.Print(JobReference(section));
  } else {
    console.Print(JobReferenceDocument(section));
  }
  return kExitOk;
}

}  // namespace paceline
