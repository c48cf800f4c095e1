#include "coordinator/dealing_note.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A mesh of workers a, b and c.
class DealingNoteTest : public testing::Test {
 protected:
  DealingNoteTest() {
    for (const char* name : {"a", "b", "c"}) mesh_.Attach(name, name[0]);
  }

  static JobSpec Interleaved(int stages) {
    JobSpec spec = SpecOf(stages);
    spec.model.hidden = {16, 16, 16, 16, 16, 16, 16};  // 8 layers
    spec.pipeline.schedule = "interleaved-1f1b";
    spec.train.batch = 48;
    spec.train.micro_batch = 8;
    return spec;
  }
  const std::vector<std::string>& NotesOf(const JobSpec& spec) {
    EXPECT_NE(mesh_.Submit(spec), JobId{0}) << mesh_.submit_error();
    return mesh_.notes();
  }

  Mesh mesh_;
};

TEST_F(DealingNoteTest, SubmitSaysWhoIsLeftOutAndHowToHaveAllWork) {
  EXPECT_THAT(NotesOf(Interleaved(4)),
              Contains(AllOf(HasSubstr("worker c gets no stage"),
                             HasSubstr("4 stages do not divide so among 3"),
                             HasSubstr("pipeline.stages=6"))));
}

TEST_F(DealingNoteTest, ChosenStagesAreLeftToLayersAndMicroBatches) {
  JobSpec spec = Interleaved(0);
  spec.train.batch = 32;

  EXPECT_THAT(NotesOf(spec),
              Contains(AllOf(HasSubstr("worker c gets no stage"),
                             HasSubstr("micro-batches of a batch"),
                             HasSubstr("4) to be a multiple"))));
}

TEST_F(DealingNoteTest, AsksForNoMoreStagesThanThereAreLayers) {
  JobSpec spec = Interleaved(4);
  spec.model.hidden = {16, 16, 16};  // 4 layers

  EXPECT_THAT(NotesOf(spec), Contains(AllOf(HasSubstr("worker c gets no stage"),
                                            HasSubstr("4 layers are too few"),
                                            Not(HasSubstr("--set")))));
}

TEST_F(DealingNoteTest, SaysNothingWhereAllWork) {
  EXPECT_THAT(NotesOf(Interleaved(6)),
              Not(Contains(HasSubstr("gets no stage"))));
}

TEST_F(DealingNoteTest, SaysNothingOfOtherSchedules) {
  EXPECT_THAT(NotesOf(SpecOf(2)), Not(Contains(HasSubstr("gets no stage"))));
}

}  // namespace
}  // namespace paceline
