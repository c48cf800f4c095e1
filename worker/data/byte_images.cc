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
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/os/files.h"
#include "core/transfer/checksum.h"
#include "worker/data/crop.h"
#include "worker/data/sample_set.h"

namespace paceline {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kMaxRank = 8;
constexpr int64_t kChunkBytes = 1 << 20;
constexpr unsigned kZlibBufferBytes = 1 << 17;

struct GzCloser {
  void operator()(gzFile file) const { gzclose(file); }
};
using GzHandle = std::unique_ptr<gzFile_s, GzCloser>;

template <typename... Parts>
absl::Status Refuse(const std::string& path, const Parts&... why) {
  return InvalidArgument(
      path, ": ", why...,
      "; fetch the file again, or point data.path elsewhere");
}

absl::StatusOr<GzHandle> Open(const std::string& path) {
  const absl::StatusOr<int> descriptor = OpenToRead(path, FileKind::kFile);
  if (absl::IsInvalidArgument(descriptor.status())) {
    return Refuse(path, "not a regular file");
  }
  PACELINE_RETURN_IF_ERROR(descriptor.status());
  GzHandle file(gzdopen(*descriptor, "rb"));
  if (!file) {
    close(*descriptor);
    return ResourceExhausted("no memory for ", path);
  }
  gzbuffer(file.get(), kZlibBufferBytes);
  return file;
}

// Reads up to `bytes`; fewer at the end of the file.
absl::StatusOr<int64_t> Read(gzFile file, const std::string& path,
                             uint8_t* target, int64_t bytes) {
  const int got = gzread(file, target, static_cast<unsigned>(bytes));
  int code = Z_OK;
  const char* message = gzerror(file, &code);
  if (code == Z_ERRNO) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  // Z_BUF_ERROR: the compressed stream ends in its middle.
  if (got < 0 || code != Z_OK) {
    return Refuse(path, "damaged gzip (", message, ")");
  }
  return got;
}

absl::StatusOr<Shape> ReadShape(gzFile file, const std::string& path) {
  uint8_t magic[4] = {};
  PACELINE_ASSIGN_OR_RETURN(int64_t got, Read(file, path, magic, 4));
  if (got < 4 || magic[0] != 0 || magic[1] != 0) {
    return Refuse(path, "not an IDX file: it does not begin with 00 00");
  }
  if (magic[2] != kUnsignedByte) {
    return Refuse(path, "IDX of type 0x", absl::Hex(magic[2]),
                  ", need 0x8 (bytes)");
  }
  const int rank = magic[3];
  if (rank < 1 || rank > kMaxRank) {
    return Refuse(path, rank, " dimensions, need 1 to ", kMaxRank);
  }
  uint8_t sizes[4 * kMaxRank] = {};
  PACELINE_ASSIGN_OR_RETURN(got, Read(file, path, sizes, 4 * rank));
  if (got < 4 * rank) return Refuse(path, "cut short in its header");
  Shape shape;
  for (const uint8_t* size = sizes; size < sizes + 4 * rank; size += 4) {
    shape.push_back(int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 |
                    size[3]);
  }
  return shape;
}

// Grows by what has really been read, so that a lying header costs nothing.
absl::StatusOr<std::vector<uint8_t>> ReadValues(gzFile file,
                                                const std::string& path,
                                                int64_t need) {
  std::vector<uint8_t> values;
  int64_t have = 0;
  while (have < need) {
    const int64_t chunk = std::min(need - have, std::max(have, kChunkBytes));
    const int64_t ask = std::min<int64_t>(chunk, 1 << 30);  // gzread: int
    values.resize(have + ask);
    PACELINE_ASSIGN_OR_RETURN(const int64_t got,
                              Read(file, path, values.data() + have, ask));
    have += got;
    if (got < ask) {
      return Refuse(path, "cut short: got ", have, " values, its header says ",
                    need);
    }
  }
  uint8_t beyond = 0;
  PACELINE_ASSIGN_OR_RETURN(const int64_t more, Read(file, path, &beyond, 1));
  if (more != 0) {
    return Refuse(path, "longer than the ", need,
                  " values that its header says");
  }
  return values;
}

}  // namespace

absl::StatusOr<IdxFile> ReadIdx(const std::string& path, IdxHeaderCheck check) {
  PACELINE_ASSIGN_OR_RETURN(const GzHandle file, Open(path));
  IdxFile idx;
  idx.path = path;
  PACELINE_ASSIGN_OR_RETURN(idx.shape, ReadShape(file.get(), path));
  const int64_t need = NumElements(idx.shape);
  if (need < 0) {
    return Refuse(path, "impossible size ", ShapeText(idx.shape));
  }
  PACELINE_RETURN_IF_ERROR(check(idx));
  PACELINE_ASSIGN_OR_RETURN(idx.values, ReadValues(file.get(), path, need));
  return idx;
}

namespace {

// The file as it is, or gzipped; the plain one first.
absl::StatusOr<IdxFile> ReadNamed(const DataSpec& data, const std::string& name,
                                  IdxHeaderCheck check) {
  const std::string plain = absl::StrCat(FilesOf(data), "/", name);
  for (const std::string& path : {plain, absl::StrCat(plain, ".gz")}) {
    // ReadIdx() says what else is wrong with it.
    if (!absl::IsNotFound(CheckReadable(path))) return ReadIdx(path, check);
  }
  // Fashion-MNIST alone needs no path.
  return NotFound("no data file ", plain, " nor ", name, ".gz beside it; ",
                  data.path.empty()
                      ? "run: apt install dataset-fashion-mnist"
                      : "set data.path to the folder that holds it on this "
                        "machine");
}

// [28, 28] holds samples of shape [28, 28] and of [1, 28, 28].
bool FitsSample(absl::Span<const int64_t> found,
                absl::Span<const int64_t> job) {
  if (job.size() == found.size() + 1 && job[0] == 1) job.remove_prefix(1);
  return found == job;
}

// Looks at the header alone.
absl::Status CheckImages(const DataSpec& data, int64_t most_bytes,
                         const IdxFile& images) {
  const absl::Span<const int64_t> sample =
      absl::MakeConstSpan(images.shape).subspan(1);
  if (!FitsSample(sample, data.shape)) {
    return InvalidArgument(images.path, ": holds samples of shape ",
                           ShapeText(sample), ", the job's data.shape is ",
                           ShapeText(data.shape));
  }
  if (images.shape[0] > kMostSamplesOfASplit) {
    return InvalidArgument(images.path, ": says that it has ", images.shape[0],
                           " samples, at most ", kMostSamplesOfASplit,
                           " can be numbered; take less");
  }
  const int64_t bytes = NumElements(images.shape);
  if (most_bytes > 0 && bytes > most_bytes) {
    return ResourceExhausted(
        images.path, ": says that it has ", bytes,
        " bytes of images, but this worker has memory for ", most_bytes,
        ": take fewer samples, or read them where there is more memory");
  }
  return absl::OkStatus();
}

// Looks at the headers alone.
absl::Status CheckLabelCount(const IdxFile& labels, const IdxFile& images) {
  if (labels.shape.size() != 1) {
    return InvalidArgument(labels.path, ": ", labels.shape.size(),
                           " dimensions, labels need 1");
  }
  if (labels.shape[0] != images.shape[0]) {
    return InvalidArgument(labels.path, ": ", Counted(labels.shape[0], "label"),
                           " for the ", Counted(images.shape[0], "image"),
                           " of ", images.path);
  }
  return absl::OkStatus();
}

absl::Status CheckLabels(int32_t classes, const IdxFile& labels) {
  const auto bad = absl::c_find_if(
      labels.values, [&](uint8_t label) { return label >= classes; });
  if (bad == labels.values.end()) return absl::OkStatus();
  return InvalidArgument(
      labels.path, ": label ", *bad, " of sample ", bad - labels.values.begin(),
      " is no class, the job's data.classes is ", classes,
      ": set data.classes to ", *absl::c_max_element(labels.values) + 1,
      " or more, or take the file of other labels");
}

// CIFAR's images are as wide and as high.
constexpr int64_t kSide = 32;
constexpr int64_t kPixels = 3 * kSide * kSide;
constexpr int64_t kMostShift = 4;  // He et al. 2016, section 4.2

// Appends the labels of `file` to `labels`.
absl::Status ReadLabels(int32_t classes, int64_t label_bytes,
                        const ByteFile& file, std::vector<uint8_t>& labels) {
  const int64_t record = label_bytes + kPixels;
  if (file.size() == 0 || file.size() % record != 0) {
    return InvalidArgument(
        file.path(), ": has ", file.size(), " bytes, need whole records of ",
        record, " bytes; fetch the file again, or point data.path elsewhere");
  }
  return file.Scan(
      record,
      [&](int64_t offset, absl::Span<const uint8_t> bytes) -> absl::Status {
        for (size_t at = 0; at < bytes.size(); at += record) {
          const uint8_t label = bytes[at + label_bytes - 1];
          if (label >= classes) {
            return InvalidArgument(
                file.path(), ": label ", label, " of record ",
                (offset + static_cast<int64_t>(at)) / record,
                " is no class, there are ", classes,
                ": set data.name to the one of its two data sets that the file "
                "is of, and data.classes to its");
          }
          labels.push_back(label);
        }
        return absl::OkStatus();
      });
}

struct RecordFile {
  std::unique_ptr<ByteFile> bytes;
  int64_t first = 0;  // its first record's number in the split
};

struct ByteSplit {
  std::vector<uint8_t> labels;  // [samples]
  std::vector<uint8_t> images;  // [samples, ...shape]; or in files
  std::vector<RecordFile> files;
  int64_t label_bytes = 1;  // of a record in these; the last one counts
};

// How an image is moved and mirrored.
struct Shift {
  int64_t right = 0;
  int64_t down = 0;
  bool mirrored = false;
};

// Keeps the labels, and scales pixels while loading.  Immutable.
class ByteImages final : public SampleSet {
 public:
  // channels: one for each, or one for all pixels.
  ByteImages(const DataSpec& data, int64_t seed,
             const std::vector<ChannelScale>& channels, ByteSplit train,
             ByteSplit test)
      : SampleSet({DType::kF32, data.shape, {}}, std::ssize(train.labels),
                  std::ssize(test.labels)),
        crop_(CropOf(data.crop)),
        flip_(data.flip),
        seed_(seed),
        size_(NumElements(data.shape)),
        train_(std::move(train)),
        test_(std::move(test)) {
    Checksum contents;
    for (const ByteSplit* const split : {&train_, &test_}) {
      contents.Update(split->labels);
      contents.Update(split->images);
    }
    facts_.contents = contents.Digest();
    for (const ChannelScale& channel : channels) {
      std::array<float, 256>& scaled = scaled_.emplace_back();
      for (int pixel = 0; pixel < 256; ++pixel) {
        scaled[pixel] = channel.Of(static_cast<float>(pixel));
      }
    }
  }

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override {
    const ByteSplit& from = place.split == BatchPhase::kTrain ? train_ : test_;
    std::vector<uint8_t> kept;
    for (size_t i = 0; i < place.indices.size(); ++i) {
      const int32_t sample = place.indices[i];
      PACELINE_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> pixels,
                                PixelsOf(from, sample, kept));
      labels.As<int64_t>()[i] = from.labels[sample];
      Scale(pixels, Draw(place, sample), SampleOf<float>(inputs, i));
    }
    return absl::OkStatus();
  }
  std::vector<int32_t> TrainLabels() const override {
    return {train_.labels.begin(), train_.labels.end()};
  }
  int64_t memory_bytes() const override {
    return std::ssize(train_.labels) + std::ssize(train_.images) +
           std::ssize(test_.labels) + std::ssize(test_.images);
  }

 private:
  Shift Draw(const MicroBatchPlace& place, int32_t sample) const {
    Shift shift;
    if (place.split != BatchPhase::kTrain) return shift;
    SplitMix64 random = AugmentationOf(seed_, place.epoch, sample);
    shift.mirrored = random.Unit() < flip_;
    if (crop_ != Crop::kRandom) return shift;
    for (int64_t* const way : {&shift.right, &shift.down}) {
      *way =
          static_cast<int64_t>(random.Below(2 * kMostShift + 1)) - kMostShift;
    }
    return shift;
  }

  // kept: memory for what comes from a file.
  absl::StatusOr<absl::Span<const uint8_t>> PixelsOf(
      const ByteSplit& from, int32_t sample, std::vector<uint8_t>& kept) const {
    if (from.files.empty()) {
      return absl::MakeConstSpan(from.images).subspan(sample * size_, size_);
    }
    const RecordFile& file = *std::prev(
        std::ranges::upper_bound(from.files, sample, {}, &RecordFile::first));
    kept.resize(size_);
    PACELINE_RETURN_IF_ERROR(file.bytes->ReadAt(
        (sample - file.first) * (from.label_bytes + size_) + from.label_bytes,
        absl::MakeSpan(kept)));
    return absl::MakeConstSpan(kept);
  }

  void Scale(absl::Span<const uint8_t> pixels, const Shift& shift,
             absl::Span<float> values) const {
    const auto plane = size_ / static_cast<int64_t>(scaled_.size());
    const bool moved = shift.right != 0 || shift.down != 0 || shift.mirrored;
    float* value = values.data();
    const uint8_t* from = pixels.data();
    for (const std::array<float, 256>& scaled : scaled_) {
      if (!moved) {
        value = std::transform(from, from + plane, value,
                               [&](uint8_t pixel) { return scaled[pixel]; });
      }
      for (int64_t y = 0; moved && y < kSide; ++y) {
        const int64_t from_y = y - shift.down;
        const bool outside = from_y < 0 || from_y >= kSide;
        for (int64_t x = 0; x < kSide; ++x) {
          const int64_t from_x =
              (shift.mirrored ? kSide - 1 - x : x) - shift.right;
          const bool black = outside || from_x < 0 || from_x >= kSide;
          *value++ = scaled[black ? 0 : from[from_y * kSide + from_x]];
        }
      }
      from += plane;
    }
  }

  const Crop crop_;
  const double flip_;  // probability of a mirror image; training
  const int64_t seed_;
  const int64_t size_;  // of an image, in pixels of all channels
  const ByteSplit train_;
  const ByteSplit test_;
  // Every pixel value as a float, by channel.
  std::vector<std::array<float, 256>> scaled_;
};

absl::StatusOr<ByteSplit> OpenIdxSplit(const DataSpec& data, int64_t most_bytes,
                                       const std::string& prefix) {
  PACELINE_ASSIGN_OR_RETURN(
      IdxFile images,
      ReadNamed(data, absl::StrCat(prefix, "-images-idx3-ubyte"),
                [&](const IdxFile& header) {
                  return CheckImages(data, most_bytes, header);
                }));
  PACELINE_ASSIGN_OR_RETURN(
      IdxFile labels,
      ReadNamed(data, absl::StrCat(prefix, "-labels-idx1-ubyte"),
                [&](const IdxFile& header) {
                  return CheckLabelCount(header, images);
                }));
  PACELINE_RETURN_IF_ERROR(CheckLabels(data.classes, labels));
  return ByteSplit{std::move(labels.values), std::move(images.values), {}};
}

absl::StatusOr<ByteSplit> OpenCifarSplit(const DataSpec& data,
                                         const std::vector<std::string>& names,
                                         int64_t label_bytes) {
  ByteSplit split;
  split.label_bytes = label_bytes;
  for (const std::string& name : names) {
    RecordFile file;
    PACELINE_ASSIGN_OR_RETURN(
        file.bytes, ByteFile::Open(absl::StrCat(data.path, "/", name)));
    file.first = std::ssize(split.labels);
    PACELINE_RETURN_IF_ERROR(
        ReadLabels(data.classes, label_bytes, *file.bytes, split.labels));
    split.files.push_back(std::move(file));
  }
  return split;
}

}  // namespace

OpenedSet OpenIdx(const DataSpec& data, int64_t most_bytes) {
  PACELINE_ASSIGN_OR_RETURN(ByteSplit train,
                            OpenIdxSplit(data, most_bytes, "train"));
  if (train.labels.empty()) {
    return InvalidArgument(FilesOf(data), ": no training samples");
  }
  PACELINE_ASSIGN_OR_RETURN(ByteSplit test,
                            OpenIdxSplit(data, most_bytes, "t10k"));
  DataSpec plain = data;  // nothing is drawn
  plain.crop = DataSpec().crop;
  plain.flip = 0;
  return std::make_unique<ByteImages>(plain, /*seed=*/0,
                                      std::vector{ScalesOf(data).front()},
                                      std::move(train), std::move(test));
}

OpenedSet OpenCifar(const DataSpec& data, int64_t seed) {
  const bool hundred = data.name == "cifar100";
  PACELINE_CHECK(hundred || data.name == "cifar10", data.name);
  using Names = std::vector<std::string>;
  const Names train_files =
      hundred
          ? Names{"train.bin"}
          : Names{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                  "data_batch_4.bin", "data_batch_5.bin"};
  const Names test_files = {hundred ? "test.bin" : "test_batch.bin"};
  const int64_t label_bytes = hundred ? 2 : 1;
  PACELINE_ASSIGN_OR_RETURN(ByteSplit train,
                            OpenCifarSplit(data, train_files, label_bytes));
  PACELINE_ASSIGN_OR_RETURN(ByteSplit test,
                            OpenCifarSplit(data, test_files, label_bytes));
  return std::make_unique<ByteImages>(data, seed, ScalesOf(data),
                                      std::move(train), std::move(test));
}

}  // namespace paceline
