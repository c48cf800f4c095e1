#include "client/files/job_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/files/whole_file.h"
#include "client/files/yaml.h"
#include "client/values/text.h"
#include "core/base/errors.h"
#include "core/data/data_sets.h"
#include "core/job/job_check.h"
#include "core/job/job_keys.h"
#include "core/rpc/convert/job_convert.h"
#include "paceline/v1/types.pb.h"

namespace paceline {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Workers say what is in a script; no key does.
bool IsKey(const FieldDescriptor& field) {
  return field.message_type() != v1::ScriptModel::GetDescriptor();
}

// Returns the paths of all keys and sections that are called `name`.
std::vector<std::string> PathsOf(const std::string& name) {
  std::vector<std::string> paths;
  for (const JobKey& key : JobKeys()) {
    const std::vector<std::string> parts = absl::StrSplit(key.path, '.');
    const auto found = std::find(parts.begin(), parts.end(), name);
    if (found == parts.end()) continue;
    std::string path = absl::StrJoin(parts.begin(), found + 1, ".");
    // The keys of a section stand side by side.
    if (paths.empty() || paths.back() != path) paths.push_back(std::move(path));
  }
  return paths;
}

std::string ScalarName(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return "whole number";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "flag (true or false)";
    default:
      return "text";
  }
}

std::string Got(const FieldDescriptor& field, const std::string& text) {
  return absl::StrCat("expected a ", ScalarName(field), ", got '",
                      Excerpt(text), "'");
}

template <typename Integer>
std::string ParseNumber(const FieldDescriptor& field, const std::string& text,
                        Integer* value) {
  if (absl::SimpleAtoi(text, value)) return "";
  double number = 0;
  if (absl::SimpleAtod(text, &number) && number == std::floor(number) &&
      text.find_first_not_of("+-0123456789") == std::string::npos) {
    return absl::StrCat(text, " is out of range; a whole number from ",
                        std::numeric_limits<Integer>::min(), " to ",
                        std::numeric_limits<Integer>::max(), " fits here");
  }
  return Got(field, text);
}

std::string ParseNumber(const FieldDescriptor& field, const std::string& text,
                        double* value) {
  if (!absl::SimpleAtod(text, value)) return Got(field, text);
  const size_t exponent = text.find_first_of("eE");
  // "inf" has no digit: that is no number that was too great.
  if (std::isinf(*value) &&
      text.find_first_of("0123456789") != std::string::npos) {
    return absl::StrCat(text, " is out of range; the greatest number is ",
                        std::numeric_limits<double>::max());
  }
  if (!std::isfinite(*value)) {
    return absl::StrCat("expected a finite number, got '", text, "'");
  }
  // Zero often means "off", which 1e-400 does not ask for.
  if (*value == 0 && text.substr(0, exponent).find_first_of("123456789") !=
                         std::string::npos) {
    return absl::StrCat(text, " is too small to tell from 0; write 0 for that");
  }
  return "";
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    if (IsKey(*type.field(i))) names.push_back(type.field(i)->name());
  }
  return names;
}

const FieldDescriptor* FindKey(const Descriptor& type, const std::string& key) {
  const FieldDescriptor* const field = type.FindFieldByName(key);
  return field != nullptr && IsKey(*field) ? field : nullptr;
}

std::string UnknownKey(const std::string& key, const Descriptor& type) {
  const std::vector<std::string> known = FieldNames(type);
  const std::vector<std::string> paths = PathsOf(key);
  if (paths.empty() || !DidYouMean(key, known).empty()) {
    return UnknownKeyText(key, known);
  }
  return absl::StrCat("unknown key; did you mean '",
                      absl::StrJoin(paths, "' or '"), "'?");
}

std::string ExpectedType(const FieldDescriptor& field) {
  if (field.message_type() != nullptr) {
    return absl::StrCat(field.is_repeated() ? "a list of keys (" : "keys (",
                        absl::StrJoin(FieldNames(*field.message_type()), ", "),
                        ")");
  }
  const std::string scalar = ScalarName(field);
  if (field.is_repeated()) {
    return absl::StrCat("a list of ", scalar, "s, as in ",
                        scalar == "text" ? "[a, b]" : "[1, 2]");
  }
  return scalar == "text" ? scalar : absl::StrCat("a ", scalar);
}

// Gives the field a value, or one more where it is a list.
template <typename T>
void Put(Message& message, const FieldDescriptor& field, T value,
         void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
         void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  const auto put = field.is_repeated() ? add : set;
  (message.GetReflection()->*put)(&message, &field, std::move(value));
}

// The same for a number that `text` says.  Returns what is wrong with it.
template <typename T>
std::string PutNumber(
    Message& message, const FieldDescriptor& field, const std::string& text,
    void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
    void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  T value = 0;
  std::string why = ParseNumber(field, text, &value);
  Put(message, field, value, set, add);
  return why;
}

// Reads `text` into the field, or into one more element of a list.  Returns
// what is wrong with it.
std::string SetScalar(Message& message, const FieldDescriptor& field,
                      const std::string& text) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return PutNumber(message, field, text, &Reflection::SetInt32,
                       &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return PutNumber(message, field, text, &Reflection::SetInt64,
                       &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return PutNumber(message, field, text, &Reflection::SetDouble,
                       &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      // YAML 1.2 has no other words for them; `yes` is a text there.
      if (text != "true" && text != "false") return Got(field, text);
      Put(message, field, text == "true", &Reflection::SetBool,
          &Reflection::AddBool);
      return "";
    case FieldDescriptor::CPPTYPE_STRING:
      // protobuf would refuse it only when it is sent.
      if (ValidUtf8(text) != text) return "is not valid UTF-8";
      Put(message, field, text, &Reflection::SetString, &Reflection::AddString);
      return "";
    default:
      return "is of a type that job files cannot hold yet";
  }
}

// Returns what a relative path that workers open would mean here; empty where
// `path` is no key of such a path.
std::string PathHint(const JobSpec& spec, const std::string& path) {
  const auto files = FilesOf(spec);
  const auto file = absl::c_find_if(
      files, [&](const auto& each) { return each.first == path; });
  if (file == files.end() || file->second.empty() ||
      file->second.front() == '/') {
    return "";
  }
  const std::string home = Environment("HOME");
  const bool of_home = !home.empty() && absl::StartsWith(file->second, "~/");
  std::error_code error;
  const std::filesystem::path here =
      of_home ? std::filesystem::path(home) / file->second.substr(2)
              : std::filesystem::current_path(error) / file->second;
  return absl::StrCat("; on this machine that would be ",
                      Printable(here.lexically_normal().string()));
}

// Elements of "[1, 2]" or "1,2" as views into it; none of "[]".  Says in *why
// what is wrong and where; column: that of the text's first character.
std::vector<absl::string_view> SplitList(absl::string_view text, size_t column,
                                         std::string* why) {
  const auto at = [column, begin = text.data()](const char* place) {
    return absl::StrCat("column ", column + (place - begin), ": ");
  };
  text = absl::StripAsciiWhitespace(text);
  const absl::string_view whole = text;
  const bool opens = absl::ConsumePrefix(&text, "[");
  const bool closes = absl::ConsumeSuffix(&text, "]");
  if (opens != closes) {
    *why = opens ? at(whole.data()) + "'[' without ']' at the end"
                 : at(&whole.back()) + "']' without '[' at the beginning";
    return {};
  }
  const size_t bracket = text.find_first_of("[]");
  if (bracket != absl::string_view::npos) {
    *why = at(&text[bracket]) + "a list cannot hold a list";
    return {};
  }
  if (absl::StripAsciiWhitespace(text).empty()) return {};
  std::vector<absl::string_view> elements;
  for (const absl::string_view element : absl::StrSplit(text, ',')) {
    elements.push_back(absl::StripAsciiWhitespace(element));
    if (why->empty() && elements.back().empty()) {
      *why = at(element.data()) + "a value is missing";
    }
  }
  return elements;
}

// Fills a v1::JobSpec and remembers where each value came from.
// Thread-compatible.
class SpecReader {
 public:
  explicit SpecReader(std::string file) : file_(std::move(file)) {}

  // Before the first ReadSet().
  void ReadDocument(const YAML::Node& root) {
    if (!root.IsMap()) {
      return AddProblem(Where(root), "",
                        "expected keys such as model, data and train, got ",
                        NodeText(root));
    }
    ReadMap(root, "", proto_);
  }

  void ReadSet(const std::string& set) {
    set_ = absl::StrCat("--set ", Excerpt(set));
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      return AddProblem(set_, "", "expected KEY=VALUE, as in train.steps=60");
    }
    const std::string path = set.substr(0, equals);
    Message* message = &proto_;
    const std::vector<std::string> keys = absl::StrSplit(path, '.');
    for (size_t i = 0; i < keys.size(); ++i) {
      const Descriptor& type = *message->GetDescriptor();
      const FieldDescriptor* const field = FindKey(type, keys[i]);
      const std::string here =
          absl::StrJoin(keys.begin(), keys.begin() + i + 1, ".");
      if (field == nullptr) {
        return AddProblem(set_, Printable(here), UnknownKey(keys[i], type));
      }
      const Descriptor* const below = field->message_type();
      const bool is_last = i + 1 == keys.size();
      if (is_last && below != nullptr && !field->is_repeated()) {
        AddProblem(set_, "", "name one value, as in ", here, ".",
                   below->field(0)->name(), "=VALUE");
      } else if (is_last) {
        where_[path] = set_;
        SetField(set.substr(equals + 1), equals + 2, *field, *message);
      } else if (below == nullptr) {
        return AddProblem(set_, "", here, " has no keys below it");
      } else if (field->is_repeated()) {
        return AddProblem(set_, "", here, " is a list: set all of it, as in ",
                          here, "=[{", below->field(0)->name(), ": VALUE}]");
      } else {
        message = message->GetReflection()->MutableMessage(message, field);
      }
    }
  }

  // why: joined as absl::StrCat joins.
  template <typename... Parts>
  void AddProblem(const std::string& where, const std::string& path,
                  const Parts&... why) {
    problems_.push_back(
        absl::StrCat(where, ": ", path, path.empty() ? "" : ": ", why...));
  }

  absl::Status status() const {
    if (problems_.empty()) return absl::OkStatus();
    return InvalidArgument(absl::StrJoin(problems_, "\n"));
  }
  v1::JobSpec& proto() { return proto_; }

  // The job, changed by `sets`.
  //   only_paths  says only which relative paths would not be found
  absl::StatusOr<ParsedJob> Finish(const std::vector<std::string>& sets,
                                   bool only_paths = false) {
    for (const std::string& set : sets) ReadSet(set);
    // Values are judged only once all of them could be read.
    PACELINE_RETURN_IF_ERROR(status());
    CheckValues(only_paths);
    PACELINE_RETURN_IF_ERROR(status());
    const JobSpec spec = FromProto(proto_);
    return ParsedJob{spec, Warnings(spec)};
  }

 private:
  void CheckValues(bool only_paths) {
    const JobSpec spec = FromProto(proto_);
    for (const SpecProblem& problem : CheckJobSpec(spec)) {
      const std::string hint = PathHint(spec, problem.path);
      if (only_paths && hint.empty()) continue;
      // A model's problem may be that of another key, which its words begin
      // with.
      const auto named =
          where_.find(problem.why.substr(0, problem.why.find(' ')));
      AddProblem(named == where_.end() ? WhereOf(problem.path) : named->second,
                 problem.path, problem.why, hint);
    }
  }

  // One line for each key that has no effect in `spec`.
  std::vector<std::string> Warnings(const JobSpec& spec) const {
    std::vector<GivenKey> given;
    for (const auto& [path, where] : where_) {
      given.push_back({path, absl::StartsWith(where, "--set ")});
    }
    std::vector<std::string> warnings;
    for (const UnusedKey& key : UnusedKeys(spec, given)) {
      warnings.push_back(absl::StrCat(where_.at(key.path), ": ", key.path,
                                      " has no effect: ", key.why));
    }
    return warnings;
  }

  std::string Where(const YAML::Node& node) const {
    return set_.empty() ? absl::StrCat(file_, ":", node.Mark().line + 1) : set_;
  }
  // The place of `path`, of a key of this section, or of the nearest thing
  // above it that was given.
  std::string WhereOf(std::string path) const {
    const auto below = where_.lower_bound(path + ".");
    if (!where_.contains(path) && below != where_.end() &&
        absl::StartsWith(below->first, path + ".")) {
      return below->second;
    }
    for (;;) {
      const auto found = where_.find(path);
      if (found != where_.end()) return found->second;
      const size_t cut = path.find_last_of(".[");
      if (cut == std::string::npos) return file_;
      path.resize(cut);
    }
  }

  void ReadMap(const YAML::Node& node, const std::string& prefix,
               Message& message) {
    const Descriptor& type = *message.GetDescriptor();
    std::map<std::string, int> lines;
    for (const auto& entry : node) {
      const YAML::Node& key = entry.first;
      if (!key.IsScalar()) {
        AddProblem(Where(key), std::string(absl::StripSuffix(prefix, ".")),
                   "expected a key, got ", NodeText(key));
        continue;
      }
      const std::string path = prefix + Printable(key.Scalar());
      const int line = key.Mark().line + 1;
      if (const auto [first, is_new] = lines.emplace(key.Scalar(), line);
          !is_new) {
        AddProblem(Where(key), path, "duplicate key, first on line ",
                   first->second);
        continue;
      }
      const FieldDescriptor* field = FindKey(type, key.Scalar());
      if (field == nullptr) {
        AddProblem(Where(key), path, UnknownKey(key.Scalar(), type));
        continue;
      }
      where_[path] = Where(key);
      ReadField(key, entry.second, path, *field, message);
    }
  }

  void ReadField(const YAML::Node& key, const YAML::Node& value,
                 const std::string& path, const FieldDescriptor& field,
                 Message& message) {
    const bool is_message = field.message_type() != nullptr;
    if (is_message && value.IsNull()) return;  // a section without keys
    const bool fits = field.is_repeated() ? value.IsSequence()
                      : is_message        ? value.IsMap()
                                          : value.IsScalar();
    if (!fits) {
      return AddProblem(Where(key), path, "expected ", ExpectedType(field),
                        ", got ", NodeText(value));
    }
    if (is_message && field.is_repeated()) {
      ReadMaps(value, path, field, message);
    } else if (is_message) {
      ReadMap(value, path + ".",
              *message.GetReflection()->MutableMessage(&message, &field));
    } else if (field.is_repeated()) {
      for (const auto& element : value) {
        ReadScalar(element, path, field, message);
      }
    } else {
      ReadScalar(value, path, field, message);
    }
  }

  void ReadScalar(const YAML::Node& value, const std::string& path,
                  const FieldDescriptor& field, Message& message) {
    if (!value.IsScalar()) {
      return AddProblem(Where(value), path, "expected ", ExpectedType(field),
                        ", got ", NodeText(value), " in it");
    }
    // yaml-cpp marks a quoted scalar with the tag "!".
    const bool quoted = value.Tag() == "!";
    if (quoted && field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
      return AddProblem(Where(value), path, "expected ", ExpectedType(field),
                        ", got the text \"", Excerpt(value.Scalar()),
                        "\": remove the quotes");
    }
    const std::string why = SetScalar(message, field, value.Scalar());
    if (!why.empty()) AddProblem(Where(value), path, why);
  }

  // Each with a path of its own, "faults[0]".
  void ReadMaps(const YAML::Node& list, const std::string& path,
                const FieldDescriptor& field, Message& message) {
    size_t index = 0;
    for (const auto& element : list) {
      const std::string here = absl::StrCat(path, "[", index++, "]");
      if (!element.IsMap()) {
        AddProblem(Where(element), here, "expected keys (",
                   absl::StrJoin(FieldNames(*field.message_type()), ", "),
                   "), got ", NodeText(element));
        continue;
      }
      where_[here] = Where(element);
      ReadMap(element, here + ".",
              *message.GetReflection()->AddMessage(&message, &field));
    }
  }

  // The value of a --set; column: where its text begins in the whole.
  void SetField(const std::string& text, size_t column,
                const FieldDescriptor& field, Message& message) {
    if (field.is_repeated()) {
      message.GetReflection()->ClearField(&message, &field);
      if (field.message_type() != nullptr) {
        SetMaps(text, column, field, message);
      } else {
        SetList(text, column, field, message);
      }
      return;
    }
    const std::string why = SetScalar(message, field, text);
    if (!why.empty()) AddProblem(set_, "", why);
  }

  void SetList(absl::string_view text, size_t column,
               const FieldDescriptor& field, Message& message) {
    std::string why;
    for (const absl::string_view element : SplitList(text, column, &why)) {
      if (why.empty()) why = SetScalar(message, field, std::string(element));
    }
    if (!why.empty()) AddProblem(set_, "", why);
  }

  // Such a list takes the place of the file's, as it would be written there.
  void SetMaps(const std::string& text, size_t column,
               const FieldDescriptor& field, Message& message) {
    const std::string& path = field.name();
    std::erase_if(where_, [&](const auto& given) {
      return absl::StartsWith(given.first, path + "[");
    });
    try {
      const YAML::Node node = YAML::Load(text);
      if (node.IsSequence()) {
        ReadMaps(node, path, field, message);
      } else {
        AddProblem(set_, "", "expected ", ExpectedType(field), ", got ",
                   NodeText(node));
      }
    } catch (const YAML::Exception& error) {
      AddProblem(set_, "", "is not YAML at column ", column + error.mark.column,
                 ": ", error.msg);
    }
  }

  const std::string file_;
  std::string set_;  // "--set ...", from the first one on
  v1::JobSpec proto_;
  std::map<std::string, std::string> where_;  // of every value, by its path
  std::vector<std::string> problems_;
};

}  // namespace

absl::StatusOr<std::string> ReadJobFile(const std::string& path) {
  const bool from_stdin = path == "-";
  const int file =
      from_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string text;
  const int error =
      file < 0 ? errno : ReadAll(file, kMaxJobFileBytes + 1, text);
  if (file >= 0 && !from_stdin) close(file);
  const std::string name = from_stdin ? "standard input" : path;
  if (from_stdin && error == EBADF) {
    return InvalidArgument(
        "cannot read the job from standard input: it is closed; name a file, "
        "or hand one over as in 'paceline job submit - < job.yaml'");
  }
  if (error != 0) {
    return InvalidArgument("cannot read the job file ", name, ": ",
                           std::strerror(error));
  }
  if (static_cast<int64_t>(text.size()) > kMaxJobFileBytes) {
    return InvalidArgument(name, " is larger than ",
                           HumanBytes(static_cast<double>(kMaxJobFileBytes)),
                           ": that is no job file");
  }
  return text;
}

absl::StatusOr<ParsedJob> ParseJobFile(const JobFile& file) {
  SpecReader reader(file.name);
  PACELINE_RETURN_IF_ERROR(ReadYaml(
      file.name, file.text, "a job file",
      "names at least model.name and data.name", [&](const YAML::Node& root) {
        reader.ReadDocument(file.below.empty() ? root : root[file.below]);
        return absl::OkStatus();
      }));
  return reader.Finish(file.sets);
}

absl::StatusOr<ParsedJob> ChangeJob(const JobSpec& spec,
                                    const std::vector<std::string>& sets) {
  SpecReader reader("the job");
  reader.proto() = ToProto(spec);
  return reader.Finish(sets);
}

absl::Status CheckSet(const std::string& set) {
  SpecReader reader("");
  reader.ReadSet(set);
  return reader.status();
}

absl::StatusOr<ParsedJob> ParseModelSettings(
    const std::string& model_name, const std::vector<std::string>& sets) {
  SpecReader reader("model");
  reader.proto().mutable_model()->set_name(model_name);
  return reader.Finish(sets, /*only_paths=*/true);
}

}  // namespace paceline
