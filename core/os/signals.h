// Signals of a daemon: main waits for them, no other thread sees them.
#pragma once

#include <signal.h>

#include <functional>
#include <initializer_list>

namespace paceline {

// Blocks these, before the first thread starts, so that every thread inherits
// it; and SIGHUP where systemd has started the process: elsewhere it says that
// the terminal is gone, and ends the process.  Ignores SIGPIPE: the reader of
// the log may leave, the daemon stays.
sigset_t BlockSignals(std::initializer_list<int> signals);

// Waits for one of `signals`, and returns it.  Each SIGHUP calls `reload`.
int AwaitSignal(const sigset_t& signals, const std::function<void()>& reload);

// Takes one of `signals`.  False: none has come.
bool TakeSignal(const sigset_t& signals);

}  // namespace paceline
