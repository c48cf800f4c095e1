#include "client/rpc/daemon_probe.h"

#include <fstream>

#include "client/rpc/grpc_control_client.h"
#include "nlohmann/json.hpp"

namespace paceline {

std::optional<DaemonPorts> RealDaemonProbe::ReadPortFile(
    const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, /*callback=*/nullptr,
                                                    /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto grpc = json.find("grpc");
  const auto http = json.find("http");
  const auto pid = json.find("pid");
  if (grpc == json.end() || !grpc->is_string() || http == json.end() ||
      !http->is_string() || pid == json.end() || !pid->is_number_integer()) {
    return std::nullopt;
  }
  return DaemonPorts{.grpc = grpc->get<std::string>(),
                     .http = http->get<std::string>(),
                     .pid = pid->get<int64_t>()};
}

std::unique_ptr<ControlClient> RealDaemonProbe::Connect(
    const std::string& address) {
  return std::make_unique<GrpcControlClient>(address);
}

}  // namespace paceline
