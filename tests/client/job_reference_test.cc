// One table of job keys: nothing is missing, nothing is made up.
#include "client/rpc/job_reference.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "client/job_keys.h"
#include "client/rpc/job_file.h"
#include "client/rpc/spec_fields.h"
#include "core/rpc/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "paceline/v1/types.pb.h"

namespace paceline {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

void AddPaths(const google::protobuf::Descriptor& type,
              const std::string& prefix, std::set<std::string>& paths) {
  for (const std::string& name : FieldNames(type)) {
    const auto& field = *FindKey(type, name);
    if (field.message_type() == nullptr) {
      paths.insert(prefix + name);
    } else {
      AddPaths(*field.message_type(), prefix + name + ".", paths);
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
      ParseJobFile({.name = "keys", .text = JobReference(), .sets = sets});
  const auto none = ParseJobFile({.name = "none", .text = "{}", .sets = sets});

  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(ToProto(all->spec).SerializeAsString(),
            ToProto(none->spec).SerializeAsString());
}

TEST(JobReference, SaysTypeDefaultAndWhenAKeyHasAnEffect) {
  const std::string text = JobReference();

  EXPECT_THAT(text,
              HasSubstr("    # How much of the last update the next one keeps. "
                        "Type: a number. Only with\n"
                        "    # train.optimizer.name sgd.\n"
                        "    momentum: 0\n"));
  EXPECT_THAT(text, HasSubstr("  # depth:\n"));
  EXPECT_THAT(text, HasSubstr("# - worker:\n"));
}

TEST(JobReference, IsADocumentToo) {
  const auto keys =
      nlohmann::json::parse(JobReferenceDocument().ToJson())["keys"];

  ASSERT_EQ(keys.size(), JobKeys().size());
  EXPECT_EQ(keys[0]["key"], "name");
  EXPECT_EQ(keys[0]["absent"], "the model's name");
}

}  // namespace
}  // namespace paceline
