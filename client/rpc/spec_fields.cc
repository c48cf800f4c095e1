#include "client/rpc/spec_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/text.h"
#include "core/model/job_spec.h"
#include "paceline/v1/types.pb.h"

namespace paceline {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// What is in a script is for workers to say.
bool IsKey(const FieldDescriptor& field) {
  return field.message_type() != v1::ScriptModel::GetDescriptor();
}

// Paths of all fields named `key` below `type`.
void FindPaths(const std::string& key, const Descriptor& type,
               const std::string& prefix, std::vector<std::string>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!IsKey(field)) continue;
    const std::string path = prefix + field.name();
    if (field.name() == key) paths.push_back(path);
    if (field.message_type() != nullptr) {
      FindPaths(key, *field.message_type(), path + ".", paths);
    }
  }
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
                      Printable(text), "'");
}

template <typename Integer>
std::string ParseInteger(const FieldDescriptor& field, const std::string& text,
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

std::string ParseReal(const FieldDescriptor& field, const std::string& text,
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
  // Zero often means "off": nobody who writes 1e-400 asks for that.
  if (*value == 0 && text.substr(0, exponent).find_first_of("123456789") !=
                         std::string::npos) {
    return absl::StrCat(text, " is too small to tell from 0; write 0 for that");
  }
  return "";
}

}  // namespace

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

std::string UnknownKey(const std::string& key, const Descriptor& type,
                       const Descriptor& root) {
  const std::vector<std::string> known = FieldNames(type);
  const std::string close = DidYouMean(key, known);
  if (!close.empty()) {
    return absl::StrCat("unknown key; did you mean '", close, "'?");
  }
  std::vector<std::string> paths;
  FindPaths(key, root, "", paths);
  if (!paths.empty()) {
    return absl::StrCat("unknown key; did you mean '",
                        absl::StrJoin(paths, "' or '"), "'?");
  }
  return absl::StrCat("unknown key; known here: ", absl::StrJoin(known, ", "));
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

std::string SetScalar(Message& message, const FieldDescriptor& field,
                      const std::string& text, bool append) {
  const Reflection& reflection = *message.GetReflection();
  std::string why;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      int32_t value = 0;
      why = ParseInteger(field, text, &value);
      if (!why.empty()) return why;
      append ? reflection.AddInt32(&message, &field, value)
             : reflection.SetInt32(&message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t value = 0;
      why = ParseInteger(field, text, &value);
      if (!why.empty()) return why;
      append ? reflection.AddInt64(&message, &field, value)
             : reflection.SetInt64(&message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      why = ParseReal(field, text, &value);
      if (!why.empty()) return why;
      append ? reflection.AddDouble(&message, &field, value)
             : reflection.SetDouble(&message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      // YAML 1.2 has no other words for them; `yes` is a text there.
      if (text != "true" && text != "false") return Got(field, text);
      append ? reflection.AddBool(&message, &field, text == "true")
             : reflection.SetBool(&message, &field, text == "true");
      return "";
    case FieldDescriptor::CPPTYPE_STRING:
      // protobuf would refuse it only when it is sent.
      if (ValidUtf8(text) != text) return "is not valid UTF-8";
      append ? reflection.AddString(&message, &field, text)
             : reflection.SetString(&message, &field, text);
      return "";
    default:
      return "is of a type that job files cannot hold yet";
  }
}

}  // namespace paceline
