// One table of job keys: nothing is missing, nothing is made up.
#include "core/job/job_keys.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/reference.h"
#include "client/files/job_file.h"
#include "core/rpc/convert/job_convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paceline/v1/types.pb.h"
#include "tests/client/fakes.h"

namespace paceline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAreArray;

void AddPaths(const google::protobuf::Descriptor& type,
              const std::string& prefix, std::set<std::string>& paths) {
  for (int f = 0; f < type.field_count(); ++f) {
    const auto& field = *type.field(f);
    // Workers say what is in a script; no key does.
    if (field.message_type() == v1::ScriptModel::descriptor()) continue;
    if (field.message_type() == nullptr) {
      paths.insert(prefix + field.name());
    } else {
      AddPaths(*field.message_type(), prefix + field.name() + ".", paths);
    }
  }
}

TEST(JobKeys, AreThoseOfTheProto) {
  std::set<std::string> wanted;
  AddPaths(*v1::JobSpec::descriptor(), "", wanted);

  std::vector<std::string> have;
  for (const JobKey& key : JobKeys()) {
    have.emplace_back(key.path);
    EXPECT_TRUE(absl::EndsWith(key.meaning, ".")) << key.path;
    const bool decided = *key.decider != '\0';
    EXPECT_EQ(decided, absl::StartsWith(key.needs, " ")) << key.path;
    EXPECT_EQ(decided, FindJobKey(key.decider) != nullptr) << key.path;
  }

  EXPECT_THAT(have, UnorderedElementsAreArray(wanted));
}

TEST(JobReference, IsAJobFileThatChangesNothing) {
  const std::vector<std::string> sets = {"model.name=lenet",
                                         "data.name=synthetic"};

  const auto all =
      ParseJobFile({.name = "keys", .text = JobReference(), .sets = sets})
          .value();
  const auto none =
      ParseJobFile({.name = "none", .text = "{}", .sets = sets}).value();

  EXPECT_EQ(ToProto(all.spec).SerializeAsString(),
            ToProto(none.spec).SerializeAsString());
  EXPECT_THAT(all.warnings, testing::IsEmpty());
}

TEST(JobReference, AKeyThatIsCommentedOutNeedsNoOtherLine) {
  for (const JobKey& key : JobKeys()) {
    const std::vector<std::string> parts = absl::StrSplit(key.path, '.');
    const std::string section =
        absl::StrJoin(parts.begin(), parts.end() - 1, ".");
    const std::string before =
        absl::StrCat("\n", std::string(2 * (parts.size() - 1), ' '));
    std::string text = JobReference(section);
    const size_t at = text.find(absl::StrCat(before, "# ", parts.back(), ":"));
    if (at == std::string::npos) continue;

    text.insert(at + before.size() + 2 + parts.back().size() + 1, " [1] #");
    text.erase(at + before.size(), 2);

    const auto job = ParseJobFile({.name = "keys", .text = text, .sets = {}});
    EXPECT_THAT(job.status().message(), AllOf(Not(HasSubstr("is not YAML")),
                                              Not(HasSubstr("unknown key")),
                                              Not(HasSubstr("got nothing"))))
        << key.path << text;
  }
}

TEST(JobReference, SaysTypeDefaultAndWhenAKeyHasAnEffect) {
  const std::string text = JobReference();

  EXPECT_THAT(text,
              Says("    # How much of the last update the next one keeps. "
                   "Type: a number, in [0, 1).\n"
                   "    # Only with train.optimizer.name sgd.\n"
                   "    momentum: 0\n",
                   "  # depth:\n", "# - worker:\n"));
}

TEST(JobReference, MayShowOneSectionOrKey) {
  const std::string text = JobReference("train.optimizer");

  EXPECT_THAT(text, HasSubstr("\ntrain:\n\n  optimizer:\n"));
  EXPECT_THAT(text, Not(HasSubstr("epochs:")));
  CommandBed bed;
  EXPECT_EQ(JobKeysCommand(bed.console, "train.steps"), kExitOk);
  EXPECT_THAT(bed.out.str(),
              AllOf(HasSubstr("  steps: 0"), Not(HasSubstr("epochs:"))));
  EXPECT_EQ(JobKeysCommand(bed.console, "trian"), kExitUsage);
  EXPECT_THAT(bed.err.str(), HasSubstr("did you mean 'train'?"));
}

TEST(JobReference, IsADocumentToo) {
  const auto keys =
      nlohmann::json::parse(ToJson(JobReferenceDocument()))["keys"];

  ASSERT_EQ(keys.size(), JobKeys().size());
  EXPECT_EQ(keys[0]["key"], "name");
  EXPECT_EQ(keys[0]["absent"], "the model's name");
}

}  // namespace
}  // namespace paceline
