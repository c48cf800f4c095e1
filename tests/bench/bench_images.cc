// How many pictures a second one thread makes ready for training: a file of
// 500 x 375 pixels, as ImageNet's are on average, read, decoded, cut and
// stretched to 224 x 224, scaled, in its place in the micro-batch.
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "core/base/random.h"
#include "tests/support/pictures.h"
#include "worker/data/image_folder_set.h"

namespace paceline {
namespace {

constexpr int kPictures = 16;

// A slope with grain: about 100 KB as a JPEG, as a photo has.
Picture Photo(uint64_t seed) {
  Picture picture = Slope(500, 375);
  SplitMix64 random(seed);
  for (uint8_t& value : picture.values) {
    value = static_cast<uint8_t>(value + random.Below(32));
  }
  return picture;
}

// Two class folders of pictures, removed with this.
class Photos {
 public:
  explicit Photos(bool png) {
    for (int i = 0; i < kPictures; ++i) {
      const std::string of_class = absl::StrCat(path_, "/", i % 2);
      std::filesystem::create_directories(of_class);
      const Picture photo = Photo(i);
      std::ofstream(absl::StrCat(of_class, "/", i, png ? ".png" : ".jpg"),
                    std::ios::binary)
          << (png ? EncodePng(photo) : EncodeJpeg(photo, {.quality = 85}));
    }
  }
  ~Photos() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }

 private:
  const std::string path_ =
      absl::StrCat(std::filesystem::temp_directory_path().string(),
                   "/paceline-bench-images");
};

void LoadPhotos(benchmark::State& state, bool png, Crop crop) {
  const Photos photos(png);
  ImageFolderOptions options;
  options.path = photos.path();
  options.shape = {3, 224, 224};
  options.classes = 2;
  options.crop = crop;
  options.flip = 0.5;
  options.channels = MakeChannelScales(3, {0.5}, {0.25});
  const auto set = ImageFolderSet::Open(options);
  if (!set.ok()) {
    state.SkipWithError(set.status().ToString().c_str());
    return;
  }
  MicroBatchPlace place;
  for (int i = 0; i < kPictures; ++i) place.indices.push_back(i);
  Tensor inputs = Tensor::Allocate(DType::kF32, {kPictures, 3, 224, 224});
  Tensor labels = Tensor::Allocate(DType::kI64, {kPictures});
  for (auto _ : state) {
    const absl::Status status = (*set)->Load(place, inputs, labels);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    ++place.epoch;
  }
  state.SetItemsProcessed(state.iterations() * kPictures);
}

BENCHMARK_CAPTURE(LoadPhotos, jpeg_center, false, Crop::kCenter);
BENCHMARK_CAPTURE(LoadPhotos, jpeg_random_resized, false, Crop::kRandomResized);
BENCHMARK_CAPTURE(LoadPhotos, png_random_resized, true, Crop::kRandomResized);

}  // namespace
}  // namespace paceline

BENCHMARK_MAIN();
