#include <sys/resource.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "client/commands/job/job.h"
#include "core/model/description.h"
#include "core/model/operation.h"
#include "core/rpc/convert/job_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::HasSubstr;

// A coordinator that sends a job's weights in three pieces.
struct ExportBed : CommandBed {
  explicit ExportBed(OutputFormat format = OutputFormat::kTable)
      : CommandBed(format) {
    client.chunks = {"abc", std::string(100'000, 'x'), "end"};
    client.job_answers = {SucceededJob()};
    weights.answer->sha256 = SucceededJob().weights_sha256();
    weights.answer->tensors.resize(3);
  }

  ExitCode Export(const std::string& path) {
    return Code(
        ExportJobCommand(context, weights.reader(), tensors, {7, path, form}));
  }
  ExitCode ExportToW() { return Export(folder.Path("w")); }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  const TemporaryFolder folder;
  FakeWeights weights;
  ExportForm form = ExportForm::kWhole;
  ReadTensors tensors = nullptr;
};

TEST(Export, WritesAllAndReadsItBackBeforeItGetsItsName) {
  ExportBed bed;

  EXPECT_EQ(bed.ExportToW(), kExitOk);

  EXPECT_EQ(bed.folder.Read("w"), "abc" + std::string(100'000, 'x') + "end");
  EXPECT_EQ(bed.Files(), std::vector<std::string>{"w"});
  EXPECT_EQ(bed.weights.asked,
            std::vector<std::string>{bed.folder.Path("w.part")});
  EXPECT_THAT(bed.err.str(), HasSubstr("3 tensors, read back and checked"));
}

TEST(Export, LeavesFilesOfSuchNamesAlone) {
  for (const bool fails : {false, true}) {
    ExportBed bed;
    if (fails) bed.client.exported = absl::UnavailableError("gone");
    const std::string taken = absl::StrCat("w.part-", getpid(), "-1");
    const std::string thesis = bed.folder.Write("thesis", "years");
    bed.folder.Write("w.part", "mine");
    std::filesystem::create_symlink(thesis, bed.folder.Path(taken));

    EXPECT_EQ(bed.ExportToW(), fails ? kExitUnreachable : kExitOk);

    EXPECT_EQ(bed.folder.Read("w.part"), "mine");
    EXPECT_EQ(bed.folder.Read(taken), "years");
    EXPECT_EQ(bed.Files().size(), fails ? 3u : 4u);
  }
}

TEST(Export, WritesANameOfTheGreatestLength) {
  ExportBed bed;
  const std::string name(NAME_MAX, 'n');

  EXPECT_EQ(bed.Export(bed.folder.Path(name)), kExitOk) << bed.err.str();

  EXPECT_EQ(bed.Files(), std::vector<std::string>{name});
}

TEST(Export, ThatFailsLeavesTheOldFileAndNothingElse) {
  const struct {
    void (*change)(ExportBed&);
    ExitCode code;
    const char* says;
  } kCases[] = {
      {[](ExportBed& bed) {
         bed.client.exported = absl::UnavailableError("gone");
       },
       kExitUnreachable, "gone"},
      {[](ExportBed& bed) {
         bed.client.chunks = {};
         bed.client.exported = absl::FailedPreconditionError("no weights yet");
       },
       kExitFailed, "no weights yet"},
      {[](ExportBed& bed) { bed.pauser.leave_at = 2; }, kExitInterrupted,
       "nothing was exported"},
      {[](ExportBed& bed) {
         bed.weights.answer = absl::InvalidArgumentError("cut short");
       },
       kExitFailed,
       "did not arrive whole: cut short; nothing was kept, export again"},
      {[](ExportBed& bed) { bed.weights.answer->sha256 = "beef"; }, kExitFailed,
       "sha256 is beef, the coordinator's 00ff"},
  };
  for (const auto& test : kCases) {
    ExportBed bed;
    bed.folder.Write("w", "old");
    test.change(bed);

    EXPECT_EQ(bed.ExportToW(), test.code) << test.says;

    EXPECT_EQ(bed.folder.Read("w"), "old") << test.says;
    EXPECT_EQ(bed.Files(), std::vector<std::string>{"w"}) << test.says;
    EXPECT_THAT(bed.err.str(), HasSubstr(test.says));
  }
}

TEST(Export, AFullDiskIsAnErrorThatLeavesNothing) {
  ExportBed bed;
  bed.folder.Write("w", "old");
  // A limit on the size of files fails where a full disk does: in write().
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit small = {.rlim_cur = 50'000, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);

  const ExitCode code = bed.ExportToW();

  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  EXPECT_EQ(code, kExitFailed);
  EXPECT_EQ(bed.folder.Read("w"), "old");
  EXPECT_EQ(bed.Files(), std::vector<std::string>{"w"});
  EXPECT_THAT(bed.err.str(), Says("cannot write " + bed.folder.Path("w"),
                                  "still on the coordinator"));
}

TEST(Export, NamesATargetThatCannotBeWritten) {
  for (const auto& [path, says] :
       {std::pair{"/dev/full", "/dev/full: No space left"},
        {"/tmp", "it is a folder"},
        {"/no/w", "No such file or directory"}}) {
    ExportBed bed;
    EXPECT_EQ(bed.Export(path), kExitFailed);
    EXPECT_THAT(bed.err.str(), HasSubstr(says));
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(Export, ReplacesTheOldFileAndKeepsALinkALink) {
  ExportBed bed;
  const std::string link = bed.folder.Path("link");
  std::filesystem::create_symlink(bed.folder.Write("real", "old"), link);

  EXPECT_EQ(bed.Export(link), kExitOk);

  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(bed.folder.Read("real").size(), 100'006u);
}

TEST(Export, SaysWhatItDidAsJson) {
  ExportBed bed(OutputFormat::kJson);

  EXPECT_EQ(bed.ExportToW(), kExitOk);

  EXPECT_EQ(bed.Output(), nlohmann::json({{"id", 7},
                                          {"step", nullptr},
                                          {"path", bed.folder.Path("w")},
                                          {"bytes", 100'006},
                                          {"sha256", "00ff"},
                                          {"tensors", 3}}));
}

// They are not what the job will end with, or ended with meanwhile.
TEST(Export, SaysTheStepOfWeightsThatAreNoResult) {
  ExportBed bed;
  bed.client.exported_step = 120;
  bed.weights.answer->sha256 = "beef";

  EXPECT_EQ(bed.ExportToW(), kExitOk);

  EXPECT_THAT(bed.err.str(),
              HasSubstr("exported the weights after step 120 of job 7"));
}

TEST(Export, SaysThatADeviceWasNotChecked) {
  ExportBed bed;
  EXPECT_EQ(bed.Export("/dev/null"), kExitOk);
  EXPECT_TRUE(bed.weights.asked.empty());
  EXPECT_THAT(bed.err.str(), HasSubstr("not checked"));
}

// A job whose gpt has adapters of rank 1 beside c_attn of its only block.
struct AdapterBed : ExportBed {
  explicit AdapterBed(ExportForm asked) {
    form = asked;
    v1::Job job = SucceededJob();
    *job.mutable_spec() = Parse<v1::JobSpec>(R"(
      model {
        name: "gpt" depth: 1 width: 4 heads: 1 weights: "/data/base"
        lora { rank: 1 alpha: 8 }
      }
      data { name: "synthetic-tokens" block: 4 classes: 5 })");
    client.job_answers = {job};
    const JobSpec spec = FromProto(job.spec());
    model =
        DescribeModel(spec.model, spec.data.shape, spec.data.classes).value();
    tensors = [this](const std::string& path) {
      EXPECT_EQ(std::filesystem::file_size(path), 100'006u);
      std::vector<NamedTensor> all;
      const SafetensorsLayout layout = LayOut(model).value();
      for (const TensorPlace& place : layout.tensors) {
        all.push_back({place.name, Tensor::Zeros(place.dtype, place.shape)});
        if (IsOfAdapter({place.name, place.shape})) {
          for (float& value : all.back().tensor.As<float>()) value = 1;
        }
      }
      return all;
    };
  }

  // A safetensors file's header, and the floats of one of its tensors.
  std::pair<nlohmann::json, std::vector<float>> Read(
      const std::string& file, const std::string& tensor) const {
    const std::string bytes = folder.Read(file);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    auto header = nlohmann::json::parse(bytes.substr(8, length));
    std::vector<float> values;
    if (header.contains(tensor)) {
      const size_t begin = header[tensor]["data_offsets"][0];
      const size_t end = header[tensor]["data_offsets"][1];
      values.resize((end - begin) / sizeof(float));
      std::memcpy(values.data(), bytes.data() + 8 + length + begin,
                  end - begin);
    }
    return {std::move(header), std::move(values)};
  }

  ModelDescription model;
};

TEST(Export, WritesAdaptersAsPeftReadsThem) {
  AdapterBed bed(ExportForm::kAdapters);

  EXPECT_EQ(bed.Export(bed.folder.Path("mine")), kExitOk);

  const auto config =
      nlohmann::json::parse(bed.folder.Read("mine/adapter_config.json"));
  EXPECT_THAT(config, Includes(R"({
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 1, "lora_alpha": 8.0,
    "fan_in_fan_out": true, "bias": "none", "modules_to_save": null,
    "base_model_name_or_path": "/data/base",
    "target_modules": ["transformer.h.0.attn.c_attn"]})"));
  const auto [header, values] =
      bed.Read("mine/adapter_model.safetensors",
               "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight");
  EXPECT_EQ(header.size(), 3u);  // A, B and the metadata
  EXPECT_EQ(values, std::vector<float>(12, 1));
  EXPECT_THAT(bed.err.str(), HasSubstr("2 tensors, made of a checked file"));
}

TEST(Export, MergesAdaptersIntoAnOrdinaryFile) {
  AdapterBed bed(ExportForm::kMerged);

  EXPECT_EQ(bed.ExportToW(), kExitOk);

  const auto [header, values] =
      bed.Read("w", "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(values, std::vector<float>(48, 8));
  EXPECT_FALSE(header.contains("transformer.h.0.attn.c_attn.lora_A.weight"));
  EXPECT_EQ(bed.Files(), std::vector<std::string>{"w"});
}

TEST(Export, AdaptersAreOfJobsThatHaveSomeAndGoToFiles) {
  ExportBed plain;
  plain.form = ExportForm::kMerged;
  EXPECT_EQ(plain.ExportToW(), kExitFailed);
  EXPECT_THAT(plain.err.str(), HasSubstr("job 7 has no adapters"));

  for (const auto& [form, path, says] :
       {std::tuple{ExportForm::kMerged, "-", "needs a file"},
        {ExportForm::kMerged, "/dev/null", "needs a file"},
        {ExportForm::kAdapters, "-", "needs a folder"},
        {ExportForm::kAdapters, "/dev/null", "needs a folder"}}) {
    AdapterBed bed(form);
    EXPECT_EQ(bed.Export(path), kExitFailed);
    EXPECT_THAT(bed.err.str(), HasSubstr(says));
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
}

}  // namespace
}  // namespace paceline
