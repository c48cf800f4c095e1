// How the samples of a data set are spread over the members of a group.  Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/job/spec/job_spec.h"

namespace paceline {

enum class DistributionKind : uint8_t {
  kIid,        // any member may have any sample
  kByLabel,    // sorted by label and cut into equal parts
  kDirichlet,  // a member's shares of the labels are drawn; small alpha: unlike
  kClustered,  // each half of the members has one half of the labels
  kBalanced,   // every member has the same number of each label
};

struct Distribution {
  DistributionKind kind = DistributionKind::kIid;
  double alpha = 0;  // kDirichlet
};

// "iid", "by-label", "dirichlet(0.1)", "clustered", "balanced".
// Errors: InvalidArgument  none of these, or an alpha that is not above 0
absl::StatusOr<Distribution> FindDistribution(const std::string& text);

// Says what is wrong with data.distribution in this job; empty: nothing.
std::string WhyNoDistribution(const JobSpec& spec);

// Gives every sample to one of `parts` members.  A member gets as many samples
// as it has places in an epoch's batches: micro-batch i of a batch belongs to
// member i mod `parts` (MicroBatchesOf() of members with equal shares).  Every
// machine finds the same parts.  Immutable.
class SampleParts {
 public:
  // labels: one a sample, in [0, classes)
  //   rotates  in every epoch a member has the samples that the next one had
  SampleParts(const Distribution& distribution, const TrainSpec& train,
              int parts, bool rotates, const std::vector<int32_t>& labels);

  // Rearranges an epoch's order so that a member's places have its samples.
  void Arrange(int64_t epoch, absl::Span<int32_t> order) const;

  const std::vector<uint16_t>& part_of() const { return part_of_; }

 private:
  int PartAt(int64_t place, int64_t epoch) const;

  const int64_t batch_;
  const int64_t micro_batch_;
  const int parts_;
  const bool rotates_;
  std::vector<uint16_t> part_of_;  // [samples]
};

}  // namespace paceline
