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

// Thread-safe.  Handlers are called from the server's threads, several at
// once; what they capture outlives the server.  They must be quick.  GET and
// HEAD only: 405 for anything else, 404 for an unknown path.  A connection
// serves one request, and that is limited to 64 KiB and 5 seconds in all; one
// that says nothing for a second is hung up on.  32 clients are served at a
// time; when another comes, the oldest one that has not said what it wants is
// hung up on, so that such clients delay nobody.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer()>;

  HttpServer();
  ~HttpServer();  // Stop()

  // Before Start() only.
  void Get(const std::string& path, Handler handler);

  // Listens on host:port (port 0: any; empty host: every address; localhost:
  // 127.0.0.1) and serves on threads of its own.  Returns the port.  Once.
  // Errors: Unavailable  the port is in use or not ours; the message says so
  //                      and names the flag to change.
  absl::StatusOr<int> Start(const std::string& host, int port);

  // Hangs up on clients at once and waits for running handlers.  Safe to
  // repeat, and without Start().
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
