#include "worker/data/skip_list.h"

#include "absl/strings/str_cat.h"
#include "core/obs/log.h"

namespace paceline {
namespace {

// A tenth of a small split would be none.
constexpr int64_t kAlways = 2;

}  // namespace

bool SkipList::Contains(int32_t sample) const {
  absl::MutexLock lock(&mutex_);
  return skipped_.contains(sample);
}

int64_t SkipList::count() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(skipped_.size());
}

absl::Status SkipList::Add(int32_t sample, const std::string& file,
                           const absl::Status& why) {
  int64_t count = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (!skipped_.insert(sample).second) return absl::OkStatus();
    count = static_cast<int64_t>(skipped_.size());
  }
  Log(LogLevel::kWarn, "image skipped",
      {{"file", file},
       {"why", why.message()},
       {"skipped", count},
       {"of", samples_}});
  if (count < samples_ && (count <= kAlways || count * 10 <= samples_)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat(count, " of ", samples_,
                   " images cannot be read, more than a tenth; the "
                   "last is ",
                   file, ": ", why.message(),
                   "; the log names those that were met so far: replace or "
                   "remove them"));
}

}  // namespace paceline
