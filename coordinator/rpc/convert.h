// The coordinator's protos to its logic's structs and back; orders and reports
// are in core/rpc/report_convert.h.  What a worker or a
// client could have made wrong in form is refused here; what it means is
// checked by the logic.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/brain.h"
#include "coordinator/coordinator.h"
#include "coordinator/job_store.h"
#include "coordinator/record_convert.h"
#include "coordinator/records.h"
#include "core/cluster/registration.h"
#include "core/rpc/report_convert.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// peer: grpc::ServerContext::peer(); its host replaces an empty or unspecified
// (0.0.0.0, [::]) one in the addresses.
// Errors: Unimplemented  another protocol version; InvalidArgument, also a
// loopback address of another machine
absl::StatusOr<Registration> FromProto(const v1::Registration& proto,
                                       const std::string& peer);

// "ipv4:10.0.0.7:4242" gives "10.0.0.7", "ipv6:%5B::1%5D:4242" gives "[::1]";
// anything else nothing.
std::string HostOfPeer(const std::string& peer);

// Errors: InvalidArgument  a phase, step or code that does not exist.
absl::StatusOr<Heartbeat> FromProto(const v1::Heartbeat& proto);

v1::Welcome ToProto(const WelcomeInfo& welcome);
v1::StandingOrder ToProto(const StandingOrder& order);

WeightsPiece FromProto(v1::WeightsPiece proto);

v1::SubmitJobResponse ToProto(const Submission& submission);
v1::Job ToProto(const JobView& view);
v1::Job ToProto(const JobDetails& details);
v1::Worker ToProto(const WorkerView& view);
v1::GetProfileResponse ToProto(const ProfileView& view);
v1::ListMeasurementsResponse ToProto(const StoredMeasurements& measurements);

}  // namespace paceline
