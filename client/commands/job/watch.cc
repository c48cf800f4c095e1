#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/job/job.h"
#include "client/render/report.h"
#include "client/values/text.h"
#include "core/base/errors.h"

namespace paceline {

namespace {

constexpr int kBarColumns = 24;
constexpr int kLeastBarColumns = 4;  // a shorter one says nothing
constexpr absl::Duration kPlainPeriod = absl::Seconds(10);

bool Computes(const v1::Job& job) {
  return job.phase() == "training" || job.phase() == "predicting";
}

// The phase of a job that does not compute, and why.
std::string PhaseText(const v1::Job& job) {
  const std::string why = FirstClause(job.why());
  if (absl::StartsWith(why, job.phase())) return why;
  return why.empty() ? Printable(job.phase())
                     : absl::StrCat(Printable(job.phase()), ": ", why);
}

double ShareDone(const v1::Job& job) {
  if (job.steps() <= 0) return 0;
  return std::clamp(static_cast<double>(job.step()) / job.steps(), 0.0, 1.0);
}

std::string Bar(double share, int columns, bool unicode) {
  const int filled = static_cast<int>(share * columns);
  const char* const done = unicode ? "█" : "#";
  const char* const left = unicode ? "·" : ".";
  std::string bar = "[";
  for (int i = 0; i < columns; ++i) bar += i < filled ? done : left;
  return bar + "]";
}

// `parts` with the bar behind the first where it is wanted: what they say comes
// first where columns are few.
std::string Line(const v1::Job& job, std::vector<std::string> parts,
                 const ProgressStyle& style) {
  if (!style.bar || job.steps() <= 0) return absl::StrJoin(parts, "  ");
  int columns = kBarColumns;
  if (style.columns > 0) {
    const int taken = DisplayWidth(absl::StrJoin(parts, "  "));
    // Brackets and two blanks.
    columns = std::min(columns, style.columns - taken - 4);
  }
  if (columns >= kLeastBarColumns) {
    parts.insert(parts.begin() + 1,
                 Bar(ShareDone(job), columns, style.unicode));
  }
  return absl::StrJoin(parts, "  ");
}

}  // namespace

std::optional<absl::Duration> TimeLeft(const v1::Job& job) {
  if (job.steps() <= 0 || job.step() <= 0 || !(job.samples_per_second() > 0)) {
    return std::nullopt;
  }
  const double samples = static_cast<double>(job.steps() - job.step()) *
                         static_cast<double>(job.spec().train().batch());
  return absl::Seconds(std::max(0.0, samples / job.samples_per_second()));
}

std::string ProgressLine(const v1::Job& job,
                         std::optional<v1::StepRecord> newest,
                         const ProgressStyle& style) {
  std::vector<std::string> parts = {absl::StrCat("job ", job.id())};
  if (job.state() != v1::JOB_STATE_RUNNING) {
    parts.emplace_back(JobStateName(job.state()));
    if (!job.why().empty()) parts.push_back(FirstClause(job.why()));
    return absl::StrJoin(parts, "  ");
  }
  if (job.step() == 0 && !Computes(job)) {
    parts.push_back(job.phase().empty() ? "starting" : PhaseText(job));
    return Line(job, std::move(parts), style);
  }
  parts.push_back(
      absl::StrCat(StepName(job), " ", job.step(),
                   job.steps() > 0 ? absl::StrCat("/", job.steps()) : ""));
  if (job.samples_per_second() > 0) {
    parts.push_back(
        absl::StrCat(HumanRate(job.samples_per_second()), " samples/s"));
  }
  if (newest.has_value()) {
    parts.push_back(newest->skipped()
                        ? std::string("skipped")
                        : absl::StrCat("loss ", HumanLoss(newest->loss())));
  }
  if (!Computes(job) && !job.phase().empty()) {
    parts.push_back(PhaseText(job));
  } else if (const auto left = TimeLeft(job); left.has_value()) {
    parts.push_back(absl::StrCat(HumanDuration(*left), " left"));
  }
  return Line(job, std::move(parts), style);
}

bool PlainProgress::OnProgress(const v1::Job& job, Instant now) {
  const int64_t tenth = static_cast<int64_t>(ShareDone(job) * 10);
  // A number in a reason that moves is no change.
  std::string why = Computes(job) ? "" : FirstClause(job.why());
  std::erase_if(why, absl::ascii_isdigit);
  const bool changed = !printed_ || job.state() != state_ ||
                       job.phase() != phase_ || why != why_;
  const bool due = tenth > tenth_ ||
                   (job.step() > step_ && now - printed_at_ >= kPlainPeriod);
  if (!changed && !due) return false;
  printed_ = true;
  printed_at_ = now;
  state_ = job.state();
  phase_ = job.phase();
  why_ = std::move(why);
  step_ = job.step();
  tenth_ = tenth;
  return true;
}

namespace {

// after: sequence number of the last one that was noted; moves on.
absl::Status NoteEvents(const CommandContext& context, int64_t id,
                        int64_t& after) {
  for (;;) {
    PACELINE_ASSIGN_OR_RETURN(const v1::GetEventsResponse page,
                              context.client.GetEvents(id, after));
    const int64_t before = after;
    for (const v1::JobEvent& event : page.events()) {
      // One that is not stored yet has no number and comes again.
      if (event.sequence() <= after) continue;
      after = event.sequence();
      context.console.Note(
          absl::StripTrailingAsciiWhitespace(RenderEvent(event)));
    }
    if (after == before) return absl::OkStatus();
  }
}

}  // namespace

absl::Status WatchJob(const CommandContext& context, int64_t id,
                      std::optional<absl::Duration> timeout, bool events,
                      v1::Job& last) {
  // Fast enough to look alive, slow enough to cost nothing.
  constexpr absl::Duration kPollPeriod = absl::Milliseconds(500);
  Console& console = context.console;
  const ProgressStyle style = {.bar = console.live(),
                               .unicode = console.unicode(),
                               .columns = console.columns() - 1};
  PlainProgress plain;
  last.set_id(id);
  std::optional<v1::StepRecord> newest;
  int64_t after_step = 0;
  int64_t after_event = 0;
  absl::StatusOr<v1::Job> job;
  const auto ask = [&]() -> absl::Status {
    job = context.client.GetJob(id, 2, after_step);
    if (!job.ok() || !events) return job.status();
    return NoteEvents(context, id, after_event);
  };
  const auto take = [&] {
    if (job->step() < last.step()) {  // what was said before is undone
      console.Note("job ", id, " begins again at ", StepName(*job), " ",
                   job->step(), " (was at ", last.step(),
                   "): paceline job events ", id, " says why");
      newest.reset();
      job->clear_curve();
      after_step = 0;
    }
    if (!job->curve().empty()) {
      newest = *job->curve().rbegin();
      after_step = newest->step();
    }
    if (console.live()) {
      console.Redraw(ProgressLine(*job, newest, style));
    } else if (!HasEnded(job->state()) &&
               plain.OnProgress(*job, context.clock.Now())) {
      console.Note(ProgressLine(*job, newest, style));
    }
    last = *std::move(job);
    return HasEnded(last.state());
  };
  const absl::Status end = WaitUntil(
      context, {.period = kPollPeriod, .timeout = timeout}, ask, take);
  console.EndLive();
  return end;
}

namespace {

// How soon Ctrl-C and another size of the terminal are seen.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// An update comes every second.
constexpr absl::Duration kSilence = absl::Seconds(4);
constexpr absl::Duration kPause = absl::Milliseconds(500);
constexpr int kPlotPoints = 200;  // more than a terminal has columns

// Everything that is to be seen, at one moment.
struct Moving {
  MeshView mesh;
  const v1::MeshUpdate* update = nullptr;  // null: none has come
  std::string away;              // why there is none; empty: there need not be
  std::string away_before = {};  // at the moment before
};

// Calls `show` with every update, and at least every kLook, until the user
// leaves or `show` returns false.  Outlasts a coordinator that goes away after
// it has answered once.
// Errors: those of ControlClient::WatchMesh(), and of `show`, and
//         FailedPrecondition  the output cannot be written
Outcome FollowMesh(
    const CommandContext& context,
    absl::FunctionRef<absl::StatusOr<bool>(const Moving&)> show) {
  Moving moving;
  v1::MeshUpdate update;  // of one message, or of several
  bool answered = false;
  for (;;) {
    absl::StatusOr<std::unique_ptr<MeshStream>> stream =
        context.client.WatchMesh();
    absl::Status status = stream.status();
    Instant heard = context.clock.Now();
    update.Clear();
    while (status.ok()) {
      if (context.pauser.Sleep(absl::ZeroDuration())) return kExitInterrupted;
      const auto next = (*stream)->Next(kLook);
      status = next.status();
      if (!status.ok()) break;
      if (next->has_value()) {
        update.clear_more();
        update.MergeFrom(**next);
        if (update.more()) continue;
      }
      moving.update = next->has_value() ? &update : nullptr;
      const absl::Duration silent = context.clock.Now() - heard;
      if (moving.update != nullptr) {
        moving.away.clear();
        answered = true;
        heard = context.clock.Now();
        moving.mesh.Merge(*moving.update);
      } else if (silent > kSilence) {
        moving.away = absl::StrCat("the coordinator has said nothing for ",
                                   HumanDuration(silent));
      }
      PACELINE_ASSIGN_OR_RETURN(const bool more, show(moving));
      moving.away_before = moving.away;
      if (moving.update != nullptr) update.Clear();
      if (context.console.broken()) {
        return FailedPrecondition("cannot write to standard output");
      }
      if (!more) return kExitOk;
    }
    if (!answered || !absl::IsUnavailable(status)) return status;
    moving.update = nullptr;
    moving.away =
        absl::StrCat("the coordinator does not answer; trying again (",
                     status.message(), ")");
    PACELINE_RETURN_IF_ERROR(show(moving).status());
    moving.away_before = moving.away;
    if (context.pauser.Sleep(kPause)) return kExitInterrupted;
  }
}

// The terminal's other screen, while this lives.
class Screen {
 public:
  explicit Screen(Console& console) : console_(console) {
    console_.Print(std::string("\x1b[?1049h\x1b[?25l\x1b[?7l"));  // no cursor
  }
  ~Screen() {
    console_.Print(std::string("\x1b[?7h\x1b[?25h\x1b[?1049l"));
    console_.Flush();
  }
  Screen(const Screen&) = delete;

  // Whether the terminal has another size than at the last Draw().
  bool resized() const {
    const ScreenSize now = console_.screen_size();
    return now.columns != size_.columns || now.rows != size_.rows;
  }

  void Draw(const std::vector<ScreenLine>& lines) {
    size_ = console_.screen_size();
    std::string text = "\x1b[H";
    for (size_t i = 0; i < lines.size(); ++i) {
      const ScreenLine& line = lines[i];
      absl::StrAppend(&text, i > 0 ? "\n" : "", line.bad ? "\x1b[31m" : "",
                      line.text, line.bad ? "\x1b[0m" : "", "\x1b[K");
    }
    console_.Print(absl::StrCat(text, "\x1b[J"));
    console_.Flush();
  }

 private:
  Console& console_;
  ScreenSize size_;
};

// A line when the coordinator falls silent, and one when it is back.
void SayAway(const Moving& moving, Console& console) {
  if (moving.away.empty() == moving.away_before.empty()) return;
  console.Note(moving.away.empty() ? "the coordinator answers again"
                                   : moving.away);
}

// A line for each change that somebody may want to read, where nothing can be
// redrawn.
class ChangeLines {
 public:
  explicit ChangeLines(Console& console, const Clock& clock)
      : console_(console), clock_(clock) {}

  void Show(const Moving& moving) {
    SayAway(moving, console_);
    if (moving.update == nullptr) return;
    ShowWorkers(moving);
    if (std::exchange(begun_, true)) {
      ShowEvents(moving);
    } else {
      for (const ScreenLine& line : RenderTop(moving.mesh, "", {})) {
        console_.Print(absl::StrCat(line.text, "\n"));
      }
    }
    for (const v1::Job& job : moving.update->jobs()) {
      if (!jobs_[job.id()].OnProgress(job, clock_.Now())) continue;
      if (moving.update->whole()) continue;
      console_.Print(
          absl::StrCat(ClockText(moving.update->unix_ms()), "  ",
                       ProgressLine(job, std::nullopt, ProgressStyle{}), "\n"));
    }
    console_.Flush();
  }

 private:
  void ShowWorkers(const Moving& moving) {
    for (const auto& [id, worker] : moving.mesh.workers) {
      const std::string state = StateText(worker);
      const std::string before = std::exchange(states_[id], state);
      if (before.empty() || before == state) continue;
      console_.Print(absl::StrCat(ClockText(moving.mesh.unix_ms), "  worker ",
                                  Printable(worker.registration().name()),
                                  " is ", state, "\n"));
    }
  }
  void ShowEvents(const Moving& moving) {
    // A whole update has those of before too.
    for (const v1::JobEvent& event : moving.update->events()) {
      if (moving.update->whole() && event.unix_ms() <= last_ms_) continue;
      console_.Print(absl::StrCat(RenderMeshEvent(event), "\n"));
    }
    if (!moving.mesh.events.empty()) {
      last_ms_ = moving.mesh.events.back().unix_ms();
    }
  }

  Console& console_;
  const Clock& clock_;
  bool begun_ = false;
  int64_t last_ms_ = 0;  // of the newest event
  std::map<int64_t, std::string> states_;
  std::map<int64_t, PlainProgress> jobs_;
};

Outcome TopOnScreen(const CommandContext& context) {
  std::optional<Screen> screen;  // after the first answer
  return FollowMesh(context, [&](const Moving& moving) -> absl::StatusOr<bool> {
    if (!screen.has_value()) screen.emplace(context.console);
    if (moving.update != nullptr || moving.away != moving.away_before ||
        screen->resized()) {
      screen->Draw(
          RenderTop(moving.mesh, moving.away, context.console.screen_size()));
    }
    return true;
  });
}

// Shows what `render` makes of the mesh, again and again until Ctrl-C: on a
// terminal in place, else one after the other where it differs.  `render` is
// called after each update, and says for itself what is of interest.
//
// Errors of `render` end it.
Outcome WatchMesh(const CommandContext& context,
                  absl::FunctionRef<absl::StatusOr<std::string>(
                      const MeshView& mesh, const v1::MeshUpdate& update)>
                      render) {
  Console& console = context.console;
  if (!console.table()) {
    return InvalidArgument(
        "--watch shows tables; 'job events --follow -o jsonl' and 'top -o "
        "json' are for programs");
  }
  std::optional<Screen> screen;
  std::string shown;
  const auto show = [&](const Moving& moving) -> absl::StatusOr<bool> {
    std::string text = shown;
    if (moving.update != nullptr) {
      PACELINE_ASSIGN_OR_RETURN(text, render(moving.mesh, *moving.update));
    }
    const bool same = text == shown && moving.away == moving.away_before;
    if (!console.screen()) {
      SayAway(moving, console);
      if (text != shown) console.Print(absl::StrCat(text, "\n"));
      console.Flush();
    } else if (!screen.has_value() || !same || screen->resized()) {
      if (!screen.has_value()) screen.emplace(console);
      const ScreenSize size = console.screen_size();
      std::vector<ScreenLine> lines;
      if (!moving.away.empty()) lines.push_back({moving.away, true});
      for (const absl::string_view line : absl::StrSplit(text, '\n')) {
        lines.push_back({std::string(line)});
      }
      if (std::ssize(lines) > size.rows) lines.resize(size.rows);
      for (ScreenLine& line : lines) {
        line.text = CutToWidth(line.text, size.columns);
      }
      screen->Draw(lines);
    }
    shown = std::move(text);
    return true;
  };
  return FollowMesh(context, show);
}

}  // namespace

Outcome TopCommand(const CommandContext& context) {
  Console& console = context.console;
  if (!console.table()) {
    return FollowMesh(context,
                      [&](const Moving& moving) -> absl::StatusOr<bool> {
                        if (moving.update == nullptr) return true;
                        console.Print(MessageDocument(*moving.update));
                        return false;
                      });
  }
  if (console.screen()) return TopOnScreen(context);
  ChangeLines lines(console, context.clock);
  return FollowMesh(context, [&](const Moving& moving) {
    lines.Show(moving);
    return absl::StatusOr<bool>(true);
  });
}

Outcome WatchJobsCommand(const CommandContext& context,
                         const JobFilter& filter) {
  return WatchMesh(context, [&](const MeshView& mesh, const auto&) {
    v1::ListJobsResponse jobs = mesh.Jobs();
    KeepWanted(filter, jobs);
    std::string text = RenderJobs(jobs, context.console.wide());
    int64_t more = -std::ssize(mesh.jobs);
    for (const auto& [state, count] : mesh.job_counts) more += count;
    if (more > 0) absl::StrAppend(&text, more, " more are not watched\n");
    return absl::StatusOr<std::string>(text);
  });
}

Outcome WatchNodesCommand(const CommandContext& context) {
  std::string text;
  return WatchMesh(
      context, [&](const MeshView& mesh, const v1::MeshUpdate& update) {
        // Only a screen shows how the silence of those that are gone grows.
        if (context.console.screen() || update.whole() ||
            update.workers_size() + update.forgotten_workers_size() > 0) {
          text = RenderWorkers(mesh.Workers());
        }
        return absl::StatusOr<std::string>(text);
      });
}

Outcome WatchOneJobCommand(const CommandContext& context, int64_t id) {
  std::string text;
  return WatchMesh(
      context,
      [&](const MeshView&,
          const v1::MeshUpdate& update) -> absl::StatusOr<std::string> {
        // A job may be one of those that the updates leave out.
        const bool changed =
            update.whole() ||
            absl::c_linear_search(update.forgotten_jobs(), id) ||
            absl::c_any_of(update.jobs(),
                           [id](const v1::Job& job) { return job.id() == id; });
        if (!changed) return text;
        PACELINE_ASSIGN_OR_RETURN(const v1::Job job,
                                  context.client.GetJob(id, kPlotPoints, 0));
        text = RenderJob(job, {.unicode = context.console.unicode()});
        return text;
      });
}

}  // namespace paceline
