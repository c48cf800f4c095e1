// Images whose files hold their pixels as bytes: IDX (MNIST) and CIFAR.
//
// IDX, plain or gzipped:
//   file   = 0x00 0x00 type rank size*rank value*
//   type   = 0x08                       ; unsigned byte, the only one read here
//   size   = 4 bytes, big endian
//   e.g. 00 00 08 03 0000ea60 0000001c 0000001c ...   60,000 images of 28x28
//
// CIFAR-10 and CIFAR-100 in their "binary version" (Krizhevsky 2009,
// www.cs.toronto.edu/~kriz/cifar.html):
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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensor.h"
#include "core/os/files.h"
#include "worker/data/crop.h"
#include "worker/data/sample_set.h"

namespace paceline {

struct IdxFile {
  std::string path;
  Shape shape;
  std::vector<uint8_t> values;  // row-major
};

// Refuses a file by its header: path and shape are known, values are not yet.
using IdxHeaderCheck = absl::FunctionRef<absl::Status(const IdxFile&)>;

// Reads `path` whole, once `check` has taken its header: a gzipped file may
// really contain a thousand times its own bytes.  Never holds more than about
// twice the bytes that the file really contains, whatever its header says.
//
// Errors (the message names the file):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument  not IDX, values that are no bytes, cut short, longer than
//                    its header says, or damaged gzip
//   those of `check`
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, IdxHeaderCheck check);

struct ByteImageOptions {
  std::string folder;
  std::string remedy;  // what to do when a file is missing, for people
  Shape shape;         // of one sample, as the job says
  int32_t classes = 10;
  std::vector<ChannelScale> channels;  // one for each, or one for all pixels
  // kRandom moves a training image by up to 4 pixels each way; what comes in at
  // the edge is black.
  Crop crop = Crop::kCenter;
  double flip = 0;   // probability of a mirror image; training
  int64_t seed = 1;  // that augmentation draws from
  // The most memory for an IDX file's images; 0: no limit.
  int64_t most_bytes = 0;
};

// Keeps the labels, and scales pixels while loading.  Immutable.
class ByteImages final : public SampleSet {
 public:
  // The files train-images-idx3-ubyte[.gz] and so on of a folder.  Keeps their
  // bytes (47 MB for 60,000 images of 28x28).  Of a file whose header is
  // refused no more than that is read.
  // Errors: those of ReadIdx; InvalidArgument when the files do not fit one
  // another or the job; ResourceExhausted when one promises more than
  // most_bytes; NotFound names both file names that were tried
  static absl::StatusOr<std::unique_ptr<ByteImages>> OpenIdx(
      const ByteImageOptions& options);

  // The files of "cifar10" or "cifar100"; options.shape is theirs.  Reads every
  // label, so that a job fails before its first step or not at all; pixels are
  // read when they are needed.
  // Errors (the message names the file):
  //   NotFound, PermissionDenied  as the system says
  //   InvalidArgument  not whole records, none at all, a label that is no class
  static absl::StatusOr<std::unique_ptr<ByteImages>> OpenCifar(
      const std::string& name, const ByteImageOptions& options);

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;
  std::vector<int32_t> TrainLabels() const override {
    return {train_.labels.begin(), train_.labels.end()};
  }
  int64_t memory_bytes() const override {
    return std::ssize(train_.labels) + std::ssize(train_.images) +
           std::ssize(test_.labels) + std::ssize(test_.images);
  }

 private:
  struct File {
    std::unique_ptr<ByteFile> bytes;
    int64_t first = 0;  // its first record's number in the split
  };
  struct Split {
    std::vector<uint8_t> labels;  // [samples]
    std::vector<uint8_t> images;  // [samples, ...shape]; or in files
    std::vector<File> files;
    int64_t label_bytes = 1;  // of a record in these; the last one counts
  };
  // How an image is moved and mirrored.
  struct Shift {
    int64_t right = 0;
    int64_t down = 0;
    bool mirrored = false;
  };

  static absl::StatusOr<Split> OpenIdxSplit(const ByteImageOptions& options,
                                            const std::string& prefix);
  static absl::StatusOr<Split> OpenCifarSplit(
      const ByteImageOptions& options, const std::vector<std::string>& names,
      int64_t label_bytes);
  ByteImages(const ByteImageOptions& options, Split train, Split test);
  Shift Draw(const MicroBatchPlace& place, int32_t sample) const;
  // `kept`: memory for what comes from a file.
  absl::StatusOr<absl::Span<const uint8_t>> PixelsOf(
      const Split& from, int32_t sample, std::vector<uint8_t>& kept) const;
  void Scale(absl::Span<const uint8_t> pixels, const Shift& shift,
             absl::Span<float> values) const;

  const ByteImageOptions options_;
  const int64_t size_;  // of an image, in pixels of all channels
  const Split train_;
  const Split test_;
  // Every pixel value as a float, by channel.
  std::vector<std::array<float, 256>> scaled_;
};

}  // namespace paceline
