#include "coordinator/store/state_dir.h"

#include <filesystem>

#include "gtest/gtest.h"
#include "tests/coordinator/temp_folder.h"

namespace paceline {
namespace {

TEST(StateDir, KnowsTheNewestJobThatLeftAFolder) {
  const TempFolder folder;
  const auto state = StateDir::Open(folder.path());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ((*state)->NewestJobFolder(), 0) << "no jobs yet";

  for (const char* name : {"7", "12", "3", "notes", "99.bak"}) {
    std::filesystem::create_directories((*state)->jobs() + "/" + name);
  }

  EXPECT_EQ((*state)->NewestJobFolder(), 12);
}

}  // namespace
}  // namespace paceline
