// Real processes train on real pictures, some of which are none.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/mesh.h"
#include "tests/support/pictures.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kJob[] = R"(
name: pictures
model: {name: lenet}
data:
  name: imagefolder
  classes: 2
  shape: [3, 24, 24]
  crop: random-resized
  flip: 0.5
train:
  epochs: 2
  batch: 10
  micro_batch: 3
pipeline: {stages: 2}
)";

// Two classes of twelve, and a test split of five; the first `damaged` of each
// class are cut short.
std::string MakePictures(const Mesh& mesh, int damaged) {
  const std::string path = mesh.folder() + "/pictures";
  const auto write = [&](const std::string& of_class, int i, bool whole) {
    std::filesystem::create_directories(path + "/" + of_class);
    const std::string file = EncodeJpeg(Slope(40 + i, 30 + 2 * i));
    WriteWholeFile(path + "/" + of_class + "/" + std::to_string(i) + ".jpg",
                   whole ? file : file.substr(0, file.size() / 2));
  };
  for (int i = 0; i < 12; ++i) {
    write("train/flat", i, i >= damaged);
    write("train/steep", i, i >= damaged);
  }
  for (int i = 0; i < 5; ++i) write("val/steep", i, true);
  return path;
}

nlohmann::json Train(const Mesh& mesh, const std::string& pictures,
                     const std::string& set) {
  return mesh.Submit(mesh.Write(kJob), {"data.path=" + pictures, set});
}

TEST(ImageFolder, ACorruptPictureIsNamedInTheLogAndTheJobGoesOn) {
  const Mesh mesh(2);
  const std::string pictures = MakePictures(mesh, 1);

  const nlohmann::json one = Train(mesh, pictures, "data.workers=1");
  const Finished logs = mesh.Run({"job", "logs", "last"});
  const Finished events = mesh.Run({"job", "events", "last"});
  const nlohmann::json three = Train(mesh, pictures, "data.workers=3");
  const nlohmann::json whole = Train(mesh, pictures, "pipeline.stages=1");

  EXPECT_EQ(one["state"], "succeeded");
  EXPECT_EQ(one["step"], 6);
  EXPECT_EQ(one["evaluations"].back()["samples"], 5);
  EXPECT_THAT(logs.output,
              AllOf(HasSubstr("image skipped"), HasSubstr("train/flat/0.jpg"),
                    HasSubstr("train/steep/0.jpg"), Not(HasSubstr("/1.jpg"))));
  EXPECT_THAT(one["why"].get<std::string>(),
              HasSubstr("could not read 2 samples, which were left out"));
  EXPECT_THAT(events.output, HasSubstr("cannot read all samples"));
  EXPECT_EQ(three["weights_sha256"], one["weights_sha256"]);
  EXPECT_EQ(whole["weights_sha256"], one["weights_sha256"]);
}

// The tensor `classes` of a safetensors file: a length, a header in JSON, the
// bytes.
std::vector<int64_t> ClassesIn(const std::string& path) {
  const std::string file = ReadWholeFile(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const nlohmann::json tensor =
      nlohmann::json::parse(file.substr(8, length))["classes"];
  EXPECT_EQ(tensor["dtype"], "I64");
  const size_t begin = tensor["data_offsets"][0];
  const size_t end = tensor["data_offsets"][1];
  std::vector<int64_t> classes((end - begin) / sizeof(int64_t));
  std::memcpy(classes.data(), file.data() + 8 + length + begin, end - begin);
  return classes;
}

TEST(ImageFolder, PicturesOfNoClassAreInferredOneOfThemCorrupt) {
  const Mesh mesh(2);
  const std::string pictures = MakePictures(mesh, 1);
  const std::string out = mesh.folder() + "/predictions.safetensors";
  const std::string file = mesh.Write(kJob, "infer.yaml");
  Train(mesh, pictures, "data.workers=1");
  const std::string weights = mesh.Export();

  const nlohmann::json job =
      mesh.Submit(file, {"kind=infer", "data.path=" + pictures + "/train/flat",
                         "model.weights=" + weights, "infer.micro_batch=5"});
  const Finished exported = mesh.Run({"job", "export", "last", "-o", out});

  EXPECT_EQ(job["steps"], 3) << "micro-batches";
  EXPECT_THAT(job["why"].get<std::string>(),
              HasSubstr("could not read 1 sample, which was left out"));
  EXPECT_TRUE(job["test_accuracy"].is_null()) << "nobody knows";
  EXPECT_EQ(exported.exit_code, 0) << exported.errors;
  EXPECT_THAT(mesh.Run({"model", "inspect", out}).output, HasSubstr("[12, 2]"));
  const std::vector<int64_t> classes = ClassesIn(out);
  ASSERT_THAT(classes, SizeIs(12));
  EXPECT_EQ(classes[0], -1) << "flat/0.jpg cannot be read";
  EXPECT_EQ(std::count(classes.begin(), classes.end(), -1), 1);
}

TEST(ImageFolder, TooManyCorruptPicturesFailTheJob) {
  const Mesh mesh(2);
  const std::string pictures = MakePictures(mesh, 2);

  const Finished finished =
      mesh.TrySubmit(mesh.Write(kJob), {"data.path=" + pictures});

  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.errors, HasSubstr("3 of 24 images cannot be read"));
}

}  // namespace
}  // namespace paceline
