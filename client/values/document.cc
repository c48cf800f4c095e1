#include "client/values/document.h"

#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/values/text.h"
#include "core/base/errors.h"
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
  return !text.empty() && absl::ascii_isalpha(text[0]) &&
         absl::c_all_of(text,
                        [](char c) {
                          return absl::ascii_isalnum(c) ||
                                 absl::StrContains("_-./", c);
                        }) &&
         !absl::c_linear_search(kReserved, absl::AsciiStrToLower(text));
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
Document ElementDocument(const Message& message, const FieldDescriptor& field,
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

Document FieldDocument(const Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return ElementDocument(message, field, 0);
  Document list = Document::array();
  const int size = message.GetReflection()->FieldSize(message, &field);
  for (int i = 0; i < size; ++i) {
    list.push_back(ElementDocument(message, field, i));
  }
  return list;
}

}  // namespace

bool ParseOutputFormat(const std::string& word, OutputFormat* format) {
  const auto found = absl::c_find(kOutputFormats, word);
  if (found == std::end(kOutputFormats)) return false;
  *format = static_cast<OutputFormat>(found - std::begin(kOutputFormats));
  return true;
}

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
    document[field.name()] = FieldDocument(message, field);
  }
  return document;
}

Document FieldsDocument(const Message& message, absl::string_view names) {
  Document document = Document::object();
  for (absl::string_view name :
       absl::StrSplit(names, ' ', absl::SkipWhitespace())) {
    const bool may_be_null = absl::ConsumeSuffix(&name, "?");
    const std::string key(name);
    const FieldDescriptor* const field =
        message.GetDescriptor()->FindFieldByName(key);
    PACELINE_CHECK(field != nullptr, key);
    Document& value = document[key] = FieldDocument(message, *field);
    const bool known = value.is_string()   ? value != ""
                       : value.is_number() ? value > 0
                                           : !value.empty();
    if (may_be_null && !known) value = nullptr;
  }
  return document;
}

namespace {

const Document kNoFields = Document::object();

// Names what stands where something else is expected.
std::string Describe(const Document& value) {
  constexpr size_t kMostLetters = 40;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_null()) return "null";
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return absl::StrCat("the text '", Printable(text.substr(0, kMostLetters)),
                        "'");
  }
  return value.dump();
}

}  // namespace

absl::StatusOr<Document> ParseJson(const std::string& name,
                                   const std::string& text) {
  // A document of nothing but brackets takes 40 times its size in memory;
  // what is refused here is never built.
  bool too_deep = false;
  const auto keep = [&](int depth, Document::parse_event_t, Document&) {
    too_deep = too_deep || depth > kMostJsonDepth;
    return !too_deep;
  };
  Document value = Document::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) {
    return InvalidArgument(name, ": nested deeper than ", kMostJsonDepth,
                           " levels");
  }
  if (value.is_discarded()) {
    return InvalidArgument(name, ": is not JSON, or was cut short");
  }
  return value;
}

JsonFields::JsonFields(const Document& value, std::string path,
                       absl::Status& status)
    : value_(value.is_object() ? &value : &kNoFields),
      path_(std::move(path)),
      status_(&status) {
  if (!value.is_object() && status_->ok()) {
    *status_ =
        InvalidArgument(path_, ": expected an object, got ", Describe(value));
  }
}

JsonFields::JsonFields(Document& into) : into_(&into) {
  into = Document::object();
}

std::string JsonFields::PathOf(absl::string_view key) const {
  return absl::StrCat(path_, path_.empty() ? "" : ".", key);
}

const Document* JsonFields::Find(const char* key) {
  const auto found = value_->find(key);
  if (found != value_->end()) return &*found;
  Fail(key, "is missing");
  return nullptr;
}

bool JsonFields::Expect(bool is, const Document& value, absl::string_view key,
                        const char* what) {
  if (!is) Fail(key, "expected ", what, ", got ", Describe(value));
  return is;
}

void JsonFields::Read(const Document& value, const std::string& key,
                      double& into, const JsonBounds& bounds) {
  into = bounds.null_is;
  if (value.is_null() && !std::isnan(into)) return;
  if (!Expect(value.is_number(), value, key, "a number")) return;
  value.get_to(into);
  if (!std::isfinite(into) || into < 0) {
    Fail(key, "is ", into, ", need a finite number that is not negative");
  }
}

int64_t JsonFields::ReadWhole(const Document& value, const std::string& key,
                              const JsonBounds& bounds) {
  if (!Expect(value.is_number_integer(), value, key, "a whole number")) {
    return 0;
  }
  // Above INT64_MAX a number is kept as unsigned and would come back negative.
  const bool too_large =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(kMostWhole);
  const int64_t whole = too_large ? kMostWhole : value.get<int64_t>();
  if (whole < bounds.least || whole > bounds.most || too_large) {
    Fail(key, "is ", value.dump(), ", need ", bounds.least, " to ",
         bounds.most);
  }
  return whole;
}

void JsonFields::ForElements(
    const Document& list, const std::string& key,
    absl::FunctionRef<void(const Document&, std::string)> take) {
  if (!Expect(list.is_array(), list, key, "a list")) return;
  for (size_t i = 0; status_->ok() && i < list.size(); ++i) {
    take(list[i], absl::StrCat(key, "[", i, "]"));
  }
}

}  // namespace paceline
