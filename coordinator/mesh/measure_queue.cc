#include "coordinator/mesh/measure_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "coordinator/jobs/list_page.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/model/description.h"
#include "core/plan/inputs.h"
#include "core/rpc/convert/job_convert.h"
#include "core/rpc/convert/report_convert.h"

namespace paceline {
namespace {

constexpr size_t kRequestsKept = 100;
constexpr int64_t kMostListed = 2000;  // in one answer

constexpr absl::Duration kLinkLimit = absl::Seconds(60);
constexpr absl::Duration kLayersLimit = absl::Minutes(30);
// A user's script is executed once, and may never return.
constexpr absl::Duration kScriptLimit = absl::Minutes(5);
constexpr absl::Duration kFilesLimit = absl::Seconds(10);
// A script's check ends when its client has not asked for the answer for this
// long.  Other measurements are kept, even if no client waits.
constexpr absl::Duration kUnaskedLimit = absl::Seconds(30);
// A measurement waits this long for a worker that is gone: it may be executing
// itself anew.
constexpr absl::Duration kReturnPeriod = absl::Seconds(20);
// The measurement fails when more processes end while they measure.  One
// executes itself anew for another CPU capability, a person may end the second;
// the third runs out of memory, or its script crashes.
constexpr int kMostEndedProcesses = 2;

void Sort(v1::GetProfileResponse& view) {
  absl::c_sort(*view.mutable_profiles(), [](const auto& a, const auto& b) {
    return a.device() < b.device();
  });
  absl::c_sort(*view.mutable_links(), [](const auto& a, const auto& b) {
    return std::tie(a.from(), a.to()) < std::tie(b.from(), b.to());
  });
}

}  // namespace

bool MeasureQueue::IsScript(const Task& task) {
  return task.spec.has_value() && NeedsWorker(task.spec->model);
}

std::string MeasureQueue::TextOf(const Task& task) {
  if (!task.peer.empty()) {
    return absl::StrCat("link ", task.worker, " to ", task.peer);
  }
  return absl::StrCat(task.order.has_files() ? "files on " : "layers on ",
                      task.worker);
}

MeasureQueue::Task MeasureQueue::NewTask(int64_t request,
                                         const std::string& worker) {
  Task task;
  task.order.set_id(next_id_++);
  task.request = request;
  task.worker = worker;
  return task;
}

MeasureQueue::Task MeasureQueue::NewLink(int64_t request,
                                         const std::string& from,
                                         const std::string& to) {
  Task task = NewTask(request, from);
  task.order.mutable_link()->set_name(to);
  task.peer = to;
  return task;
}

void MeasureQueue::OnArrival(const std::string& name,
                             const std::vector<std::string>& others) {
  for (auto& [worker, own] : own_) {
    std::erase(own.peers, name);
    if (own.running.has_value() && own.running->peer == name) {
      own.running.reset();
    }
  }
  // Measurements on the earlier process of this name ended with it.
  for (Task& task : tasks_) {
    if (task.worker != name && task.peer != name) continue;
    if (task.running) ++task.ended_processes;
    task.running = false;
  }
  std::vector<std::string> peers = others;
  std::erase(peers, name);
  if (peers.size() > kMostLinks) {
    peers.erase(peers.begin(), peers.end() - kMostLinks);
  }
  for (const std::string& peer : peers) own_[peer].peers.push_back(name);
  own_[name] = {.peers = std::move(peers), .running = {}};
}

void MeasureQueue::Redial(const std::string& from, const std::string& to) {
  OwnLinks& own = own_[from];
  std::erase(own.peers, to);
  own.peers.push_back(to);
}

int64_t MeasureQueue::NewRequest() {
  const int64_t request = next_id_++;
  requests_[request];
  if (requests_.size() > kRequestsKept) requests_.erase(requests_.begin());
  return request;
}

int64_t MeasureQueue::RequestFiles(const v1::StartProfileRequest& asked,
                                   const std::vector<std::string>& workers) {
  const int64_t request = NewRequest();
  for (const std::string& worker : workers) {
    v1::MeasureFiles& order =
        *tasks_.emplace_back(NewTask(request, worker)).order.mutable_files();
    *order.mutable_paths() = asked.files();
    if (asked.has_spec()) *order.mutable_spec() = asked.spec();
    *order.mutable_inputs() = asked.inputs();
  }
  return request;
}

int64_t MeasureQueue::Request(const JobSpec& spec,
                              const std::string& cpu_capability,
                              const std::vector<std::string>& workers,
                              bool links) {
  const int64_t request = NewRequest();
  for (const std::string& worker : workers) {
    Task& task = tasks_.emplace_back(NewTask(request, worker));
    task.spec = spec;
    *task.order.mutable_layers()->mutable_spec() = ToProto(spec);
    task.order.mutable_layers()->set_cpu_capability(cpu_capability);
  }
  for (size_t i = 0; links && i < workers.size(); ++i) {
    for (size_t j = 0; j < workers.size(); ++j) {
      if (j != i) tasks_.push_back(NewLink(request, workers[i], workers[j]));
    }
  }
  return request;
}

void MeasureQueue::End(const Task& task, const absl::Status& error) {
  const auto request = requests_.find(task.request);
  if (request == requests_.end()) return;
  request->second.add_failed(absl::StrCat(TextOf(task), ": ", error.message()));
}

void MeasureQueue::KeepAsked(const Task& task, v1::Measurement& measurement) {
  if (!IsScript(task)) measurement.clear_script();
  const std::optional<JobSpec>& spec = task.spec;
  if (!spec.has_value() || IsScript(task) ||
      measurement.profile().device() != task.worker ||
      measurement.profile().model() !=
          ModelKey(spec->model, spec->data.shape, spec->data.classes)) {
    measurement.clear_profile();
  }
  auto& links = *measurement.mutable_links();
  const auto others = std::remove_if(
      links.begin(), links.end(), [&](const v1::LinkMeasurement& link) {
        return task.peer.empty() || link.from() != task.worker ||
               link.to() != task.peer;
      });
  links.erase(others, links.end());
  if (links.size() > 1) links.DeleteSubrange(1, links.size() - 1);
  const absl::Status error = ErrorOf(measurement);
  if (error.ok()) return;
  measurement.clear_links();
  const bool refused = absl::IsUnavailable(error) ||
                       absl::IsDeadlineExceeded(error) ||
                       absl::IsFailedPrecondition(error);
  if (task.peer.empty() || !refused) return;
  v1::LinkMeasurement& link = *measurement.add_links();
  link.set_from(task.worker);
  link.set_to(task.peer);
  link.set_bytes_per_second(kRefusedBytesPerSecond);
  link.set_error(std::string(error.message()));
}

std::optional<v1::Measurement> MeasureQueue::OnMeasurement(
    const std::string& worker, v1::Measurement measurement) {
  const Task* const task = RunningOn(worker);
  if (task == nullptr || task->order.id() != measurement.id()) {
    return std::nullopt;
  }
  KeepAsked(*task, measurement);
  const auto request = requests_.find(task->request);
  const absl::Status error = ErrorOf(measurement);
  if (!error.ok()) {
    End(*task, error);
  } else if (request != requests_.end()) {
    v1::GetProfileResponse& view = request->second;
    if (measurement.has_script()) *view.mutable_script() = measurement.script();
    if (measurement.has_profile()) *view.add_profiles() = measurement.profile();
    view.mutable_links()->MergeFrom(measurement.links());
    for (const v1::MissingFile& missing : measurement.missing()) {
      v1::MissingFile& of_worker = *view.add_missing();
      of_worker = missing;
      of_worker.set_worker(worker);
    }
    for (const std::string& note : measurement.notes()) {
      const auto& notes = view.notes();
      if (!absl::c_linear_search(notes, note)) {
        view.add_notes(note);
      }
    }
    CleanNotes(*view.mutable_notes());
    Sort(view);
  }
  Remove(*task);
  if (!error.ok() && measurement.links().empty()) return std::nullopt;
  return measurement;
}

absl::Status MeasureQueue::Judge(
    Task& task, const std::map<std::string, MeasureWorker>& workers,
    Instant now) {
  for (const std::string& name : {task.worker, task.peer}) {
    if (name.empty()) continue;
    const auto worker = workers.find(name);
    if (worker != workers.end() && worker->second.live) continue;
    if (!task.gone_since.has_value()) task.gone_since = now;
    if (task.request != 0 && now - *task.gone_since < kReturnPeriod) {
      task.waits_for = absl::StrCat("worker ", name, ", which is gone");
      return absl::OkStatus();
    }
    return Unavailable("worker ", name, " is gone");
  }
  task.gone_since.reset();
  if (task.ended_processes > kMostEndedProcesses) {
    return Aborted(
        "the worker's process ended ", Counted(task.ended_processes, "time"),
        " over it: its log, or the kernel's, says why; has it enough "
        "memory?");
  }
  if (IsScript(task)) {
    if (!task.asked_for.has_value()) task.asked_for = now;
    if (now - *task.asked_for >= kUnaskedLimit) {
      return Cancelled("nobody waits for it any more");
    }
  }
  const absl::Duration limit = IsScript(task)           ? kScriptLimit
                               : task.order.has_files() ? kFilesLimit
                               : task.peer.empty()      ? kLayersLimit
                                                        : kLinkLimit;
  if (task.running && now - *task.since >= limit) {
    return DeadlineExceeded(
        "not finished after ", absl::FormatDuration(limit),
        IsScript(task) ? ": does the code of the script come to an end?" : "");
  }
  return absl::OkStatus();
}

// In turn: an unanswered dial takes long.
void MeasureQueue::BeginOwn(
    absl::FunctionRef<bool(const std::string& worker)> is_free,
    absl::FunctionRef<void(Task& task)> begin) {
  std::vector<std::pair<int64_t, std::string>> waiting;
  for (const auto& [worker, own] : own_) {
    if (!own.running.has_value() && is_free(worker)) {
      waiting.emplace_back(own.last, worker);
    }
  }
  absl::c_sort(waiting);
  for (const auto& [last, worker] : waiting) {
    if (!is_free(worker)) continue;
    OwnLinks& own = own_.at(worker);
    const auto peer = absl::c_find_if(own.peers, is_free);
    if (peer == own.peers.end()) continue;
    begin(own.running.emplace(NewLink(0, worker, *peer)));
    own.last = own.running->order.id();
    own.peers.erase(peer);
  }
}

void MeasureQueue::Assign(const std::vector<MeasureWorker>& workers,
                          Instant now) {
  if (tasks_.empty() && own_.empty()) return;
  std::map<std::string, MeasureWorker> by_name;
  for (const MeasureWorker& worker : workers) by_name[worker.name] = worker;
  const auto ends = [&](Task& task) {
    const absl::Status verdict = Judge(task, by_name, now);
    if (!verdict.ok()) End(task, verdict);
    return !verdict.ok();
  };
  std::erase_if(tasks_, ends);
  std::map<std::string, const Task*> taken;  // by worker; null: its job has it
  for (const MeasureWorker& worker : workers) {
    if (worker.busy) taken[worker.name] = nullptr;
  }
  // A paused job may wait for the measurement of a worker's link.
  const auto in_use = [&](const std::string& name) {
    const auto taker = taken.find(name);
    return taker != taken.end() &&
           (taker->second != nullptr || !by_name[name].paused);
  };
  const auto take = [&taken](const Task& task) {
    taken[task.worker] = &task;
    if (!task.peer.empty()) taken[task.peer] = &task;
  };
  const auto begin = [&](Task& task) {
    task.running = true;
    task.since = now;
    if (task.order.has_link()) {
      task.order.mutable_link()->set_address(by_name[task.peer].address);
    }
    take(task);
  };
  for (Task& task : tasks_) {
    if (!task.running) continue;
    if (taken.contains(task.worker) || taken.contains(task.peer)) {
      task.running = false;  // a job has come
    } else {
      take(task);
    }
  }
  for (auto& [worker, own] : own_) {
    if (!own.running.has_value()) continue;
    const std::string& peer = own.running->peer;
    if (in_use(worker) || in_use(peer)) {
      own.peers.push_back(peer);
      own.running.reset();
    } else if (ends(*own.running)) {
      own.running.reset();
    } else {
      take(*own.running);
    }
  }
  for (Task& task : tasks_) {
    if (task.running || task.gone_since.has_value()) continue;
    auto taker = taken.find(task.worker);
    if (taker == taken.end()) taker = taken.find(task.peer);
    if (taker != taken.end()) {
      task.waits_for = absl::StrCat(
          "worker ", taker->first, ": ",
          taker->second == nullptr ? "its job" : TextOf(*taker->second));
      continue;
    }
    begin(task);
  }
  const auto is_free = [&](const std::string& name) {
    if (in_use(name)) return false;
    const auto worker = by_name.find(name);
    return worker != by_name.end() && worker->second.live;
  };
  BeginOwn(is_free, begin);
  std::erase_if(own_, [](const auto& entry) {
    return entry.second.peers.empty() && !entry.second.running.has_value();
  });
}

const MeasureQueue::Task* MeasureQueue::RunningOn(
    const std::string& worker) const {
  for (const Task& task : tasks_) {
    if (task.running && task.worker == worker) return &task;
  }
  const auto own = own_.find(worker);
  if (own == own_.end() || !own->second.running.has_value()) return nullptr;
  return &*own->second.running;
}

void MeasureQueue::Remove(const Task& task) {
  if (task.request == 0) return own_.at(task.worker).running.reset();
  std::erase_if(tasks_, [id = task.order.id()](const Task& each) {
    return each.order.id() == id;
  });
}

std::optional<v1::MeasureOrder> MeasureQueue::OrderOf(
    const std::string& worker) const {
  const Task* const task = RunningOn(worker);
  if (task == nullptr) return std::nullopt;
  return task->order;
}

bool MeasureQueue::Holds(const std::string& worker) const {
  return absl::c_any_of(tasks_, [&](const Task& task) {
    return task.running && !task.gone_since.has_value() &&
           (task.worker == worker || task.peer == worker);
  });
}

absl::StatusOr<v1::GetProfileResponse> MeasureQueue::View(
    int64_t request, Instant now, const std::string& page_token) {
  PACELINE_ASSIGN_OR_RETURN(const int64_t skip, ListPage::Parse(page_token));
  const auto found = requests_.find(request);
  if (found == requests_.end()) {
    return NotFound("no profile ", request,
                    " is being taken: the coordinator may have restarted; "
                    "ask for it again");
  }
  std::vector<std::string> waiting;
  for (Task& task : tasks_) {
    if (task.request != request) continue;
    task.asked_for = now;
    waiting.push_back(absl::StrCat(
        TextOf(task), task.running
                          ? ": being measured"
                          : absl::StrCat(": waits for ", task.waits_for)));
  }
  const v1::GetProfileResponse& all = found->second;
  v1::GetProfileResponse view;
  if (all.has_script()) *view.mutable_script() = all.script();
  ListPage page(skip, 0, kMostListed);
  page.Add(all.profiles(), *view.mutable_profiles());
  page.Add(all.links(), *view.mutable_links());
  page.Add(all.failed(), *view.mutable_failed());
  page.Add(all.missing(), *view.mutable_missing());
  page.Add(all.notes(), *view.mutable_notes());
  page.Add(waiting, *view.mutable_waiting());
  view.set_next_page_token(page.next());
  return view;
}

}  // namespace paceline
