// Where jobs go.  Most cases are questions of tests/golden/coordinator/
// placements.txt.
#include "coordinator/place/placement.h"

#include <list>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "coordinator/jobs/job_text.h"
#include "coordinator/place/group_placement.h"
#include "core/data/data_sets.h"
#include "core/model/catalog.h"
#include "core/plan/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/mesh.h"
#include "tests/support/golden.h"
#include "tests/support/says.h"
#include "tests/support/text_proto.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;

// Live workers with ids from 1 on, and what is known of them.
class Workers {
 public:
  Candidate& Add(const std::string& name) {
    Member& member = members_.emplace_back();
    member.id = WorkerId{static_cast<int64_t>(members_.size())};
    member.registration = WorkerNamed(name, 100 + member.id.value);
    member.state = MemberState::kLive;
    return candidates_.emplace_back(Candidate{&member, JobId{}});
  }
  Member& member(const std::string& name) {
    for (Member& member : members_) {
      if (member.registration.name() == name) return member;
    }
    ADD_FAILURE() << "no worker " << name;
    return members_.front();
  }
  Candidate& candidate(const std::string& name) {
    const auto at = static_cast<size_t>(member(name).id.value - 1);
    return candidates_[at];
  }
  PlacementVerdict Decide(const JobSpec& spec) const {
    return DecidePlacement(spec, *Describe(spec), candidates_, measured_);
  }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  StoredMeasurements& measured() { return measured_; }

  // "a", or "a [0,2) b [2,4)" where stages have some of the layers.
  std::string TextOf(const Plan& plan, bool with_layers) {
    std::vector<std::string> stages;
    for (const StageOfPlan& stage : plan.stages) {
      stages.push_back(std::next(members_.begin(), stage.worker.value - 1)
                           ->registration.name());
      if (with_layers) {
        absl::StrAppend(&stages.back(), " [", stage.layers.first, ",",
                        stage.layers.last, ")");
      }
      if (stage.share != 1) {
        absl::StrAppend(&stages.back(), " share ", stage.share);
      }
    }
    return absl::StrJoin(stages, " ");
  }

 private:
  std::list<Member> members_;
  std::vector<Candidate> candidates_;
  StoredMeasurements measured_;
};

// The last line of a question is the job, as SpecOfText() reads it.
//   a b c                      there are these workers
//   a is busy|drained|...      a candidate's flag
//   a has cpu_capability: "x"  of its registration
//   a cannot dial b            was measured; "a takes 0.1": each layer
std::string PlacementAnswer(const std::string& question) {
  Workers workers;
  std::vector<std::string> lines = absl::StrSplit(question, '\n');
  const JobSpec spec = SpecOfText(lines.back());
  lines.pop_back();
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const std::string verb = words.size() > 1 ? words[1] : "";
    if (verb == "is") {
      Candidate& candidate = workers.candidate(words[0]);
      if (words[2] == "busy") candidate.job = JobId{7};
      candidate.drained = words[2] == "drained";
      candidate.no_data = words[2] == "without-data";
      candidate.unfit = words[2] == "unfit";
      candidate.measuring = words[2] == "measuring";
    } else if (verb == "has") {
      MergeText(line.substr(words[0].size() + 5),
                workers.member(words[0]).registration);
    } else if (verb == "cannot") {
      workers.measured().Put(
          LinkMeasurement{.from = words[0],
                          .to = words[3],
                          .bytes_per_second = kRefusedBytesPerSecond,
                          .error = "cannot dial " + words[3] + " (:9): no"});
    } else if (verb == "takes") {
      workers.measured().Put(ProfileOf(spec, words[0], std::stod(words[2])));
    } else {
      for (const std::string& name : words) workers.Add(name);
    }
  }
  const PlacementVerdict verdict = workers.Decide(spec);
  std::string answer;
  if (verdict.plan.has_value()) {
    answer = absl::StrCat("on ",
                          workers.TextOf(*verdict.plan, !IsDataParallel(spec)),
                          " at ", verdict.cpu_capability, "\n");
    const std::string dealt =
        DealingNote(spec, *verdict.plan, workers.candidates());
    if (!dealt.empty()) absl::StrAppend(&answer, "note: ", dealt, "\n");
  } else {
    answer = verdict.why + "\n";
  }
  if (!verdict.impossible.ok()) {
    absl::StrAppend(&answer, verdict.impossible.ToString(), "\n");
  }
  for (const JobId job : verdict.waits_for) {
    absl::StrAppend(&answer, "for job ", job.value, "\n");
  }
  for (const std::string& note :
       PlacementNotes(spec, verdict.plan ? &*verdict.plan : nullptr,
                      workers.candidates())) {
    absl::StrAppend(&answer, "note: ", note, "\n");
  }
  return answer;
}

TEST(PlacementVerdicts, GoWhereTheyCanOrSayWhatTheyWaitFor) {
  ExpectAnswers("coordinator/placements", PlacementAnswer);
}

// Workers a, b and c.
class PlacementTest : public testing::Test {
 protected:
  PlacementTest() {
    for (const char* const name : {"a", "b", "c"}) workers_.Add(name);
  }
  PlacementVerdict Decide(const JobSpec& spec) { return workers_.Decide(spec); }

  Workers workers_;
};

// A script as a worker has described it.
JobSpec ScriptSpec(int stages) {
  JobSpec spec = SpecOf(stages);
  spec.model = ModelSpec();
  spec.model.name = "script";
  spec.model.file = "/srv/net.pt";
  spec.data = DefaultDataSpec("synthetic");
  spec.data.shape = {4};
  spec.data.classes = 2;
  spec.model.script.sha256 = "hash";
  spec.model.script.input = {4};
  for (int i = 0; i < 2; ++i) {
    ScriptLayer layer;
    layer.name = absl::StrCat(i);
    layer.output = {2};
    spec.model.script.layers.push_back(layer);
  }
  return spec;
}

TEST_F(PlacementTest, GivesNoScriptToAWorkerThatForbidsThem) {
  workers_.member("a").registration.set_no_scripts(true);
  workers_.member("c").registration.set_no_scripts(true);

  const PlacementVerdict some = Decide(ScriptSpec(2));
  ASSERT_TRUE(some.plan.has_value()) << some.why;
  for (const StageOfPlan& stage : some.plan->stages) {
    EXPECT_EQ(stage.worker, WorkerId{2});
  }
  EXPECT_TRUE(Decide(SpecOf(2)).plan.has_value()) << "no script";
  JobSpec group = ScriptSpec(1);
  group.aggregation.mode = "rolling";
  const PlacementVerdict members = Decide(group);
  ASSERT_TRUE(members.plan.has_value()) << members.why;
  EXPECT_EQ(members.plan->stages.size(), 1u);

  workers_.member("b").registration.set_no_scripts(true);
  for (const JobSpec& spec : {ScriptSpec(2), group}) {
    const PlacementVerdict none = Decide(spec);
    EXPECT_FALSE(none.plan.has_value());
    EXPECT_TRUE(absl::IsFailedPrecondition(none.impossible));
    EXPECT_THAT(none.why, HasSubstr("--no-scripts"));
  }
}

// Stages of one block each between embedding and head, on a, b and c.
JobSpec ToleratesLoss() {
  JobSpec spec = SpecOf(3);
  spec.kind = kInferKind;
  spec.model = DefaultModel("vit");
  spec.model.depth = 2;
  spec.data = DefaultDataSpec("synthetic");
  spec.infer.tolerate = "skip";
  spec.pipeline.cuts = {1, 3};
  spec.pipeline.workers = {"a", "b", "c"};
  return spec;
}

std::optional<JobSpec> WithoutWorker(const JobSpec& spec,
                                     const std::string& lost) {
  return WithoutLostStages(
      spec, *Describe(spec),
      [&lost](const std::string& name) { return name != lost; });
}

TEST_F(PlacementTest, GoesOnWithoutTheBlocksOfALostStage) {
  const std::optional<JobSpec> rest = WithoutWorker(ToleratesLoss(), "b");

  ASSERT_TRUE(rest.has_value());
  ASSERT_EQ(rest->faults.size(), 1u);
  EXPECT_EQ(rest->faults[0].block, 0);
  workers_.candidate("b").drained = true;
  const PlacementVerdict verdict = Decide(*rest);
  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  ASSERT_EQ(verdict.plan->stages.size(), 2u);
  EXPECT_EQ(verdict.plan->stages[0].layers, (LayerRange{0, 3}));
  EXPECT_EQ(verdict.plan->stages[1].worker, WorkerId{3});
}

TEST_F(PlacementTest, KeepsStagesThatNothingCanDoWithout) {
  const JobSpec spec = ToleratesLoss();
  JobSpec half = spec;
  half.pipeline.cuts = {2, 3};  // b has the second half of a block
  JobSpec strict = spec;
  strict.infer.tolerate = "none";
  JobSpec training = spec;
  training.kind = kTrainKind;

  EXPECT_FALSE(WithoutWorker(spec, "a").has_value());
  EXPECT_FALSE(WithoutWorker(spec, "c").has_value());
  EXPECT_FALSE(WithoutWorker(spec, "nobody").has_value());
  for (const JobSpec& other : {half, strict, training}) {
    EXPECT_FALSE(WithoutWorker(other, "b").has_value());
  }
}

TEST_F(PlacementTest, StagesThatShareAWeightDialOneAnother) {
  JobSpec spec = SpecOf(3);
  spec.model = DefaultModel("gpt");
  spec.data = DefaultDataSpec("text");
  const int layers = static_cast<int>(Describe(spec)->layers.size());
  spec.pipeline.cuts = {1, layers - 1};
  spec.pipeline.workers = {"a", "b", "c"};
  ASSERT_TRUE(Decide(spec).plan.has_value()) << Decide(spec).why;

  workers_.measured().Put(
      LinkMeasurement{.from = "a",
                      .to = "c",
                      .bytes_per_second = kRefusedBytesPerSecond,
                      .error = "cannot dial c (:9): no"});

  EXPECT_THAT(Decide(spec).why, HasSubstr("worker a cannot dial c"));
}

TEST_F(PlacementTest, SaysWhatMoreThreadsGaveWhereThatWasMeasured) {
  const auto rate = [](int64_t threads) { return 12.5 * threads; };

  EXPECT_THAT(
      ThreadNote(SpecOf(2), /*plan=*/nullptr, workers_.candidates(), rate),
      HasSubstr("--set threads=4 gives 50 samples/s as measured (with "
                "1: 12.5), and"));
}

// Two members; the first one's memory is as a test says.
class GroupMemory : public testing::Test {
 protected:
  GroupMemory() {
    for (const char* const name : {"w1", "w2"}) workers_.Add(name);
  }
  void SetMemory(const std::string& name, int64_t bytes) {
    workers_.member(name).registration.set_memory_bytes(bytes);
  }
  absl::Status Room() {
    return CheckRoom(spec_, model_, {&workers_.member("w1")},
                     workers_.member("w2"));
  }

  const JobSpec spec_ = GroupSpec();
  const ModelDescription model_ = *Describe(spec_);
  Workers workers_;
};

// The first two of four cannot be, with what members of two hold.
TEST_F(GroupMemory, TheNextWorkersAreTakenForThoseThatLackIt) {
  for (const char* const name : {"w3", "w4"}) workers_.Add(name);
  SetMemory("w1", MemberBytes(spec_, model_, 2) - 1);
  SetMemory("w2", MemberBytes(spec_, model_, 2) - 1);

  const PlacementVerdict verdict =
      workers_.Decide(SpecOfText("group aggregation.members=2"));

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  EXPECT_EQ(workers_.TextOf(*verdict.plan, false), "w3 w4");
}

// Whoever serves holds a part of each: more members need more memory each.
TEST_F(GroupMemory, WhoseIsTooSmallForSoManyMembersIsLeftOut) {
  const int64_t alone = MemberBytes(spec_, model_, 1);
  workers_.Add("w3");
  SetMemory("w2", alone);

  const PlacementVerdict verdict = workers_.Decide(spec_);

  ASSERT_TRUE(verdict.plan.has_value()) << verdict.why;
  EXPECT_EQ(workers_.TextOf(*verdict.plan, false), "w1 w3");
  SetMemory("w3", alone);
  EXPECT_THAT(workers_.Decide(SpecOfText("group aggregation.min_parts=3")).why,
              Says("a round needs 3 members", "w2"));
}

TEST_F(GroupMemory, OfAJoinerIsEnoughForTheStateItFetches) {
  SetMemory("w2", JoinerBytes(spec_, model_, 2));
  EXPECT_TRUE(Room().ok());

  SetMemory("w2", JoinerBytes(spec_, model_, 2) - 1);

  EXPECT_EQ(Room().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Room().message(), Says("worker w2 has", "one of 2 members",
                                     "the state that it fetches included"));
}

TEST_F(GroupMemory, OfAMemberMustHoldItsPartBesideAJoiner) {
  const int64_t enough =
      MemberBytes(spec_, model_, 2) + GroupStateBytes(spec_, model_);
  SetMemory("w1", enough);
  EXPECT_TRUE(Room().ok()) << Room();

  SetMemory("w1", enough - 1);

  EXPECT_THAT(Room().message(), Says("worker w1 has", "if w2 joined"));
}

TEST_F(GroupMemory, JoinerHasTheCapabilityAndIsNamedIfAnyIs) {
  workers_.member("w1").registration.set_cpu_capability("avx2");
  const auto check = [&](const std::string& job,
                         const std::string& capability) {
    const JobSpec spec = SpecOfText(job);
    return std::string(
        CheckJoiner(spec, model_, capability, workers_.member("w1"), {})
            .message());
  };

  EXPECT_EQ(check("group", "avx512"),
            "worker w1 has avx2, and the job computes with avx512");
  EXPECT_EQ(check("group aggregation.workers=w9", "avx2"),
            "worker w1 is not among aggregation.workers");
}

}  // namespace
}  // namespace paceline
