#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/study/study.h"
#include "client/values/text.h"
#include "core/base/text.h"

namespace paceline {
namespace {

constexpr int kPlotColumns = 50;
constexpr int kPlotLabelColumns = 36;
constexpr size_t kMostCurves = 16;

// The spread of a measure over a trial's jobs; in a race its newest job's.
// Nothing: no job has a value.
std::optional<ValueSpread> SpreadIn(const StudyResults& results, size_t trial,
                                    const Measure& measure) {
  std::vector<double> values;
  for (const TrialJob& job : results.jobs) {
    if (job.trial != trial || job.has_gone_on) continue;
    const std::optional<double> value = ValueIn(job.document, measure);
    if (value.has_value()) values.push_back(*value);
  }
  return values.empty() ? std::nullopt : std::optional(SpreadOf(values));
}

// The text that is measured; empty for other measures.  A trial has one plan.
std::string TextOf(const StudyResults& results, size_t trial,
                   const Measure& measure) {
  for (const TrialJob& job : results.jobs) {
    const bool is_it = job.trial == trial && measure.unit == Unit::kText;
    if (is_it) return job.document.value(measure.name, "");
  }
  return "";
}

std::string SettingsText(const std::vector<Setting>& settings) {
  return Joined(settings, ", ", [](const Setting& each) {
    return absl::StrCat(each.key, " ", each.value);
  });
}

std::string PublishedCell(const Study& study, const Trial& trial) {
  for (const PublishedResult& row : study.published) {
    if (IsOf(row, trial)) return SettingsText(row.says);
  }
  return "";
}

// Says why jobs of the trial have no result, each reason once.
std::string WhyOf(const StudyResults& results, size_t trial) {
  std::vector<std::string> reasons;
  for (const TrialJob& job : results.jobs) {
    if (job.trial != trial || job.why.empty()) continue;
    if (!absl::c_linear_search(reasons, job.why)) reasons.push_back(job.why);
  }
  return absl::StrJoin(reasons, "; ");
}

// How many of its jobs have succeeded; in a race to which step.
std::string DoneText(const StudyResults& results, size_t trial) {
  int64_t jobs = 0, steps = 0;
  for (const TrialJob& job : results.jobs) {
    if (job.trial != trial || job.state != v1::JOB_STATE_SUCCEEDED) continue;
    ++jobs;
    steps = job.spec.train.steps;
  }
  return results.study.race ? absl::StrCat(steps)
                            : absl::StrCat(jobs, "/", results.study.repeat);
}

// The columns of a measure.
std::vector<std::string> TitlesOf(const Study& study, const Measure& measure,
                                  bool plain) {
  if (!plain || study.repeat == 1) return {measure.name};
  return {measure.name, absl::StrCat(measure.name, " least"),
          absl::StrCat(measure.name, " most")};
}

void AddCells(const StudyResults& results, size_t trial, const Measure& measure,
              bool plain, std::vector<std::string>& row) {
  const std::optional<ValueSpread> spread = SpreadIn(results, trial, measure);
  if (measure.unit == Unit::kText) {
    row.push_back(TextOf(results, trial, measure));
  } else if (!spread.has_value()) {
    row.resize(row.size() + TitlesOf(results.study, measure, plain).size());
  } else if (!plain) {
    row.push_back(SpreadText(*spread, measure.unit));
  } else {
    row.push_back(HumanNumber(spread->median, 6));
    if (results.study.repeat == 1) return;
    row.push_back(HumanNumber(spread->least, 6));
    row.push_back(HumanNumber(spread->most, 6));
  }
}

Section TrialsSection(const StudyResults& results, bool plain) {
  Section section = {.name = "trials",
                     .title = results.study.repeat > 1
                                  ? "Trials: median (least..greatest) of the "
                                    "seeds"
                                  : "Trials",
                     .leads = true};
  for (const PublishedResult& row : results.study.published) {
    section.notes.push_back(absl::StrCat(SettingsText(row.where), ": ",
                                         SettingsText(row.says),
                                         " is published. ", row.note));
  }
  const bool grid = !results.study.vary.empty();
  for (const Axis& axis : results.study.vary) {
    section.titles.push_back(axis.key);
  }
  if (!grid) section.titles.emplace_back("trial");
  for (const Measure& measure : results.study.measure) {
    for (std::string& title : TitlesOf(results.study, measure, plain)) {
      section.titles.push_back(std::move(title));
    }
  }
  const bool jobs = !results.study.plan.has_value();
  const bool published = !results.study.published.empty();
  if (published) section.titles.emplace_back("published");
  if (jobs) section.titles.emplace_back(results.study.race ? "steps" : "jobs");
  section.titles.emplace_back("why");
  for (size_t t = 0; t < results.trials.size(); ++t) {
    const Trial& trial = results.trials[t];
    std::vector<std::string>& row = section.rows.emplace_back();
    for (const Setting& each : trial.settings) {
      if (grid) row.push_back(each.value);
    }
    if (!grid) row.push_back(trial.label);
    for (const Measure& measure : results.study.measure) {
      AddCells(results, t, measure, plain, row);
    }
    if (published) row.push_back(PublishedCell(results.study, trial));
    if (jobs) row.push_back(DoneText(results, t));
    row.push_back(WhyOf(results, t));
  }
  return section;
}

Section JobsSection(const StudyResults& results) {
  Section section = {.name = "jobs",
                     .title = "Jobs",
                     .titles = {"trial", "seed", "job", "state"}};
  for (const Measure& measure : results.study.measure) {
    section.titles.push_back(measure.name);
  }
  section.titles.emplace_back("why");
  for (const TrialJob& job : results.jobs) {
    std::vector<std::string>& row = section.rows.emplace_back();
    row = {results.trials[job.trial].label, absl::StrCat(job.spec.train.seed),
           job.id > 0 ? absl::StrCat(job.id) : "",
           job.state == v1::JOB_STATE_UNSPECIFIED ? "none"
                                                  : JobStateName(job.state)};
    for (const Measure& measure : results.study.measure) {
      const std::optional<double> value = ValueIn(job.document, measure);
      row.push_back(value.has_value() ? HumanNumber(*value, 6) : "");
    }
    row.push_back(job.why);
  }
  return section;
}

std::string MeasureChart(const StudyResults& results, const Measure& measure) {
  BarChart chart = {.what = measure.name,
                    .axis = absl::StrCat(measure.name, ", median"),
                    .legend = {measure.name}};
  for (size_t t = 0; t < results.trials.size(); ++t) {
    const std::optional<ValueSpread> spread = SpreadIn(results, t, measure);
    chart.rows.push_back(results.trials[t].label);
    if (!spread.has_value() || !std::isfinite(spread->median) ||
        spread->median < 0) {
      continue;
    }
    chart.bars.push_back(
        {t, 0, spread->median, 0, SpreadText(*spread, measure.unit)});
  }
  return RenderBarChart(chart);
}

// The loss of the first seed of each trial.
std::string LossChart(const StudyResults& results) {
  LineChart chart = {.what = "training loss over steps", .x_name = "step"};
  for (const TrialJob& job : results.jobs) {
    const Document curve = job.document.value("loss", Document::array());
    if (job.repeat > 0 || job.trial >= kMostCurves) continue;
    chart.lines.resize(std::max(chart.lines.size(), job.trial + 1));
    ChartLine& line = chart.lines[job.trial];
    line.name = results.trials[job.trial].label;
    for (const Document& point : curve) {
      line.points.emplace_back(point["step"].get<double>(),
                               point["value"].get<double>());
    }
  }
  return RenderLineChart(chart);
}

std::string FirstPlot(const StudyResults& results, bool unicode) {
  const auto measure = absl::c_find_if(
      results.study.measure,
      [](const Measure& each) { return each.unit != Unit::kText; });
  if (measure == results.study.measure.end()) return "";
  std::vector<std::pair<std::string, ValueSpread>> plotted;
  for (size_t t = 0; t < results.trials.size(); ++t) {
    const std::optional<ValueSpread> spread = SpreadIn(results, t, *measure);
    if (spread.has_value()) {
      plotted.emplace_back(results.trials[t].label, *spread);
    }
  }
  return PlotSpreads(measure->name, plotted, measure->unit, unicode);
}

}  // namespace

std::string PlotSpreads(
    const std::string& title,
    const std::vector<std::pair<std::string, ValueSpread>>& spreads, Unit unit,
    bool unicode) {
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  int width = 0;
  for (const auto& [label, spread] : spreads) {
    least = std::min(least, spread.least);
    if (std::isfinite(spread.most)) most = std::max(most, spread.most);
    width = std::max(width, DisplayWidth(Printable(label)));
  }
  if (least > most) return "";
  width = std::min(width, kPlotLabelColumns);
  const auto column = [&](double value) {
    if (!(most > least)) return 0;
    const double part = std::min(1.0, (value - least) / (most - least));
    return static_cast<int>(std::lround(part * (kPlotColumns - 1)));
  };
  std::string text = absl::StrCat(title, ", ", ValueText(least, unit), " to ",
                                  ValueText(most, unit), "\n");
  for (const auto& [label, spread] : spreads) {
    const std::string shown = CutToWidth(Printable(label), width);
    absl::StrAppend(&text, shown, std::string(width - DisplayWidth(shown), ' '),
                    " |");
    for (int c = 0; c <= column(spread.most); ++c) {
      const bool inside = c >= column(spread.least);
      absl::StrAppend(&text, c == column(spread.median) ? "o"
                             : !inside                  ? " "
                             : unicode                  ? "\u2500"
                                                        : "-");
    }
    absl::StrAppend(&text, "  ", SpreadText(spread, unit), "\n");
  }
  return text;
}

std::string RenderStudy(const StudyResults& results, bool unicode) {
  const Section section = TrialsSection(results, /*plain=*/false);
  std::vector<std::string> titles = section.titles;
  const size_t first = std::max<size_t>(1, results.study.vary.size());
  for (size_t i = 0; i < results.study.measure.size(); ++i) {
    titles[first + i] = absl::StrCat(">", titles[first + i]);
  }
  const bool all_well = absl::c_all_of(
      section.rows, [](const auto& row) { return row.back().empty(); });
  if (all_well) titles.pop_back();
  Table table(std::move(titles));
  for (std::vector<std::string> row : section.rows) {
    if (all_well) row.pop_back();
    absl::c_replace(row, std::string(), std::string("-"));
    table.AddRow(std::move(row));
  }
  const std::string plot = FirstPlot(results, unicode);
  return absl::StrCat(table.Render(), section.notes.empty() ? "" : "\n",
                      absl::StrJoin(section.notes, "\n"),
                      section.notes.empty() ? "" : "\n",
                      plot.empty() ? "" : "\n", plot);
}

Document StudyDocument(const StudyResults& results) {
  const Study& study = results.study;
  Document trials = Document::array();
  for (size_t t = 0; t < results.trials.size(); ++t) {
    Document settings = Document::object();
    for (const Setting& each : results.trials[t].settings) {
      settings[each.key] = each.value;
    }
    Document values = Document::object();
    for (const Measure& measure : study.measure) {
      const std::optional<ValueSpread> spread = SpreadIn(results, t, measure);
      values[measure.name] = spread.has_value()
                                 ? Document{{"median", spread->median},
                                            {"least", spread->least},
                                            {"most", spread->most},
                                            {"jobs", spread->count}}
                                 : OrNull(TextOf(results, t, measure));
    }
    Document jobs = Document::array();
    for (const TrialJob& job : results.jobs) {
      if (job.trial != t) continue;
      Document numbers = Document::object();
      for (const Measure& measure : study.measure) {
        const std::optional<double> value = ValueIn(job.document, measure);
        numbers[measure.name] =
            NullUnless(value.has_value(), value.value_or(0));
      }
      jobs.push_back(
          {{"seed", job.spec.train.seed},
           {"job", OrNull(job.id)},
           {"steps", OrNull(job.spec.train.steps)},
           {"state", NullUnless(job.state != v1::JOB_STATE_UNSPECIFIED,
                                JobStateName(job.state))},
           {"why", OrNull(job.why)},
           {"values", std::move(numbers)}});
    }
    trials.push_back({{"label", results.trials[t].label},
                      {"settings", std::move(settings)},
                      {"values", std::move(values)},
                      {"jobs", std::move(jobs)}});
  }
  Document winner;
  if (study.race.has_value()) {
    if (const std::optional<size_t> job = WinnerOf(results.jobs)) {
      winner = results.trials[results.jobs[*job].trial].label;
    }
  }
  return {{"name", study.name},
          {"winner", winner},
          {"exclusive", Document(study.exclusive)},
          {"repeat", study.repeat},
          {"trials", std::move(trials)}};
}

Report StudyReport(const StudyResults& results, bool plain) {
  Report report = {.title = absl::StrCat("Study ", results.study.name)};
  report.sections = {TrialsSection(results, plain), JobsSection(results)};
  if (results.study.plan.has_value()) report.sections.pop_back();
  for (const Measure& measure : results.study.measure) {
    report.sections[0].charts.push_back(MeasureChart(results, measure));
  }
  const std::string losses = LossChart(results);
  if (!losses.empty()) report.sections[1].charts.push_back(losses);
  return report;
}

}  // namespace paceline
