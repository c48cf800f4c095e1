#include "worker/rounds/faults.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/obs/log.h"

extern char** environ;

namespace paceline {

void SpoilGradient(const StepFaults& faults, int64_t samples, uint64_t seed,
                   absl::Span<float> gradient) {
  if (faults.gaussian.has_value()) {
    SplitMix64 random(seed);
    const double deviation = *faults.gaussian * static_cast<double>(samples);
    for (float& value : gradient) {
      // Box and Muller 1958; 1 - u, since there is no logarithm of 0.
      const double radius = std::sqrt(-2 * std::log(1 - random.Unit()));
      value = static_cast<float>(deviation * radius *
                                 std::cos(2 * M_PI * random.Unit()));
    }
  }
  if (faults.sign_flip.has_value()) {
    const auto factor = static_cast<float>(-*faults.sign_flip);
    for (float& value : gradient) value *= factor;
  }
  if (faults.nan && !gradient.empty()) {
    gradient.back() = std::numeric_limits<float>::infinity();
    gradient.front() = std::numeric_limits<float>::quiet_NaN();
  }
}

Tensor FlipLabels(const Tensor& labels, int64_t classes) {
  Tensor flipped = Tensor::Allocate(labels.dtype, labels.shape);
  std::memcpy(flipped.data.get(), labels.data.get(), labels.bytes());
  for (int64_t& label : flipped.As<int64_t>()) {
    if (label >= 0 && label < classes) label = classes - 1 - label;
  }
  return flipped;
}

void ProcessFaults::Kill() { raise(SIGKILL); }

// A stopped process cannot wake itself: another one does.  No fork(): the child
// of a process with threads may do next to nothing.  The other one waits until
// this one is stopped, since a SIGCONT before that would be lost.
void ProcessFaults::Hang(absl::Duration time) {
  const std::string script = absl::StrCat(
      "while kill -0 ", getpid(), " && ! grep -q '^State:.T' /proc/", getpid(),
      "/status; do sleep 0.01; done 2>/dev/null; sleep ",
      absl::ToDoubleSeconds(time), "; kill -CONT ", getpid());
  std::string shell = "sh";
  std::string option = "-c";
  std::string command = script;
  char* const arguments[] = {shell.data(), option.data(), command.data(),
                             nullptr};
  pid_t waker = 0;
  const int error =
      posix_spawnp(&waker, "sh", nullptr, nullptr, arguments, environ);
  if (error != 0) {
    Log(LogLevel::kError, "cannot hang: no process would wake this one",
        {{"why", strerror(error)}});
    return;
  }
  raise(SIGSTOP);
  waitpid(waker, nullptr, 0);
}

}  // namespace paceline
