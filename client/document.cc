#include "client/document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/text.h"
#include "core/base/check.h"

namespace paceline {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : ValidUtf8(text)) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

// The shortest text that reads back as the same double.
std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  // A whole number stays recognisable as a real one, and "1e-05" without a
  // point would be a text to readers of YAML 1.1.
  if (text.find('.') == std::string::npos) {
    text.insert(std::min(text.find('e'), text.size()), ".0");
  }
  return text;
}

// Letters, digits and a few signs, beginning with a letter, and no word that
// YAML 1.1 reads as something else.
bool IsPlainYaml(const std::string& text) {
  if (text.empty() || !absl::ascii_isalpha(text[0])) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.' &&
        c != '/') {
      return false;
    }
  }
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word :
       {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return false;
  }
  return true;
}

}  // namespace

Document::Document(const Document& other) = default;
Document::Document(Document&& other) noexcept = default;
Document& Document::operator=(const Document& other) = default;
Document& Document::operator=(Document&& other) noexcept = default;
Document::~Document() = default;

void Document::Add(std::string key, Document value) {
  PACELINE_CHECK(std::holds_alternative<Map>(value_), "no map");
  std::get<Map>(value_).emplace_back(std::move(key), std::move(value));
}

bool Document::IsEmptyOrScalar() const {
  if (const List* list = std::get_if<List>(&value_)) return list->empty();
  if (const Map* map = std::get_if<Map>(&value_)) return map->empty();
  return true;
}

void Document::WriteJson(std::string& out, int indent, bool pretty) const {
  const auto new_line = [&](int depth) {
    if (pretty) absl::StrAppend(&out, "\n", std::string(2 * depth, ' '));
  };
  if (std::holds_alternative<std::monostate>(value_)) {
    out += "null";
  } else if (const bool* flag = std::get_if<bool>(&value_)) {
    out += *flag ? "true" : "false";
  } else if (const int64_t* whole = std::get_if<int64_t>(&value_)) {
    absl::StrAppend(&out, *whole);
  } else if (const double* real = std::get_if<double>(&value_)) {
    out += Number(*real);
  } else if (const std::string* text = std::get_if<std::string>(&value_)) {
    out += Quoted(*text);
  } else if (IsEmptyOrScalar()) {
    out += std::holds_alternative<List>(value_) ? "[]" : "{}";
  } else if (const List* list = std::get_if<List>(&value_)) {
    out += '[';
    for (size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out += ',';
      new_line(indent + 1);
      (*list)[i].WriteJson(out, indent + 1, pretty);
    }
    new_line(indent);
    out += ']';
  } else {
    const Map& map = std::get<Map>(value_);
    out += '{';
    for (size_t i = 0; i < map.size(); ++i) {
      if (i > 0) out += ',';
      new_line(indent + 1);
      absl::StrAppend(&out, Quoted(map[i].first), pretty ? ": " : ":");
      map[i].second.WriteJson(out, indent + 1, pretty);
    }
    new_line(indent);
    out += '}';
  }
}

void Document::WriteYaml(std::string& out, int indent, bool in_list) const {
  const std::string* text = std::get_if<std::string>(&value_);
  if (IsEmptyOrScalar()) {
    if (text != nullptr && IsPlainYaml(*text)) {
      out += *text;
    } else {
      WriteJson(out, 0, false);
    }
    out += '\n';
    return;
  }
  const std::string margin(indent, ' ');
  // The first line of a list's element stands behind its dash.
  bool first = in_list;
  const auto start_line = [&] {
    if (!first) out += margin;
    first = false;
  };
  if (const List* list = std::get_if<List>(&value_)) {
    for (const Document& element : *list) {
      start_line();
      out += "- ";
      element.WriteYaml(out, indent + 2, true);
    }
    return;
  }
  for (const auto& [key, value] : std::get<Map>(value_)) {
    start_line();
    absl::StrAppend(&out, IsPlainYaml(key) ? key : Quoted(key), ":");
    if (value.IsEmptyOrScalar()) {
      out += ' ';
      value.WriteYaml(out, 0, false);
    } else {
      out += '\n';
      value.WriteYaml(out, indent + 2, false);
    }
  }
}

std::string Document::ToJson() const {
  std::string out;
  WriteJson(out, 0, false);
  return out;
}

std::string Document::ToPrettyJson() const {
  std::string out;
  WriteJson(out, 0, true);
  return out + '\n';
}

std::string Document::ToYaml() const {
  std::string out;
  WriteYaml(out, 0, false);
  return out;
}

Document TextList(const std::vector<std::string>& texts) {
  Document::List list;
  for (const std::string& text : texts) list.emplace_back(text);
  return list;
}

Document SecondsOrNull(double seconds) {
  return seconds > 0 ? Document(seconds) : Document();
}

Document TextOrNull(const std::string& text) {
  return text.empty() ? Document() : Document(text);
}

}  // namespace paceline
