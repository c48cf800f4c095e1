// paceline.v1.Control, the service for clients.
#pragma once

#include <memory>

#include "coordinator/coordinator.h"
#include "coordinator/watch/metrics.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace paceline {

// Outlived by its arguments.  Services are made by functions: their headers,
// which take the compiler long, are read in this folder only.
std::unique_ptr<grpc::Service> MakeControlService(Coordinator& coordinator,
                                                  CoordinatorMetrics& metrics);

}  // namespace paceline
