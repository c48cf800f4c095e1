#include "client/rpc/job_reference.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/job_keys.h"
#include "client/rpc/spec_fields.h"
#include "core/model/job_spec.h"
#include "core/rpc/convert.h"
#include "google/protobuf/text_format.h"
#include "paceline/v1/types.pb.h"

namespace paceline {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kColumns = 80;

// One line of the reference: a key, or a section of keys.
struct Entry {
  const FieldDescriptor& field;
  int depth;
  const JobKey* key;  // null: a section
  std::string value;  // the default, as YAML; empty: key->absent says it
};

std::string ValueText(const Message& message, const FieldDescriptor& field) {
  if (field.is_repeated()) return "[]";
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1,
                                                        &text);
  return text;
}

// With one element in each list of sections.
v1::JobSpec Defaults() {
  JobSpec spec;
  spec.faults.emplace_back();
  return ToProto(spec);
}

void Walk(const Message& message, const std::string& prefix, int depth,
          const std::function<void(const Entry&)>& take) {
  const Descriptor& type = *message.GetDescriptor();
  for (const std::string& name : FieldNames(type)) {
    const FieldDescriptor& field = *FindKey(type, name);
    const std::string path = prefix + name;
    if (field.message_type() == nullptr) {
      const JobKey* const key = FindJobKey(path);
      const bool fixed = key != nullptr && *key->absent == '\0';
      take({field, depth, key, fixed ? ValueText(message, field) : ""});
      continue;
    }
    take({field, depth, nullptr, ""});
    const auto& reflection = *message.GetReflection();
    Walk(field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, 0)
                             : reflection.GetMessage(message, &field),
         path + ".", depth + 1, take);
  }
}

std::vector<std::string> Words(const char* between_blanks) {
  return absl::StrSplit(between_blanks, ' ', absl::SkipEmpty());
}

// What the comment says.
std::string Sentences(const Entry& entry) {
  const JobKey& key = *entry.key;
  std::string text =
      absl::StrCat(key.meaning, " Type: ", ExpectedType(entry.field), ".");
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

std::string JobReference() {
  std::string out =
      "# All keys of a job file with their defaults; leave out what you do not "
      "change.\n";
  bool in_list = false;
  Walk(Defaults(), "", 0, [&](const Entry& entry) {
    if (entry.depth == 0) in_list = entry.field.is_repeated();
    const std::string indent(2 * entry.depth, ' ');
    std::string line = entry.field.name() + ":";
    if (entry.key == nullptr) {
      absl::StrAppend(&out, "\n", in_list ? "# " : "", indent, line, "\n");
      return;
    }
    if (in_list) line = (entry.field.index() == 0 ? "- " : "  ") + line;
    if (!entry.value.empty()) absl::StrAppend(&line, " ", entry.value);
    AppendComment(indent, Sentences(entry), out);
    // A list has no elements unless somebody writes them.
    const bool comment = in_list || entry.value.empty();
    absl::StrAppend(&out, indent, comment ? "# " : "", line, "\n");
  });
  return out;
}

Document JobReferenceDocument() {
  Document::List keys;
  Walk(Defaults(), "", 0, [&](const Entry& entry) {
    if (entry.key == nullptr) return;
    const JobKey& key = *entry.key;
    Document::List values;
    for (const std::string& value : Words(key.needs)) values.push_back(value);
    keys.push_back(Document::Map{
        {"key", key.path},
        {"type", ExpectedType(entry.field)},
        {"default", entry.value.empty() ? Document() : Document(entry.value)},
        {"absent", key.absent},
        {"meaning", key.meaning},
        {"only_with",
         *key.decider == '\0'
             ? Document()
             : Document(Document::Map{{"key", key.decider},
                                      {"values", std::move(values)}})}});
  });
  return Document::Map{{"keys", std::move(keys)}};
}

}  // namespace paceline
