#include "client/commands/export.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::HasSubstr;

class Export : public testing::Test {
 protected:
  Export() {
    char pattern[] = "/tmp/paceline-export-XXXXXX";
    folder_ = mkdtemp(pattern);
    bed_.client.chunks = {"abc", std::string(100'000, 'x'), "end"};
    bed_.client.job_answers = {SucceededJob()};
    reader_.answer = Weights();
  }
  ~Export() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  // Describes the weights of the job that SucceededJob() is.
  static WeightsSummary Weights() {
    WeightsSummary weights;
    weights.sha256 = SucceededJob().weights_sha256();
    weights.tensors.resize(3);
    return weights;
  }

  std::string folder_;
  CommandBed bed_;
  FakeWeightsFileReader reader_;
};

TEST_F(Export, WritesAllChunksAndLeavesNothingElse) {
  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")), kExitOk);

  EXPECT_EQ(Read(Path("w")), "abc" + std::string(100'000, 'x') + "end");
  EXPECT_EQ(Files(), std::vector<std::string>{"w"});
}

TEST_F(Export, ReplacesAFileOnlyWhenAllIsThere) {
  Write(Path("w"), "old");
  bed_.client.exported = absl::UnavailableError("gone");

  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")),
            kExitUnreachable);
  EXPECT_EQ(Read(Path("w")), "old");
  EXPECT_EQ(Files(), std::vector<std::string>{"w"});

  bed_.client.exported = absl::OkStatus();
  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")), kExitOk);
  EXPECT_EQ(Read(Path("w")).size(), 100'006u);
}

TEST_F(Export, AFullDiskIsAnErrorThatLeavesNothing) {
  Write(Path("w"), "old");
  // A limit on the size of files fails where a full disk does: in write().
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit small = {.rlim_cur = 50'000, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);

  const ExitCode code = ExportJobCommand(bed_.context, reader_, 7, Path("w"));

  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  EXPECT_EQ(code, kExitFailed);
  EXPECT_EQ(Read(Path("w")), "old");
  EXPECT_EQ(Files(), std::vector<std::string>{"w"});
  EXPECT_THAT(bed_.err.str(), HasSubstr("cannot write " + Path("w")));
  EXPECT_THAT(bed_.err.str(), HasSubstr("still on the coordinator"));
}

TEST_F(Export, DevFullSaysThatThereIsNoSpace) {
  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, "/dev/full"),
            kExitFailed);

  EXPECT_THAT(bed_.err.str(), HasSubstr("/dev/full: No space left"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_FALSE(std::filesystem::exists("/dev/full.part"));
}

TEST_F(Export, AFolderIsNoTarget) {
  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, folder_), kExitFailed);

  EXPECT_THAT(bed_.err.str(), HasSubstr("it is a folder"));
  EXPECT_TRUE(Files().empty());
}

TEST_F(Export, AMissingFolderIsNamed) {
  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("no/w")),
            kExitFailed);

  EXPECT_THAT(bed_.err.str(), HasSubstr("No such file or directory"));
}

TEST_F(Export, KeepsALinkALink) {
  Write(Path("real"), "old");
  std::filesystem::create_symlink(Path("real"), Path("link"));

  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("link")), kExitOk);

  EXPECT_TRUE(std::filesystem::is_symlink(Path("link")));
  EXPECT_EQ(Read(Path("real")).size(), 100'006u);
}

TEST_F(Export, CtrlCLeavesNothing) {
  bed_.pauser.leave_at = 2;

  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")),
            kExitInterrupted);

  EXPECT_TRUE(Files().empty());
}

TEST_F(Export, AJobWithoutWeightsFailsAndLeavesNothing) {
  bed_.client.chunks = {};
  bed_.client.exported = absl::FailedPreconditionError("no weights yet");

  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")), kExitFailed);

  EXPECT_TRUE(Files().empty());
}

TEST_F(Export, SaysWhatItDidAsJson) {
  CommandBed bed(OutputFormat::kJson);
  bed.client.chunks = {"abc"};
  bed.client.job_answers = {SucceededJob()};

  EXPECT_EQ(ExportJobCommand(bed.context, reader_, 7, Path("w")), kExitOk);

  const auto json = bed.Output();
  EXPECT_EQ(json["bytes"], 3);
  EXPECT_EQ(json["path"], Path("w"));
  EXPECT_EQ(json["sha256"], "00ff");
  EXPECT_EQ(json["tensors"], 3);
}

TEST_F(Export, ReadsBackWhatItWroteBeforeItGetsItsName) {
  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")), kExitOk);

  EXPECT_EQ(reader_.asked, std::vector<std::string>{Path("w.part")});
  EXPECT_THAT(bed_.err.str(), HasSubstr("3 tensors, read back and checked"));
}

TEST_F(Export, WhatCannotBeReadBackIsNoSuccessAndLeavesTheOldFile) {
  Write(Path("w"), "old");
  reader_.answer = absl::InvalidArgumentError("cut short");

  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")), kExitFailed);

  EXPECT_EQ(Read(Path("w")), "old");
  EXPECT_EQ(Files(), std::vector<std::string>{"w"});
  EXPECT_THAT(bed_.err.str(), HasSubstr("did not arrive whole: cut short"));
  EXPECT_THAT(bed_.err.str(), HasSubstr("export again"));
}

TEST_F(Export, AnotherHashThanTheJobsIsNoSuccess) {
  reader_.answer->sha256 = "beef";

  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, Path("w")), kExitFailed);

  EXPECT_TRUE(Files().empty());
  EXPECT_THAT(bed_.err.str(), HasSubstr("sha256 is beef"));
  EXPECT_THAT(bed_.err.str(), HasSubstr("00ff"));
}

TEST_F(Export, SaysThatADeviceWasNotChecked) {
  EXPECT_EQ(ExportJobCommand(bed_.context, reader_, 7, "/dev/null"), kExitOk);

  EXPECT_TRUE(reader_.asked.empty());
  EXPECT_THAT(bed_.err.str(), HasSubstr("not checked"));
}

}  // namespace
}  // namespace paceline
