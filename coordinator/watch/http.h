// The paths that the coordinator's HTTP port serves, and the page that shows
// the mesh in a browser.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "coordinator/coordinator.h"
#include "core/obs/http_server.h"
#include "core/obs/metrics.h"
#include "paceline/v1/control.pb.h"

namespace paceline {

// Prometheus http_sd: a target for every worker that is not lost and has an
// HTTP address, with its name as label `instance` and, where it speaks https,
// `__scheme__`; and the coordinator itself.
// https://prometheus.io/docs/prometheus/2.42/http_sd/
std::string ServiceDiscoveryJson(const std::vector<v1::Worker>& workers,
                                 const std::string& own_http_address,
                                 bool own_tls);

// Adds the page at /, its events at /watch, /metrics, /healthz (the loop
// answers), /readyz (it also serves and its store takes writes) and /sd to
// `server`, which all others outlive.  A handler waits at most two seconds for
// the loop.
//
// serves: whether gRPC listens, for /readyz.
// own_http_address: called for each /sd; known only after Start().
// own_tls: the server speaks https.
void AddRoutes(HttpServer& server, Coordinator& coordinator,
               MetricsRegistry& registry, const std::atomic<bool>& serves,
               std::function<std::string()> own_http_address, bool own_tls);

// Its script and its style, as they are in page/.
extern const char* const kPageScript;
extern const char* const kPageStyle;

// The page, with the mesh in tables that can be read without its script.
// `mesh` is a whole update.
std::string RenderPage(const v1::MeshUpdate& mesh);

}  // namespace paceline
