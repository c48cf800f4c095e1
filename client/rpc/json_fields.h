// Reads JSON objects that may be hostile, field by field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace paceline {

// JSON nested no deeper than kMostJsonDepth; `name` is the file's, for errors.
// Errors: InvalidArgument  not JSON (says at which byte), or nested deeper
inline constexpr int kMostJsonDepth = 16;
absl::StatusOr<nlohmann::json> ParseJson(const std::string& name,
                                         const std::string& text);

// The fields of one object.  A field that is missing or of another type makes
// an error that names its path ("profiles[2].layers[0].forward_seconds"), kept
// in a status that all readers of a document share: the first one stays, and
// what is read afterwards does not count.  Unknown keys are ignored.
// Thread-compatible; value and status outlive it.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& value, std::string path,
             absl::Status& status);

  bool Has(const char* key) const;

  // A finite number that is not negative.
  void Amount(const char* key, double& into);
  // As Amount; a missing field leaves `into` as it is.
  void OptionalAmount(const char* key, double& into);
  // A whole number in [least, most].
  template <typename T>
  void Whole(const char* key, int64_t least, int64_t most, T& into) {
    int64_t value = into;
    ReadWhole(key, least, most, value);
    into = static_cast<T>(value);
  }
  void Flag(const char* key, bool& into);
  void Text(const char* key, std::string& into);
  void OptionalText(const char* key, std::string& into);
  void Amounts(const char* key, std::vector<double>& into);

  // Calls read(fields of an element) for every element of a list of objects.
  template <typename Read>
  void ForEach(const char* key, const Read& read) {
    const nlohmann::json* const list = List(key);
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      if (!status_.ok()) return;
      JsonFields element((*list)[i], ElementPath(key, i), status_);
      read(element);
    }
  }

  // The object under `key`; one without fields when it is missing.
  JsonFields Object(const char* key);
  // The list under `key`; null when it is missing or no list.
  const nlohmann::json* List(const char* key);

  // Notes what is wrong with `key`.
  void Fail(absl::string_view key, absl::string_view what);
  const std::string& path() const { return path_; }

 private:
  const nlohmann::json* Find(const char* key);
  void ReadWhole(const char* key, int64_t least, int64_t most, int64_t& into);
  std::string PathOf(absl::string_view key) const;
  std::string ElementPath(absl::string_view key, size_t index) const;

  const nlohmann::json& value_;
  const std::string path_;
  absl::Status& status_;
};

}  // namespace paceline
