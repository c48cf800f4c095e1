// The daemons' HTTP port: /metrics, /healthz, /readyz and, on the coordinator,
// /sd.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace paceline {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Thread-safe.  Handlers are called from the server's threads; they outlive
// the server.  GET only; anything else is 404 or 405; a request is limited to
// 64 KiB and 5 seconds.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer()>;

  HttpServer();
  ~HttpServer();  // Stop()

  // Before Start() only.
  void Get(const std::string& path, Handler handler);

  // Listens on host:port (port 0: any) and serves on threads of its own.
  // Returns the port.
  // Errors: Unavailable  the port is in use or not ours; the message says so
  //                      and names the flag to change.
  absl::StatusOr<int> Start(const std::string& host, int port);
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
