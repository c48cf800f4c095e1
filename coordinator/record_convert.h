// The coordinator's records to the messages that the store keeps and that
// clients are shown, and back.
#pragma once

#include "absl/status/statusor.h"
#include "coordinator/job_store.h"
#include "coordinator/records.h"
#include "core/cluster/registration.h"
#include "paceline/v1/control.pb.h"
#include "paceline/v1/coordinator.pb.h"

namespace paceline {

// Checks nothing: see CheckRegistration().
Registration FromProto(const v1::Registration& proto);
v1::Registration ToProto(const Registration& registration);

v1::RunEstimate ToProto(const RunEstimate& estimate);

v1::JobEvent ToProto(const EventRecord& event);
EventRecord FromProto(const v1::JobEvent& proto);

// What a client is told of the record.
v1::Job ToProto(const JobRecord& record);
// The same with all that a later coordinator needs.
v1::Job ToStored(const JobRecord& record);
// Errors: InvalidArgument  a state or phase that does not exist
absl::StatusOr<JobRecord> FromStored(const v1::Job& proto);

v1::StoredGroup ToStored(const KeptView& kept);
// Errors: InvalidArgument  as ViewFromProto()
absl::StatusOr<KeptView> FromStored(const v1::StoredGroup& proto);

}  // namespace paceline
