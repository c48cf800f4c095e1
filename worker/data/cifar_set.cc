#include "worker/data/cifar_set.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPlane = kSide * kSide;
constexpr int64_t kPixels = 3 * kPlane;
constexpr int64_t kMostShift = 4;  // He et al. 2016, section 4.2

// Appends the labels of `file` to `labels`.
absl::Status ReadLabels(const CifarOptions& options, const ByteFile& file,
                        std::vector<uint8_t>& labels) {
  const int64_t record = options.label_bytes + kPixels;
  if (file.size() == 0 || file.size() % record != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": has ", file.size(), " bytes, need whole records of ",
        record, " bytes; fetch the file again, or point data.path elsewhere"));
  }
  return file.Scan(
      record,
      [&](int64_t offset, absl::Span<const uint8_t> bytes) -> absl::Status {
        for (size_t at = 0; at < bytes.size(); at += record) {
          const uint8_t label = bytes[at + options.label_bytes - 1];
          if (label >= options.classes) {
            return absl::InvalidArgumentError(
                absl::StrCat(file.path(), ": label ", label, " of record ",
                             (offset + static_cast<int64_t>(at)) / record,
                             " is no class, there are ", options.classes,
                             ": set data.name to the one of its two data sets "
                             "that the file is of, and data.classes to its"));
          }
          labels.push_back(label);
        }
        return absl::OkStatus();
      });
}

}  // namespace

CifarOptions CifarFiles(const std::string& name) {
  CifarOptions options;
  if (name == "cifar10") {
    options.train_files = {"data_batch_1.bin", "data_batch_2.bin",
                           "data_batch_3.bin", "data_batch_4.bin",
                           "data_batch_5.bin"};
    options.test_files = {"test_batch.bin"};
    return options;
  }
  PACELINE_CHECK(name == "cifar100", name);
  options.train_files = {"train.bin"};
  options.test_files = {"test.bin"};
  options.label_bytes = 2;
  options.classes = 100;
  return options;
}

absl::StatusOr<std::unique_ptr<CifarSet>> CifarSet::Open(
    const CifarOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(Split train,
                            OpenSplit(options, options.train_files));
  PACELINE_ASSIGN_OR_RETURN(Split test, OpenSplit(options, options.test_files));
  return std::unique_ptr<CifarSet>(
      new CifarSet(options, std::move(train), std::move(test)));
}

absl::StatusOr<CifarSet::Split> CifarSet::OpenSplit(
    const CifarOptions& options, const std::vector<std::string>& names) {
  Split split;
  for (const std::string& name : names) {
    File file;
    PACELINE_ASSIGN_OR_RETURN(
        file.bytes, ByteFile::Open(absl::StrCat(options.folder, "/", name)));
    file.first = static_cast<int64_t>(split.labels.size());
    PACELINE_RETURN_IF_ERROR(ReadLabels(options, *file.bytes, split.labels));
    split.files.push_back(std::move(file));
  }
  return split;
}

CifarSet::CifarSet(const CifarOptions& options, Split train, Split test)
    : options_(options),
      format_{DType::kF32, {3, kSide, kSide}, {}},
      train_(std::move(train)),
      test_(std::move(test)) {
  for (int c = 0; c < 3; ++c) {
    for (int pixel = 0; pixel < 256; ++pixel) {
      scaled_[c][pixel] = options.channels[c].Of(static_cast<float>(pixel));
    }
  }
}

int64_t CifarSet::samples(BatchPhase split) const {
  const Split& of = split == BatchPhase::kTrain ? train_ : test_;
  return static_cast<int64_t>(of.labels.size());
}

absl::Status CifarSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                            Tensor& labels) const {
  const Split& from = place.split == BatchPhase::kTrain ? train_ : test_;
  std::array<uint8_t, kPixels> pixels;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const int32_t sample = place.indices[i];
    PACELINE_RETURN_IF_ERROR(ReadPixels(from, sample, absl::MakeSpan(pixels)));
    labels.As<int64_t>()[i] = from.labels[sample];
    Scale(pixels, Draw(place, sample),
          inputs.As<float>().subspan(i * kPixels, kPixels));
  }
  return absl::OkStatus();
}

CifarSet::Shift CifarSet::Draw(const MicroBatchPlace& place,
                               int32_t sample) const {
  Shift shift;
  if (place.split != BatchPhase::kTrain) return shift;
  SplitMix64 random = AugmentationOf(options_.seed, place.epoch, sample);
  shift.mirrored = random.Unit() < options_.flip;
  if (options_.crop != Crop::kRandom) return shift;
  const auto draw = [&random] {
    return static_cast<int64_t>(random.Below(2 * kMostShift + 1)) - kMostShift;
  };
  shift.right = draw();
  shift.down = draw();
  return shift;
}

absl::Status CifarSet::ReadPixels(const Split& from, int32_t sample,
                                  absl::Span<uint8_t> pixels) const {
  const auto after = std::upper_bound(
      from.files.begin(), from.files.end(), sample,
      [](int32_t number, const File& file) { return number < file.first; });
  const File& file = *std::prev(after);
  const int64_t record = options_.label_bytes + kPixels;
  return file.bytes->ReadAt(
      (sample - file.first) * record + options_.label_bytes, pixels);
}

void CifarSet::Scale(absl::Span<const uint8_t> pixels, const Shift& shift,
                     absl::Span<float> values) const {
  float* value = values.data();
  for (int c = 0; c < 3; ++c) {
    const uint8_t* const plane = pixels.data() + c * kPlane;
    for (int64_t y = 0; y < kSide; ++y) {
      const int64_t from_y = y - shift.down;
      const bool outside = from_y < 0 || from_y >= kSide;
      for (int64_t x = 0; x < kSide; ++x) {
        const int64_t from_x =
            (shift.mirrored ? kSide - 1 - x : x) - shift.right;
        const bool black = outside || from_x < 0 || from_x >= kSide;
        *value++ = scaled_[c][black ? 0 : plane[from_y * kSide + from_x]];
      }
    }
  }
}

}  // namespace paceline
