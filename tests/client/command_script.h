// Command lines as a person types them, to a coordinator that a script sets up,
// for the golden texts of tests/golden/client.
//
//   paceline job wait 7      the command: its notes ("! "), its output, its
//   exit
//                            code, and what it asked the coordinator for ("> ")
// What the coordinator answers, in order; the last answer stays:
//   answer running 1 20      about the job; succeeded TEXT | job TEXT
//   submission TEXT          to a submission
//   started TEXT             to the order of a profile
//   progress waiting A; B | failed C | missing w1 w2 | note D | two | quota |
//                            script; of that profile: two are finished, the
//                            second of a machine with a quota
//   answer | submission | started | progress | workers | deleted error 5 WHY
// What it has; TEXT are fields of the message:
//   workers w1 w2            and no others
//   worker | listed | event | log TEXT   one more, or a job in the list
//   stream                   begins a stream of the mesh
//   update TEXT | whole TEXT | nothing   comes next on it
// The client's side:
//   spec train.steps=9; ...  the job file's job has that; @ as above
//   model vit                and that model, as it is by default
//   warning TEXT             of the job file
//   file NAME TEXT ; TEXT    a file of these lines
//   show NAME | count NAME TEXT   the file; how often it has the text
//   weights TEXT | error 3 WHY   in a weights file of this machine; its notes
//   trust-error 16 WHY       what the coordinator says of tokens and
//   certificates terminal 80 | screen 80 24 | broken-output leave 3 Ctrl-C at
//   the third sleep least 3                  seconds that a sleep takes
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/dispatch.h"
#include "core/model/catalog.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/client/command_line.h"
#include "tests/client/fakes.h"
#include "tests/support/job_changes.h"
#include "tests/support/script.h"

namespace paceline {

class CommandScript : public Script {
 public:
  explicit CommandScript(std::unique_ptr<FakeControlClient> client =
                             std::make_unique<FakeControlClient>())
      : client_(std::move(client)) {
    spec_.model.name = "lenet";
    spec_.data.name = "synthetic";
    spec_.pipeline.stages = 2;
    setenv("XDG_CONFIG_HOME", folder_.path().c_str(), /*overwrite=*/1);
  }
  ~CommandScript() override { unsetenv("XDG_CONFIG_HOME"); }

 protected:
  // Says what the command asked for.
  virtual void TellCalls() {
    std::vector<std::string> calls;
    for (const auto& request : client_->submitted) {
      calls.push_back(SubmissionText(request));
    }
    for (const int64_t id : client_->asked) {
      calls.push_back(absl::StrCat("asks for job ", id));
    }
    for (const auto& request : client_->ordered) {
      calls.push_back(OrderText(request));
    }
    for (const auto& [worker, drain] : client_->drained) {
      calls.push_back((drain ? "drains " : "takes back ") + worker);
    }
    for (const std::string& worker : client_->forgotten) {
      calls.push_back("forgets " + worker);
    }
    for (const int64_t id : client_->removed) {
      calls.push_back(absl::StrCat("deletes job ", id));
    }
    for (size_t i = 0; i < calls.size();) {
      size_t end = i;
      while (end < calls.size() && calls[end] == calls[i]) ++end;
      Say(absl::StrCat(
          "> ", calls[i],
          end > i + 1 ? absl::StrCat(", ", end - i, " times") : ""));
      i = end;
    }
    client_->submitted.clear();
    client_->asked.clear();
    client_->ordered.clear();
    client_->drained.clear();
    client_->forgotten.clear();
    client_->removed.clear();
  }

  bool Do(const std::string& verb) override {
    if (verb == "paceline") {
      Run();
    } else if (!DoSetting(verb) && !DoAnswer(verb)) {
      return false;
    }
    return true;
  }

  FakeControlClient& client() { return *client_; }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  static std::string SubmissionText(const v1::SubmitJobRequest& request) {
    google::protobuf::util::MessageDifferencer differencer;
    std::string changes;
    differencer.ReportDifferencesToString(&changes);
    differencer.Compare(ToProto(JobSpec()), request.spec());
    v1::SubmitJobRequest rest = request;
    rest.clear_spec();
    return absl::StrCat(
        "submits ", rest.ShortDebugString(), "; ",
        absl::StrReplaceAll(absl::StripSuffix(changes, "\n"),
                            {{"modified: ", ""}, {"\n", ", "}}));
  }
  static std::string OrderText(const v1::StartProfileRequest& request) {
    v1::StartProfileRequest rest = request;
    rest.clear_spec();
    return absl::StrCat("orders a profile of ", request.spec().model().name(),
                        " ", request.spec().model().file(), " with ",
                        request.spec().train().micro_batch(), " samples of ",
                        request.spec().data().name(), " ",
                        request.spec().data().path(), ": ",
                        rest.ShortDebugString());
  }

  // --- the command ----------------------------------------------------------

  Tools TestTools() {
    Tools tools = {
        .read_job =
            [this](const std::string&, const std::vector<std::string>& sets) {
              auto job = ChangeJob(spec_, sets);
              if (!job.ok()) return job;
              job->warnings.insert(job->warnings.begin(), warnings_.begin(),
                                   warnings_.end());
              return job;
            },
        .open_trust =
            [this](const std::string&, const std::string&) {
              return std::make_unique<FakeTrustClient>(trust_);
            },
        .request_id = "r1"};
    if (!weights_.has_value()) return tools;
    tools.load_weights =
        [this](
            const ModelSpec&, const ModelDescription&, const LayerRange& layers,
            WeightsOrigin* origin) -> absl::StatusOr<std::vector<NamedTensor>> {
      EXPECT_EQ(layers.last, 0) << "the header is enough";
      if (!weights_->ok()) return weights_->status();
      if (origin != nullptr) origin->notes = {**weights_};
      return std::vector<NamedTensor>();
    };
    return tools;
  }

  void Run() {
    ClientOptions options;
    const std::optional<ParseStop> stop = ParseWords(
        absl::StrReplaceAll(Rest(1), {{"@", folder_.path()}}), &options);
    if (stop.has_value()) {
      Say(stop->err);
      return;
    }
    OutputFormat format = OutputFormat::kTable;
    EXPECT_TRUE(ParseOutputFormat(options.output.value_or("table"), &format));
    std::ostringstream out, err;
    if (is_broken_) out.setstate(std::ios::badbit);
    Console console(out, err, format, traits_);
    FakePauser pauser(clock_);
    pauser.leave_at = leave_at_;
    pauser.least = least_;
    const Instant begin = clock_.Now();

    const CommandContext mesh = {*client_, console, clock_, pauser,
                                 ProgramText(options)};
    const Tools tools = TestTools();
    if (!options.study.file.empty()) {
      options.study.file = folder_.Path(options.study.file);
    }
    if (!options.study.report.empty()) {
      options.study.report = folder_.Path(options.study.report);
    }

    Call call = {options, tools, console, clock_, {}, &mesh};
    call.named = options.host.empty() ? "first:7400" : options.host;
    call.settings.coordinator = call.named;

    const ExitCode code = CodeOf(console, RowOf(options).run(call));

    EXPECT_EQ(IllSaid(out.str()), "");
    EXPECT_EQ(IllSaid(err.str()), "");
    for (const auto line :
         absl::StrSplit(Shown(err), '\n', absl::SkipEmpty())) {
      Say(absl::StrCat("! ", line));
    }
    out_ += Shown(out);
    Say(absl::StrCat("exit code ", code, begin == clock_.Now() ? "" : " after ",
                     begin == clock_.Now()
                         ? ""
                         : absl::FormatDuration(clock_.Now() - begin)));
    TellCalls();
    out_ = absl::StrReplaceAll(out_, {{folder_.path() + "/", ""}});
    stale_ = {"answer", "submission", "progress"};
  }
  static std::string Shown(const std::ostringstream& stream) {
    return absl::StrReplaceAll(stream.str(), {{"\x1b", "ESC"}, {"\r", "CR"}});
  }

  // --- what it asks, and what it is asked by --------------------------------

  bool IsError(size_t i) const { return Word(i) == "error"; }
  template <typename Message>
  absl::StatusOr<Message> AnswerAt(size_t i) const {
    if (IsError(i)) return StatusAt(i + 1);
    return Parse<Message>(Rest(i));
  }

  absl::StatusOr<v1::Job> JobAt(size_t i) const {
    const bool runs = Word(i) == "running";
    if (IsError(i)) return StatusAt(i + 1);
    v1::Job job;
    if (runs) job = RunningJob(Number(i + 1), Number(i + 2));
    if (Word(i) == "succeeded") job = SucceededJob();
    MergeText(Rest(runs ? i + 3 : i + 1), job);
    return job;
  }
  absl::StatusOr<ProfileProgress> ProgressAt(size_t i) const {
    if (IsError(i)) return StatusAt(i + 1);
    ProfileProgress progress;
    for (const std::string& part :
         std::vector<std::string>(absl::StrSplit(Rest(i), " | "))) {
      const std::pair<std::string, std::string> words =
          absl::StrSplit(part, absl::MaxSplits(' ', 1));
      const auto& [kind, text] = words;
      if (kind == "two") {
        progress.profiles = TwoProfiles().profiles;
        progress.links = TwoProfiles().links;
      } else if (kind == "quota") {
        progress.profiles[1].cpu_share = 0.11;
        progress.profiles[1].quota_period_seconds = 0.008;
      } else if (kind == "script") {
        progress.script.emplace();
        progress.script->sha256 = "abc";
        progress.script->layers.resize(2);
      } else if (kind == "waiting") {
        progress.waiting = absl::StrSplit(text, "; ");
      } else if (kind == "failed") {
        progress.failed = {text};
      } else if (kind == "note") {
        progress.notes = {text};
      } else if (kind == "missing") {
        for (const absl::string_view worker : absl::StrSplit(text, ' ')) {
          v1::MissingFile& missing = progress.missing.emplace_back();
          missing.set_path("/data");
          missing.set_why("No such file or directory");
          missing.set_worker(std::string(worker));
        }
      } else {
        EXPECT_EQ(part, "");
      }
    }
    return progress;
  }

  // Answers to earlier commands are no answers to later ones.
  void DropStale(const std::string& verb) {
    if (!stale_.erase(verb)) return;
    if (verb == "answer") client_->job_answers.clear();
    if (verb == "submission") client_->submissions.clear();
    if (verb == "progress") client_->progress.clear();
  }

  bool DoAnswer(const std::string& verb) {
    DropStale(verb);
    if (verb == "answer") {
      client_->job_answers.push_back(JobAt(1));
    } else if (verb == "submission") {
      client_->submissions.push_back(AnswerAt<v1::SubmitJobResponse>(1));
    } else if (verb == "started") {
      client_->started = AnswerAt<v1::StartProfileResponse>(1);
    } else if (verb == "progress") {
      client_->progress.push_back(ProgressAt(1));
    } else if (verb == "deleted") {
      client_->deleted = StatusAt(2);
    } else if (verb == "workers" && IsError(1)) {
      client_->workers = StatusAt(2);
    } else if (verb == "workers") {
      client_->workers = IdleWorkers({words_.begin() + 1, words_.end()});
    } else if (verb == "worker") {
      *client_->workers->add_workers() = Parse<v1::Worker>(Rest(1));
      client_->drain_answer = client_->workers->workers().rbegin()[0];
    } else if (verb == "listed") {
      *client_->jobs.add_jobs() = *JobAt(1);
    } else if (verb == "event") {
      *client_->events.add_events() = Parse<v1::JobEvent>(Rest(1));
    } else if (verb == "log") {
      *client_->logs.add_lines() = Parse<v1::LogLine>(Rest(1));
    } else if (verb == "stream") {
      client_->meshes.emplace_back();
    } else if (verb == "update") {
      const bool whole = Word(1) == "whole";
      v1::MeshUpdate update = whole ? WholeMesh() : v1::MeshUpdate();
      if (Word(1) == "nothing") {
        client_->meshes.back().emplace_back(std::nullopt);
      } else {
        MergeText(Rest(whole ? 2 : 1), update);
        client_->meshes.back().emplace_back(update);
      }
    } else {
      return false;
    }
    return true;
  }

  bool DoSetting(const std::string& verb) {
    if (verb == "spec") {
      ChangeJob(spec_, absl::StrReplaceAll(Rest(1), {{"@", folder_.path()}}));
    } else if (verb == "model") {
      spec_.model = DefaultModel(Word(1));
    } else if (verb == "warning") {
      warnings_.push_back(Rest(1));
    } else if (verb == "file") {
      folder_.Write(Word(1),
                    absl::StrReplaceAll(Rest(2) + "\n", {{" ; ", "\n"}}));
    } else if (verb == "show") {
      out_ += folder_.Read(Word(1));
    } else if (verb == "count") {
      const std::vector<std::string> parts =
          absl::StrSplit(folder_.Read(Word(1)), Rest(2));
      Say(absl::StrCat(parts.size() - 1, " times: ", Rest(2)));
    } else if (verb == "weights") {
      weights_ = Rest(1);
      if (IsError(1)) weights_ = StatusAt(2);
    } else if (verb == "trust-error") {
      trust_.error = StatusAt(1);
    } else if (verb == "terminal") {
      traits_.live = true;
      traits_.columns = static_cast<int>(Number(1));
    } else if (verb == "screen") {
      const ScreenSize size = {static_cast<int>(Number(1)),
                               static_cast<int>(Number(2))};
      traits_.screen = [size] { return size; };
    } else if (verb == "broken-output") {
      is_broken_ = true;
    } else if (verb == "leave") {
      leave_at_ = static_cast<int>(Number(1));
    } else if (verb == "least") {
      least_ = absl::Seconds(Number(1));
    } else {
      return false;
    }
    return true;
  }

  const std::unique_ptr<FakeControlClient> client_;
  FakeClock clock_;
  const TemporaryFolder folder_;
  std::set<std::string> stale_;  // verbs
  JobSpec spec_;
  std::vector<std::string> warnings_;
  std::optional<absl::StatusOr<std::string>> weights_;
  FakeTrustClient trust_;
  Console::Traits traits_;
  bool is_broken_ = false;
  int leave_at_ = 100'000;
  absl::Duration least_;
};

}  // namespace paceline
