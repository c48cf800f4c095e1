// DaemonProbe over port files and gRPC.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/mesh.h"

namespace paceline {

// Thread-compatible.
class RealDaemonProbe final : public DaemonProbe {
 public:
  // {"grpc": "host:port", "http": "host:port", "pid": N}
  std::optional<DaemonPorts> ReadPortFile(const std::string& path) override;
  std::unique_ptr<ControlClient> Connect(const std::string& address) override;
};

}  // namespace paceline
