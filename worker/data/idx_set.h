// Four IDX files as a data set.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/job_spec.h"
#include "worker/data/pixel_scale.h"
#include "worker/data/sample_set.h"

namespace paceline {

struct IdxOptions {
  std::string folder;  // holds train-images-idx3-ubyte[.gz] and so on
  std::string remedy;  // what to do when a file is missing, for people
  Shape shape;         // of one sample, as the job says
  int32_t classes = 10;
  ChannelScale scale;  // of every pixel
  // Of a file's images at most, as they are in memory; 0: no limit.
  int64_t most_bytes = 0;
};

// Immutable.  Keeps the files' bytes (47 MB for 60,000 images of 28x28) and
// scales while loading.
class IdxSet final : public SampleSet {
 public:
  // Errors: those of ReadIdx; InvalidArgument when the files do not fit one
  // another or the job; ResourceExhausted when one promises more than
  // most_bytes; NotFound names both file names that were tried.  Of a file
  // whose header is refused no more than that is read.
  static absl::StatusOr<std::unique_ptr<IdxSet>> Open(
      const IdxOptions& options);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

 private:
  struct Split {
    std::vector<uint8_t> images;  // [samples, ...shape]
    std::vector<uint8_t> labels;  // [samples]
  };

  static absl::StatusOr<Split> OpenSplit(const IdxOptions& options,
                                         const std::string& prefix);
  IdxSet(const IdxOptions& options, Split train, Split test);
  const Split& split(BatchPhase phase) const;

  const SampleFormat format_;
  const Split train_;
  const Split test_;
  std::array<float, 256> scaled_;  // of every pixel value
};

}  // namespace paceline
