#include "worker/meters/energy.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/os/files.h"

namespace paceline {
namespace {

constexpr int64_t kLongestNumber = 64;  // bytes

std::optional<int64_t> CountIn(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file, kLongestNumber);
  int64_t number = 0;
  if (!text.ok() || !absl::SimpleAtoi(*text, &number) || number < 0) {
    return std::nullopt;
  }
  return number;
}

// "intel-rapl:0" may be a package, "intel-rapl:0:1" is a part of it.  What is
// called psys has the packages in it.
bool IsPackage(const std::filesystem::path& path) {
  const std::string name = path.filename();
  const size_t colon = name.find(':');
  return name.starts_with("intel-rapl:") &&
         name.find(':', colon + 1) == std::string::npos &&
         !absl::StartsWith(ReadFile(path / "name", kLongestNumber).value_or(""),
                           "psys");
}

}  // namespace

EnergyMeter::EnergyMeter(std::string folder) : folder_(std::move(folder)) {}

void EnergyMeter::ReadLocked() {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename();
    if (!IsPackage(entry.path())) continue;
    const std::string path = absl::StrCat(folder_, "/", name);
    const auto now = CountIn(absl::StrCat(path, "/energy_uj"));
    const auto range = CountIn(absl::StrCat(path, "/max_energy_range_uj"));
    if (!now.has_value()) continue;
    const auto [found, is_new] = counters_.try_emplace(name);
    Counter& counter = found->second;
    counter.range = range.value_or(0);
    const int64_t more = *now - std::exchange(counter.now, *now);
    if (is_new) continue;
    joules_ +=
        1e-6 * static_cast<double>(more < 0 ? more + counter.range : more);
  }
}

void EnergyMeter::Begin() {
  absl::MutexLock lock(&mutex_);
  counters_.clear();
  joules_ = 0;
  ReadLocked();
}

double EnergyMeter::Joules() {
  absl::MutexLock lock(&mutex_);
  ReadLocked();
  return joules_;
}

}  // namespace paceline
