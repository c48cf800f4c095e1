// What all commands share.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/console.h"
#include "client/control_client.h"
#include "client/exit_code.h"
#include "client/pause.h"
#include "core/base/clock.h"

namespace paceline {

// Everything outlives the command.
struct CommandContext {
  ControlClient& client;
  Console& console;
  const Clock& clock;
  Pauser& pauser;
  // How this program was called, for "what to do next": "paceline" or
  // "paceline --coordinator HOST:PORT".
  std::string program = "paceline";
};

// Writes "paceline: MESSAGE" and returns ExitCodeFor(status).
ExitCode ReportError(Console& console, const absl::Status& status);

// Points of the loss curve that a document or a plot is made from.
constexpr int kCurvePoints = 1000;

}  // namespace paceline
