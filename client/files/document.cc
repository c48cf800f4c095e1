#include "client/files/document.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "yaml-cpp/yaml.h"

namespace paceline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Letters, digits and a few signs, beginning with a letter, and no word that
// YAML 1.1 reads as something else.
bool IsPlainYaml(const std::string& text) {
  constexpr std::array kReserved = {"null", "true", "false", "yes", "no",
                                    "on",   "off",  "y",     "n"};
  if (text.empty() || !absl::ascii_isalpha(text[0])) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.' &&
        c != '/') {
      return false;
    }
  }
  const std::string lower = absl::AsciiStrToLower(text);
  return std::find(kReserved.begin(), kReserved.end(), lower) ==
         kReserved.end();
}

void EmitText(const std::string& text, YAML::Emitter& out) {
  if (!IsPlainYaml(text)) out << YAML::DoubleQuoted;
  out << text;
}

// "1e-05" without a point would be a text to readers of YAML 1.1.
std::string ScalarText(const Document& value) {
  std::string text = ToJson(value);
  if (!value.is_number_float()) return text;
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

void Emit(const Document& value, YAML::Emitter& out) {
  if (value.is_object()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginMap;
    for (const auto& [key, element] : value.items()) {
      out << YAML::Key;
      EmitText(key, out);
      out << YAML::Value;
      Emit(element, out);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginSeq;
    for (const Document& element : value) Emit(element, out);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    EmitText(value.get_ref<const std::string&>(), out);
  } else if (const std::string text = ScalarText(value); text == "null") {
    out << YAML::Null;
  } else {
    out << text;
  }
}

// The value of `field`, or of its element `i` where it is repeated.
Document FieldDocument(const Message& message, const FieldDescriptor& field,
                       int i) {
  const Reflection& reflection = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
#define PACELINE_FIELD(TYPE, Getter)                                 \
  case FieldDescriptor::CPPTYPE_##TYPE:                              \
    return list ? reflection.GetRepeated##Getter(message, &field, i) \
                : reflection.Get##Getter(message, &field)
    PACELINE_FIELD(INT32, Int32);
    PACELINE_FIELD(INT64, Int64);
    PACELINE_FIELD(UINT32, UInt32);
    PACELINE_FIELD(UINT64, UInt64);
    PACELINE_FIELD(DOUBLE, Double);
    PACELINE_FIELD(FLOAT, Float);
    PACELINE_FIELD(BOOL, Bool);
    PACELINE_FIELD(STRING, String);
#undef PACELINE_FIELD
    case FieldDescriptor::CPPTYPE_ENUM:
      return list ? reflection.GetRepeatedEnum(message, &field, i)->name()
                  : reflection.GetEnum(message, &field)->name();
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (list) {
        return MessageDocument(
            reflection.GetRepeatedMessage(message, &field, i));
      }
      return reflection.HasField(message, &field)
                 ? MessageDocument(reflection.GetMessage(message, &field))
                 : Document();
  }
  return Document();
}

}  // namespace

std::string ToJson(const Document& document, bool pretty) {
  return document.dump(pretty ? 2 : -1, ' ', /*ensure_ascii=*/false,
                       Document::error_handler_t::replace);
}

std::string ToYaml(const Document& document) {
  YAML::Emitter out;
  out.SetNullFormat(YAML::LowerNull);
  Emit(document, out);
  return absl::StrCat(out.c_str(), "\n");
}

Document MessageDocument(const Message& message) {
  Document document = Document::object();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(f);
    Document& value = document[field.name()];
    if (!field.is_repeated()) {
      value = FieldDocument(message, field, 0);
      continue;
    }
    value = Document::array();
    const int size = message.GetReflection()->FieldSize(message, &field);
    for (int i = 0; i < size; ++i) {
      value.push_back(FieldDocument(message, field, i));
    }
  }
  return document;
}

}  // namespace paceline
