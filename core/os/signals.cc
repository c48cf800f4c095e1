#include "core/os/signals.h"

#include <pthread.h>

#include <cstdlib>

namespace paceline {

sigset_t BlockSignals(std::initializer_list<int> signals) {
  sigset_t blocked;
  sigemptyset(&blocked);
  if (std::getenv("NOTIFY_SOCKET") != nullptr) sigaddset(&blocked, SIGHUP);
  for (const int signal : signals) sigaddset(&blocked, signal);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return blocked;
}

int AwaitSignal(const sigset_t& signals, const std::function<void()>& reload) {
  for (;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal != SIGHUP) return signal;
    reload();
  }
}

bool TakeSignal(const sigset_t& signals) {
  const timespec no_time = {};
  return sigtimedwait(&signals, nullptr, &no_time) > 0;
}

}  // namespace paceline
