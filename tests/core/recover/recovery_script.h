// One job's recovery plays lines of text with the store and the workers that it
// talks to, and tells what became of it, for the golden texts of
// tests/golden/core.
//
//   policy copies=2 losses=3   also: views, differ (gossip), stateless,
//                              replicas (each process holds all layers)
//   begin 3                    w1, w2, w3 attach, and the job's turn has come
//   attach 2 machine=1 process=2
//   report 2 step=3            it says so; also attempt, phase, floor=1/5 (step
//                              5 of attempt 1), kept=6/7 (applied, held), echo,
//                              joins, settled, files-changed, refuses
//   is 2 step=3                the same, and it says nothing yet
//   hold 2 1/5 0 1             ... that it holds these layers' pieces; no
//                              layers: all of them
//   has 2 1/5 | drop 2         the same, or nothing, and it says nothing yet
//   all-hold 1/5
//   stop 0 1 | 2 3             w1 and w2 stop at step 7, and hold these layers
//   mute 2 | speak 2           it carries no order out
//   leave 2 kept=6/7           it has carried the newest order out after all
//   fail 2 5 MESSAGE           with that status code
//   lose | hang | drain | undrain | distrust 2
//   cut-off 2 WHY              without WHY: no link of it is cut
//   move WHY                   there is a better plan
//   plans no | yes | changed   the planner finds one
//   store works | waits
//   pass MS | recorded STEP | checkpoint 1/4 ... | stored
//   restart                    another coordinator
//   view 1 2 listen 4 | over | torn STEP      of the group
//   may-go 2 | followers | asked   of the job: how often it asked for a plan
//   look                       what it tells at the end of each script too
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "core/recover/job_recovery.h"
#include "gtest/gtest.h"
#include "tests/support/script.h"

namespace paceline {

// Workers answer at once, unless they are mute.
class RecoveryScript final : public Script {
 public:
  RecoveryScript() { Make(); }

 private:
  static constexpr int kLayers = 4;

  struct Worker {
    MemberId process;
    MachineId machine;
    JobReport report;
    std::set<Piece> pieces;
    bool answers = true;
    WorkPhase begins = WorkPhase::kRunning;  // what it says of a run
  };

  void Make() {
    job_.emplace(policy_, counter_,
                 [this](const std::vector<RunCandidate>& all) {
                   ++asked_;
                   return Plan(all);
                 });
  }

  // Two stages on the first two that are fit.
  absl::StatusOr<std::vector<RunPlace>> Plan(
      const std::vector<RunCandidate>& candidates) const {
    std::vector<RunPlace> places;
    std::string why = "no worker";
    std::vector<RunCandidate> order = candidates;
    absl::c_stable_partition(
        order, [](const RunCandidate& each) { return each.no_data.empty(); });
    for (const RunCandidate& each : order) {
      if (!each.unfit.empty()) {
        why = each.unfit;
      } else if (replicas_) {
        places.push_back({{0, kLayers}, each.process});
      } else if (places.empty() && !each.no_data.empty()) {
        why = each.no_data;
      } else if (places.size() < 2) {
        const int first = places.empty() ? 0 : 2;
        places.push_back({{first, first + 2}, each.process});
      }
    }
    if (places.empty() || !plans_) return absl::UnavailableError(why);
    if (places.size() == 1) places[0].layers.last = kLayers;
    return places;
  }

  // --- what happens ---------------------------------------------------------

  static std::string NameOf(WorkerId id) { return absl::StrCat("w", id.value); }
  // The numbers of "1/5".
  static Cut CutAt(const std::string& text) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, '/');
    return {std::stoll(parts.first), std::stoll(parts.second)};
  }
  // Returns the text behind "NAME=" in the line.
  std::string Option(const std::string& name) const {
    for (const std::string& word : words_) {
      if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
    }
    return "";
  }
  bool Flag(const std::string& name) const {
    return absl::c_find(words_, name) != words_.end();
  }
  int64_t Option(const std::string& name, int64_t otherwise) const {
    const std::string text = Option(name);
    return text.empty() ? otherwise : std::stoll(text);
  }

  void Attach(int64_t id, int64_t machine, uint64_t incarnation) {
    Worker& worker = workers_[id];
    if (worker.process.incarnation.value != incarnation) worker = Worker();
    worker.process = {{id}, {incarnation}};
    worker.machine = {machine};
    job_->OnAttached(worker.process, worker.machine, NameOf({id}), turn_);
    worker.report.pieces = worker.pieces;
    Report(id);
  }
  void Report(int64_t id) {
    Worker& worker = workers_[id];
    const JobReport report = worker.report;
    worker.report.pieces.reset();
    job_->OnReport(worker.process, report, turn_);
    Settle();
  }
  // Orders and the store are answered until nothing is left to do.
  void Settle() {
    while (!turn_.actions.empty()) {
      const RecoveryAction action = std::move(turn_.actions.front());
      turn_.actions.erase(turn_.actions.begin());
      if (const auto* store = std::get_if<StoreAttempt>(&action)) {
        stored_ = store->row.attempt;
        Say(absl::StrCat("  stores attempt ", store->row.attempt, " from ",
                         CutText(store->row.base)));
        if (store_answers_) {
          job_->OnStored(store->row.attempt, turn_);
        }
      } else if (const auto* send = std::get_if<SendOrder>(&action)) {
        OnOrder(send->to.worker.value, send->order);
      } else if (const auto* event = std::get_if<RecoveryEvent>(&action)) {
        Say(absl::StrCat("  ", event->kind, ": ", event->text));
      }
    }
  }
  void OnOrder(int64_t id, const JobOrder& order) {
    Worker& worker = workers_[id];
    orders_[id] = order;
    if (!worker.answers) return;
    worker.report.echo = order.number;
    const int64_t attempt = order.run.has_value() ? order.run->attempt : 0;
    if (attempt != worker.report.attempt) {
      worker.report.attempt = attempt;
      worker.report.phase = attempt == 0 ? WorkPhase::kIdle : worker.begins;
      worker.report.step = attempt > 0 ? order.run->base.step : 0;
    }
    if (order.settle) worker.report.settled = true;
    job_->OnReport(worker.process, worker.report, turn_);
  }
  // The worker holds the pieces of these layers.
  void Take(int64_t id, Cut cut, const std::vector<int64_t>& layers) {
    Worker& worker = workers_[id];
    for (const int64_t layer : layers) {
      worker.pieces.insert({cut, static_cast<int>(layer)});
    }
    worker.report.pieces = worker.pieces;
  }

  WorkPhase PhaseAt(const std::string& name) const {
    static const std::map<std::string, WorkPhase> kPhases = {
        {"idle", WorkPhase::kIdle},       {"gathering", WorkPhase::kGathering},
        {"running", WorkPhase::kRunning}, {"stopped", WorkPhase::kStopped},
        {"done", WorkPhase::kDone},       {"failed", WorkPhase::kFailed}};
    return kPhases.at(name);
  }
  void Change(JobReport& report) const {
    for (size_t i = 2; Has(i); ++i) {
      const std::pair<std::string, std::string> change =
          absl::StrSplit(words_[i], '=');
      const auto& [key, value] = change;
      if (key == "phase") {
        report.phase = PhaseAt(value);
      } else if (key == "floor") {
        report.floor = CutAt(value);
      } else if (key == "kept") {
        report.kept = {CutAt(value).attempt, CutAt(value).step};
      } else if (key == "echo") {
        report.echo = {std::stoll(value), 0};
      } else {
        ChangeNumber(report, key, std::stoll(value));
      }
    }
  }
  static void ChangeNumber(JobReport& report, const std::string& key,
                           int64_t value) {
    if (key == "attempt") {
      report.attempt = value;
    } else if (key == "step") {
      report.step = value;
    } else if (key == "joins") {
      report.joins = value != 0;
    } else if (key == "settled") {
      report.settled = value != 0;
    } else if (key == "files-changed") {
      report.files_changed = value != 0;
    } else if (key == "refuses") {
      report.refuses_pieces = value != 0;
    } else {
      ADD_FAILURE() << key;
    }
  }

  bool DoReport(const std::string& verb, int64_t id) {
    if (verb == "is" || verb == "report") {
      Change(workers_[id].report);
      if (verb == "report") Report(id);
    } else if (verb == "has" || verb == "hold") {
      std::vector<int64_t> layers;
      for (size_t i = 3; Has(i); ++i) layers.push_back(Number(i));
      Take(id, CutAt(Word(2)),
           layers.empty() ? std::vector<int64_t>{0, 1, 2, 3} : layers);
      if (verb == "hold") Report(id);
    } else if (verb == "drop") {
      workers_[id].pieces.clear();
    } else if (verb == "leave") {
      Worker& worker = workers_[id];
      worker.report.attempt = 0;
      worker.report.phase = WorkPhase::kIdle;
      worker.report.echo = orders_.at(id).number;
      worker.answers = true;
      Change(worker.report);
      Report(id);
    } else if (verb == "fail") {
      workers_[id].report.phase = WorkPhase::kFailed;
      workers_[id].report.error = StatusAt(2);
      Report(id);
    } else {
      return false;
    }
    return true;
  }

  bool DoWorker(const std::string& verb, int64_t id) {
    Worker& worker = workers_[id];
    if (verb == "attach") {
      Attach(id, Option("machine", id),
             static_cast<uint64_t>(Option("process", 1)));
    } else if (verb == "mute" || verb == "speak") {
      if (!worker.process.worker.assigned()) worker.process = {{id}, {1}};
      worker.answers = verb == "speak";
    } else if (verb == "begins") {
      worker.begins = PhaseAt(Word(2));
    } else if (verb == "lose") {
      job_->OnLost({id}, "its process is gone", turn_);
    } else if (verb == "hang") {
      worker.answers = false;
      job_->OnStuck(worker.process, "it hangs", turn_);
    } else if (verb == "drain" || verb == "undrain") {
      job_->SetDraining({id}, verb == "drain", turn_);
    } else if (verb == "cut-off") {
      job_->SetCutOff({id}, Rest(2), turn_);
    } else if (verb == "distrust") {
      job_->Distrust(worker.process);
    } else if (verb == "may-go") {
      Say(job_->MayGo({id}) ? "it may go" : "it must stay");
    } else {
      return false;
    }
    Settle();
    return true;
  }

  void SetPolicy() {
    policy_.views = Flag("views");
    policy_.states_differ = Flag("differ");
    policy_.stateless = Flag("stateless");
    replicas_ = policy_.views || Flag("replicas");
    policy_.copies = static_cast<int>(Option("copies", policy_.copies));
    policy_.most_losses =
        static_cast<int>(Option("losses", policy_.most_losses));
    Make();
  }
  void Begin() {
    for (int64_t id = 1; id <= Number(1); ++id) Attach(id, id, 1);
    job_->Begin(turn_);
  }
  void StopAtSeven() {
    std::vector<int64_t> layers[2];
    size_t worker = 0;
    for (size_t i = 1; Has(i); ++i) {
      if (Word(i) == "|") {
        ++worker;
      } else {
        layers[worker].push_back(Number(i));
      }
    }
    for (const int64_t id : {1, 2}) {
      workers_[id].report.phase = WorkPhase::kStopped;
      workers_[id].report.step = 7;
      Take(id, {1, 7}, layers[id - 1]);
      Report(id);
    }
  }
  void Restart() {
    const std::vector<RunPlace> places = job_->places();
    const std::vector<AttemptRow> rows = job_->lineage().rows();
    for (auto& [id, worker] : workers_) {
      worker.report.floor = job_->floor().value_or(Cut());
    }
    counter_ = {{counter_.last.term + 1, 0}};
    Make();
    job_->Restore(rows, places);
    for (const auto& [id, worker] : workers_) {
      job_->OnKnown({id}, worker.machine, NameOf({id}));
    }
    orders_.clear();
  }

  bool DoJob(const std::string& verb) {
    if (verb == "policy") {
      SetPolicy();
    } else if (verb == "begin") {
      Begin();
    } else if (verb == "all-hold") {
      for (const auto& [id, worker] : workers_) {
        Take(id, CutAt(Word(1)), {0, 1, 2, 3});
        Report(id);
      }
    } else if (verb == "stop") {
      StopAtSeven();
    } else if (verb == "restart") {
      Restart();
    } else if (verb == "move") {
      job_->OnBetterPlan(Rest(1), turn_);
    } else if (verb == "plans") {
      if (Word(1) != "changed") plans_ = Word(1) == "yes";
      if (Word(1) == "changed") job_->OnPlansChanged(turn_);
    } else if (verb == "store") {
      if (!store_answers_ && Word(1) == "works") {
        job_->OnStored(stored_, turn_);
      }
      store_answers_ = Word(1) != "waits";
    } else if (verb == "pass") {
      turn_.now = turn_.now + absl::Milliseconds(Number(1));
      job_->OnTick(turn_);
    } else if (verb == "recorded") {
      job_->OnRecorded(Number(1));
    } else if (verb == "checkpoint") {
      std::set<Cut> cuts;
      for (size_t i = 1; Has(i); ++i) cuts.insert(CutAt(Word(i)));
      job_->OnCheckpoints(cuts);
    } else if (verb == "stored") {
      job_->OnAllStored();
    } else if (verb == "followers") {
      Say(absl::StrCat("followers: ", job_->followers(),
                       job_->NeedsFollowers() ? ", wanted" : ""));
    } else if (verb == "asked") {
      Say(absl::StrCat("plans asked for: ", asked_));
    } else {
      return DoGroup(verb);
    }
    Settle();
    return true;
  }

  bool DoGroup(const std::string& verb) {
    Roster roster;
    if (verb == "view") {
      bool listens = false;
      for (size_t i = 1; Has(i); ++i) {
        if (Word(i) == "listen") {
          listens = true;
        } else if (listens) {
          roster.listeners.insert(workers_[Number(i)].process);
        } else {
          roster.members.push_back({{0, kLayers}, workers_[Number(i)].process});
        }
      }
    } else if (verb == "over" || verb == "torn") {
      roster.state =
          verb == "over" ? Roster::State::kLost : Roster::State::kTorn;
      roster.why = "the group is over";
      roster.sound_step = Number(1);
    } else {
      return false;
    }
    job_->OnRoster(roster, turn_);
    Settle();
    return true;
  }

  bool Do(const std::string& verb) override {
    if (DoJob(verb)) return true;
    return DoReport(verb, Number(1)) || DoWorker(verb, Number(1));
  }

  // --- what it tells --------------------------------------------------------

  static std::string PlaceText(const MemberId& process, LayerRange layers) {
    return absl::StrCat(" ", NameOf(process.worker), "[", layers.first, ",",
                        layers.last, ")");
  }
  static std::string HoldersText(const std::vector<MemberId>& holders) {
    return absl::StrJoin(holders, " ", [](std::string* out, auto& holder) {
      absl::StrAppend(out, NameOf(holder.worker));
    });
  }
  static std::string OrderText(const JobOrder& order) {
    std::string text = "no run";
    if (order.run.has_value()) {
      const RunPlan& run = *order.run;
      text = absl::StrCat("attempt ", run.attempt, " from ", CutText(run.base),
                          " on");
      for (const RunPlace& place : run.places) {
        absl::StrAppend(&text, PlaceText(place.process, place.layers));
      }
      for (size_t i = 0; i < run.sources.size(); ++i) {
        if (run.sources[i].empty()) continue;
        if (i > 0 && run.sources[i] == run.sources[i - 1]) continue;
        absl::StrAppend(&text, ", layers from ", i, " on of ",
                        HoldersText(run.sources[i]));
      }
      if (run.stop_after_batch) absl::StrAppend(&text, ", to stop");
    }
    for (const Follow& follow : order.follow) {
      absl::StrAppend(&text, ", follows",
                      PlaceText(follow.source, follow.layers));
    }
    if (order.finish.has_value()) {
      absl::StrAppend(&text, ", finishes step ", *order.finish);
    }
    if (order.settle) absl::StrAppend(&text, ", settles");
    absl::StrAppend(&text, ", keeps ",
                    order.keep.floor.has_value()
                        ? "from " + CutText(*order.keep.floor)
                        : "all");
    return text;
  }

  void Look() override {
    Say(absl::StrCat(
        JobPhaseName(job_->phase()), ", attempt ", job_->attempt(), " from ",
        CutText(job_->base()), ", floor: ",
        job_->floor().has_value() ? CutText(*job_->floor()) : "not known",
        job_->why().empty() ? "" : "; ", job_->why()));
    std::map<std::string, std::string> lines;  // names by text
    for (const auto& [id, order] : orders_) {
      absl::StrAppend(&lines[OrderText(order)], " ", NameOf({id}));
    }
    for (const auto& [text, names] : lines) {
      Say(absl::StrCat(names.substr(1), ": ", text));
    }
  }

  RecoveryPolicy policy_{.layers = kLayers, .copies = 1};
  OrderCounter counter_{{1, 0}};
  std::optional<JobRecovery> job_;
  std::map<int64_t, Worker> workers_;
  std::map<int64_t, JobOrder> orders_;
  RecoveryTurn turn_{Instant{absl::Seconds(100)}};
  bool replicas_ = false;
  bool plans_ = true;   // the planner finds one
  int64_t stored_ = 0;  // the newest attempt
  bool store_answers_ = true;
  int asked_ = 0;
};

}  // namespace paceline
