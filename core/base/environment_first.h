// Environment before configuration file, for CLI11, which has it the other way
// round: it fills options from the file, and asks the environment only for
// those that are still empty.  A template, so that CLI11 stays in options.cc.
#pragma once

#include <cstdlib>
#include <istream>
#include <string>
#include <utility>
#include <vector>

namespace paceline {

// Whether the environment says something; an empty text says nothing.
inline bool EnvironmentHas(const std::string& variable) {
  const char* const value = std::getenv(variable.c_str());
  return value != nullptr && *value != '\0';
}

// Reads a file as Base (a CLI::Config) does, and leaves out the entries of
// options whose variable is set.  Immutable; `app` (a CLI::App) outlives it.
template <typename Base, typename App>
class EnvironmentFirst final : public Base {
 public:
  explicit EnvironmentFirst(const App& app) : app_(app) {}

  auto from_config(std::istream& input) const
      -> decltype(std::declval<const Base&>().from_config(input)) override {
    auto items = Base::from_config(input);
    std::erase_if(items, [this](const auto& item) {
      const auto* const option = app_.get_option_no_throw("--" + item.name);
      return option != nullptr && EnvironmentHas(option->get_envname());
    });
    return items;
  }

 private:
  const App& app_;
};

}  // namespace paceline
