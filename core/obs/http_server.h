// The daemons' HTTP port: /metrics, /healthz, /readyz and, on the coordinator,
// /sd and a page.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paceline {

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

// Files of a certificate, of its key, and of the authority that also signs
// those who ask.
struct HttpTls {
  std::string certificate;
  std::string key;
  std::string authority;
};

// Server-sent events for one client, on one thread of the server.
// https://html.spec.whatwg.org/multipage/server-sent-events.html
class EventSource {
 public:
  virtual ~EventSource() = default;
  // The next event, on one line; valid until the next call.  Waits for it, a
  // second at most: empty, when none came.  Null: there will be none.
  virtual const std::string* Next() = 0;
};

// Thread-safe.  The server's threads call the handlers, several at once;
// objects that a handler captures outlive the server.  Handlers must be quick.
// The server answers GET and HEAD only: 405 for other methods, 404 for an
// unknown path.  A connection serves one request of at most 64 KiB and 5
// seconds in all.  The server closes a connection that sends nothing for a
// second.  It serves 32 clients at a time.  When another one comes, it closes
// the connection of the oldest client that has not sent its request yet, so
// that such clients delay no other.  Besides, it sends events to 24 clients at
// a time, and drops one that does not take an event within 5 seconds.
class HttpServer {
 public:
  using Handler = std::function<HttpAnswer()>;

  HttpServer();
  ~HttpServer();  // Stop()

  // Before Start() only.
  void Get(const std::string& path, Handler handler);
  // The same for a path that gives each client events.
  void GetEvents(const std::string& path,
                 std::function<std::unique_ptr<EventSource>()> open);

  // Before Start() only.  From then on it answers requests that call it by a
  // name of IsOwnHost(), once: 421 for others, but for /healthz and /readyz.
  // The host of Start() counts as given.
  void AllowHosts(std::vector<std::string> names);

  // Listens on host:port (port 0: any; empty host: every address; localhost:
  // 127.0.0.1) and serves on threads of its own.  Returns the port.  Once.
  // With `tls` it serves https to those who show a certificate of the
  // authority.  It uses a new certificate in the files from the next connection
  // on.
  //
  // Errors: Unavailable       the port is in use or not ours; the message says
  //                           so and names the flag to change
  //         PermissionDenied  the authority's file cannot be read
  absl::StatusOr<int> Start(const std::string& host, int port,
                            const std::optional<HttpTls>& tls = std::nullopt);

  // Closes all connections at once and waits for running handlers.  Safe to
  // repeat, and without Start().
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
