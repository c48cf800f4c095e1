// CIFAR-10 and CIFAR-100 in their "binary version" (Krizhevsky 2009,
// www.cs.toronto.edu/~kriz/cifar.html).
//
//   file   = record*                  ; 10,000 or 50,000 of them
//   record = label{1 or 2} pixel{3072}
//   label  = 1 byte                   ; CIFAR-100: first the coarse one of 20,
//                                     ; which is not read, then the fine one
//   pixel  = 1 byte                   ; [3, 32, 32]: red plane, green, blue
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/byte_file.h"
#include "worker/data/crop.h"
#include "worker/data/pixel_scale.h"
#include "worker/data/sample_set.h"

namespace paceline {

struct CifarOptions {
  std::string folder;
  std::vector<std::string> train_files;  // their names
  std::vector<std::string> test_files;
  int32_t label_bytes = 1;  // of a record; the last one counts
  int32_t classes = 10;
  // kRandom moves a training image by up to 4 pixels each way; what comes in
  // at the edge is black.
  Crop crop = Crop::kCenter;
  double flip = 0;  // probability of a mirror image; training
  std::vector<ChannelScale> channels;  // 3
  int64_t seed = 1;                    // that augmentation draws from
};

// The files' names and labels of "cifar10" or "cifar100".
CifarOptions CifarFiles(const std::string& name);

// Keeps the labels; pixels are read when they are needed.
class CifarSet final : public SampleSet {
 public:
  // Reads every label, so that a job fails before its first step or not at all.
  // Errors (the message names the file):
  //   NotFound, PermissionDenied  as the system says
  //   InvalidArgument  not whole records, none at all, a label that is no class
  static absl::StatusOr<std::unique_ptr<CifarSet>> Open(
      const CifarOptions& options);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;

 private:
  struct File {
    std::unique_ptr<ByteFile> bytes;
    int64_t first = 0;  // its first record's number in the split
  };
  struct Split {
    std::vector<File> files;
    std::vector<uint8_t> labels;
  };
  // How an image is moved and mirrored.
  struct Shift {
    int64_t right = 0;
    int64_t down = 0;
    bool mirrored = false;
  };

  static absl::StatusOr<Split> OpenSplit(const CifarOptions& options,
                                         const std::vector<std::string>& names);
  CifarSet(const CifarOptions& options, Split train, Split test);
  Shift Draw(const MicroBatchPlace& place, int32_t sample) const;
  absl::Status ReadPixels(const Split& from, int32_t sample,
                          absl::Span<uint8_t> pixels) const;
  void Scale(absl::Span<const uint8_t> pixels, const Shift& shift,
             absl::Span<float> values) const;

  const CifarOptions options_;
  const SampleFormat format_;
  const Split train_;
  const Split test_;
  // Of every pixel value, by channel.
  std::array<std::array<float, 256>, 3> scaled_;
};

}  // namespace paceline
