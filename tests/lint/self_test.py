#!/usr/bin/env python3
"""The lint checks catch what they are for, and nothing else."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import dashboards
import formats
import include_rule
import shape
import thread_safety
import words
from tree import Tree


class LintTest(unittest.TestCase):
    """Each test writes a small tree and looks at what a check says of it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()

    def write(self, name, text, executable=False):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if executable else 0o644)

    def said(self, check, *arguments):
        return [str(p) for p in check(Tree(self.root), *arguments)]

    def assert_clean(self, check):
        self.assertEqual(self.said(check), [])

    def assert_says(self, check, *words):
        said = self.said(check)
        self.assertEqual(len(said), 1, said)
        for word in words:
            self.assertIn(word, said[0])


class IncludeRule(LintTest):
    # (file, header that it may not include): one line a rule.
    REFUSED = [
        ("core/base/a.cc", "<spdlog/spdlog.h>"),
        ("core/base/a.cc", '"core/model/a.h"'),
        ("core/model/a.cc", "<torch/torch.h>"),
        ("core/plan/a.cc", '"core/rpc/channel.h"'),
        ("core/schedule/a.cc", '"core/obs/log.h"'),
        ("core/optim/a.cc", "<sys/socket.h>"),
        ("core/cluster/a.cc", "<grpcpp/grpcpp.h>"),
        ("core/os/a.cc", '"core/model/a.h"'),
        ("core/transfer/a.h", "<xxhash.h>"),
        ("core/transfer/a.cc", "<grpcpp/grpcpp.h>"),
        ("core/rpc/a.cc", "<yaml-cpp/yaml.h>"),
        ("core/trust/certificates.cc", "<grpcpp/grpcpp.h>"),
        ("core/obs/a.h", "<prometheus/registry.h>"),
        ("core/obs/a.h", "<httplib.h>"),
        ("core/obs/a.cc", "<grpcpp/grpcpp.h>"),
        ("coordinator/brain.cc", '"coordinator/store/store.h"'),
        ("coordinator/brain.cc", '"coordinator/rpc/service.h"'),
        ("coordinator/brain.h", "<grpcpp/grpcpp.h>"),
        ("coordinator/brain.cc", "<sqlite3.h>"),
        ("coordinator/brain.cc", '"worker/pipeline/link.h"'),
        ("coordinator/store/a.cc", "<grpcpp/grpcpp.h>"),
        ("coordinator/rpc/a.cc", "<sqlite3.h>"),
        ("worker/control/agent.cc", "<torch/torch.h>"),
        ("worker/control/agent.h", '"worker/torch/engine.h"'),
        ("worker/control/agent.cc", '"paceline/v1/coordinator.grpc.pb.h"'),
        ("worker/transport/a.cc", "<ATen/ATen.h>"),
        ("worker/torch/a.cc", "<grpcpp/grpcpp.h>"),
        ("worker/torch/a.cc", '"worker/transport/a.h"'),
        ("worker/data/a.cc", "<sqlite3.h>"),
        ("coordinator/brain.cc", '"paceline/v1/control.grpc.pb.h"'),
        ("core/plan/a.cc", '"paceline/v1/types.pb.h"'),
        ("core/weights/a.cc", "<torch/torch.h>"),
        ("worker/options.cc", "<grpcpp/grpcpp.h>"),
        ("client/study/a.cc", "<yaml-cpp/yaml.h>"),
        ("client/commands/a.cc", "<yaml-cpp/yaml.h>"),
        ("client/commands/a.cc", "<CLI/CLI.hpp>"),
        ("client/commands/a.cc", "<grpcpp/channel.h>"),
        ("client/commands/a.cc", '"client/rpc/grpc_control_client.h"'),
        ("client/options.cc", '"client/rpc/grpc_control_client.h"'),
        ("client/files/a.cc", "<grpcpp/channel.h>"),
        ("client/files/a.cc", '"client/render/a.h"'),
        ("client/values/a.cc", '"client/files/a.h"'),
        ("client/render/a.cc", "<nlohmann/json.hpp>"),
        ("client/rpc/a.cc", "<CLI/CLI.hpp>"),
        ("client/rpc/a.cc", "<yaml-cpp/yaml.h>"),
        ("tests/core/plan/a_test.cc", "<grpcpp/grpcpp.h>"),
        ("tests/worker/a_test.cc", "<torch/torch.h>"),
        ("tests/cluster/a_test.cc", '"worker/torch/engine.h"'),
    ]
    ALLOWED = [
        ("core/transfer/a.cc", "<xxhash.h>"),
        ("core/plan/a.cc", '"core/model/a.h"'),
        ("core/plan/a.cc", '"absl/status/status.h"'),
        ("core/plan/a.cc", "<vector>"),
        ("core/rpc/a.cc", '"paceline/v1/types.pb.h"'),
        ("core/obs/a.cc", "<spdlog/spdlog.h>"),
        ("coordinator/store/a.cc", "<sqlite3.h>"),
        ("coordinator/main.cc", '"coordinator/store/store.h"'),
        ("worker/control/a.cc", '"paceline/v1/coordinator.pb.h"'),
        ("worker/control/a.cc", '"core/rpc/convert/job_convert.h"'),
        ("worker/torch/a.cc", "<torch/torch.h>"),
        ("worker/main.cc", '"worker/torch/engine.h"'),
        ("worker/data/a.cc", "<zlib.h>"),
        ("worker/options.cc", "<CLI/CLI.hpp>"),
        ("client/files/a.cc", "<yaml-cpp/yaml.h>"),
        ("client/commands/a.cc", '"paceline/v1/control.pb.h"'),
        ("client/commands/a.cc", '"core/rpc/convert/job_convert.h"'),
        ("tests/core/plan/a_test.cc", '"gtest/gtest.h"'),
        ("tests/torch/a_test.cc", "<torch/torch.h>"),
    ]

    def setUp(self):
        super().setUp()
        for _, header in self.REFUSED + self.ALLOWED:
            if include_rule.kind_of(header[1:-1]) == "own":
                self.write(header[1:-1], "#pragma once\n")

    def include(self, path, header):
        self.write(path, f"int before;\n  #  include {header}\n")

    def test_each_refused_include_is_caught(self):
        for path, header in self.REFUSED:
            with self.subTest(path=path, header=header):
                self.include(path, header)
                self.assert_says(include_rule.check, f"{path}:2:",
                                 header[1:-1], "include rule")
                self.write(path, "")

    def test_each_allowed_include_passes(self):
        for path, header in self.ALLOWED:
            with self.subTest(path=path, header=header):
                self.include(path, header)
                self.assert_clean(include_rule.check)

    def test_every_rule_refuses_something(self):
        """A row that lets everything through is a hole, main.cc apart."""
        refused = {id(include_rule.rule_of(p)[0]) for p, _ in self.REFUSED}
        for pattern, libraries, _ in include_rule.RULES:
            if libraries != "any" and not pattern.startswith("tests/"):
                self.assertIn(id(libraries), refused, pattern)

    def test_unknown_headers_are_caught(self):
        for header in ("<boost/asio.hpp>", '"link.h"', '"../link.h"'):
            with self.subTest(header=header):
                self.include("worker/a.cc", header)
                self.assert_says(include_rule.check, "no header")

    def test_a_header_of_ours_must_exist(self):
        self.include("worker/a.cc", '"worker/nowhere.h"')
        self.assert_says(include_rule.check, "does not exist")

    def test_a_header_of_ours_in_angle_brackets_is_caught(self):
        self.include("worker/a.cc", "<worker/pipeline/link.h>")
        self.assert_says(include_rule.check, "quotes")

    def test_a_folder_without_a_rule_is_caught(self):
        self.write("core/banana/a.cc", "")
        self.assert_says(include_rule.check, "no rule")


class Shape(LintTest):
    def test_a_header_needs_pragma_once(self):
        self.write("core/base/a.h", "#ifndef A_H\n#endif\n")
        self.assert_says(shape.check_header, "#pragma once")

    def test_own_header_comes_first(self):
        self.write("core/base/a.h", "#pragma once\n")
        self.write("core/base/a.cc",
                   '#include <vector>\n#include "core/base/a.h"\n')
        self.assert_says(shape.check_header, "core/base/a.cc:1:", "vector")
        self.write("core/base/a.cc",
                   '#include "core/base/a.h"\n\n#include <vector>\n')
        self.assert_clean(shape.check_header)

    def test_a_file_of_1001_lines_is_caught(self):
        self.write("core/base/a.h", "#pragma once\n" + "\n" * 999)
        self.assert_clean(shape.check_length)
        self.write("core/base/a.h", "#pragma once\n" + "\n" * 1000)
        self.assert_says(shape.check_length, "1001 lines")

    def test_a_function_of_81_lines_is_caught(self):
        for head, indent in (("int f(\n    int a) {\n", ""),
                             ("class C {\n public:\n  int f(\n"
                              "      int a) {\n", "  ")):
            def body(lines, head=head, indent=indent):
                return (f"namespace n {{\n\n{head}" +
                        f"{indent}  a++;\n" * (lines - 3) +
                        f"{indent}}}\n}}  // namespace n\n")
            with self.subTest(head=head):
                self.write("core/base/a.cc", body(80))
                self.assert_clean(shape.check_length)
                self.write("core/base/a.cc", body(81))
                self.assert_says(shape.check_length, "81 lines")

    def test_a_long_class_or_table_is_no_function(self):
        self.write("core/base/a.cc", "struct S {\n" + "  int a;\n" * 100 +
                   "};\n\nconst int kT[] = {\n" + "    1,\n" * 100 + "};\n")
        self.assert_clean(shape.check_length)

    def test_a_sleep_in_a_test_is_caught(self):
        for call in ("absl::SleepFor(absl::Seconds(1));", "usleep(5);",
                     "std::this_thread::sleep_for(1ms);"):
            with self.subTest(call=call):
                self.write("tests/worker/a_test.cc", f"// sleep(1)\n{call}\n")
                self.assert_says(shape.check_purity, "a_test.cc:2:")

    def test_a_sleep_in_a_test_over_sockets_is_allowed(self):
        self.write("tests/cluster/a_test.cc", "usleep(5);\n")
        self.assert_clean(shape.check_purity)

    def test_a_clock_or_lock_in_logic_is_caught(self):
        for text in ("auto t = absl::Now();", "absl::Mutex mutex_;",
                     "std::cout << 1;", 'getenv("X");'):
            with self.subTest(text=text):
                self.write("core/plan/a.cc", text)
                self.assert_says(shape.check_purity, "logic")

    def test_a_wait_for_a_time_of_day_is_caught(self):
        for text in ("m.AwaitWithTimeout(c, d);", "m.AwaitWithDeadline(c, t);",
                     "m.LockWhenWithTimeout(c, d);",
                     "m.ReaderLockWhenWithDeadline(c, t);",
                     "cv.WaitWithTimeout(&m, d);", "cv.WaitWithDeadline(&m, t);",
                     "n.WaitForNotificationWithTimeout(d);",
                     "n.WaitForNotificationWithDeadline(t);", "absl::CondVar c;",
                     "auto t = absl::Now();", "time(nullptr);",
                     "c.set_deadline(std::chrono::system_clock::now());"):
            for path in ("worker/a.cc", "tests/worker/a_test.cc"):
                with self.subTest(text=text, path=path):
                    self.write(path, text)
                    self.assert_says(shape.check_clocks, "monotonic")
                    self.write(path, "// " + text)
                    self.assert_clean(shape.check_clocks)
        self.write("tests/process/a_test.py", "end = time.time() + 5\n")
        self.assert_says(shape.check_clocks, "a_test.py:1:")
        self.write("tests/process/a_test.py", "end = time.monotonic() + 5\n")
        self.assert_clean(shape.check_clocks)

    def test_a_wait_on_the_monotonic_clock_passes(self):
        self.write("worker/a.cc", "mutex_.AwaitFor(c, d); absl::SleepFor(d);\n"
                   "cv.wait_for(lock, 1s); future.wait_for(1s);\n"
                   "context.set_deadline(DeadlineAfter(d));\n")
        self.assert_clean(shape.check_clocks)

    def test_the_top_level_is_fixed(self):
        self.write("scripts/a.py", "")
        said = self.said(shape.check_layout)
        self.assertIn("scripts: is not in the fixed top level (TOP_LEVEL)", said)

    def test_refused_folder_and_document_names_are_caught(self):
        self.write("core/README.md", "")
        self.write("core/utils/a.py", "")
        self.assert_says(shape.check_layout, "utils")
        (self.root / "core/utils/a.py").unlink()
        self.write("core/notes.md", "")
        self.assert_says(shape.check_layout, "README.md files")

    def test_folders_need_a_readme(self):
        self.write("core/base/a.cc", "")
        self.assert_says(shape.check_layout, "core: has no README.md")
        self.write("core/README.md", "")
        self.write("core/base/b.cc", "")
        self.assert_clean(shape.check_layout)
        self.write("core/base/c.cc", "")
        self.assert_says(shape.check_layout, "core/base: has no README.md")
        self.write("core/README.md", "- `base/`: below all others\n")
        self.assert_clean(shape.check_layout)

    def test_a_folder_of_many_files_is_caught(self):
        self.write("client/README.md", "")
        for number in range(24):
            self.write(f"client/{number}.py", "")
        self.assert_clean(shape.check_layout)
        self.write("client/one_more.py", "")
        self.assert_says(shape.check_layout, "client: has 26 files")

    def test_folders_that_include_each_other_are_caught(self):
        self.write("core/plan/a.h", '#include "core/round/a.h"\n')
        self.write("core/round/a.h", "")
        self.write("core/round/rules/a.h", '#include "core/round/b.h"\n')
        self.write("core/round/b.h", '#include "core/round/rules/a.h"\n')
        self.assert_clean(shape.check_mutual_includes)
        self.write("core/round/b.h", '#include "core/plan/a.h"\n')
        self.assert_says(shape.check_mutual_includes, "core/plan/a.h:1:",
                         "core/round/b.h:1")


class Words(LintTest):
    def test_a_comment_that_begins_without_a_verb_is_caught(self):
        for opener in ("Of a stage.", "Who waits.", "What it says."):
            with self.subTest(opener=opener):
                self.write("client/a.h", f"int a;\n  // {opener}\nint b;\n")
                self.assert_says(words.check_openers, "client/a.h:2:",
                                 "begin with a subject")

    def test_other_comments_pass(self):
        self.write("client/a.h", "// The times\n// Of a stage.\n"
                   "int a;  // Of a stage\n// Often.\n")
        self.assert_clean(words.check_openers)

    def test_a_reference_to_a_page_outside_the_tree_is_caught(self):
        for name in ("DESIGN" " 5", "Issue" " 22", "issue" " 7"):
            with self.subTest(name=name):
                self.write("client/README.md", f"See {name}.\n")
                self.assert_says(words.check_references, "client/README.md:1:")


class Formats(LintTest):
    def test_broken_files_are_caught(self):
        for name, text in (("a.json", "{"), ("a.yaml", "a: [1"),
                           ("a.yml", "a: b: c"), ("a.toml", "a = ")):
            with self.subTest(name=name):
                self.write(name, text)
                self.assert_says(formats.check_parse, name)
                (self.root / name).unlink()

    def test_a_configuration_key_must_be_a_flag(self):
        self.write("worker/options.cc", 'option("--listen", x);\n')
        self.write("deploy/systemd/worker.toml", '# A word = of prose.\n'
                   '# listen = "a"\n')
        self.assert_clean(formats.check_configuration)
        self.write("deploy/systemd/worker.toml", '# listne = "a"\n')
        self.assert_says(formats.check_configuration, "worker.toml:1:",
                         "--listne")

    def test_scripts_are_read_by_bash_and_shellcheck(self):
        good = "#!/usr/bin/env bash\nset -euo pipefail\necho a\n"
        self.write("a.sh", good, executable=True)
        self.write("run", good, executable=True)
        self.assert_clean(formats.check_shell)
        self.write("a.sh", good)
        self.assert_says(formats.check_shell, "not executable")
        self.write("a.sh", good + "echo $1\n", executable=True)
        self.assert_says(formats.check_shell, "shellcheck")
        self.write("a.sh", "#!/usr/bin/env bash\necho a\n", executable=True)
        self.assert_says(formats.check_shell, "pipefail")
        self.write("a.sh", good, executable=True)
        self.write("run", good + "if true\n", executable=True)
        self.assertIn("bash -n", self.said(formats.check_shell)[0])

    def test_parts_of_maintainer_scripts_are_read_too(self):
        self.write("a.postrm", "#!/bin/sh\nset -e\n#DEBHELPER#\n")
        self.assert_clean(formats.check_shell)
        self.write("a.postrm", "#!/bin/sh\nrm -rf $1\n")
        self.assert_says(formats.check_shell, "shellcheck")

    @unittest.skipUnless(formats.clang_format_decides(), "needs version 14")
    def test_clang_format_is_asked(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("core/base/a.cc", "int a;\n")
        self.assert_clean(formats.check_clang_format)
        self.write("core/base/a.cc", "int  a;\n")
        self.assert_says(formats.check_clang_format, "core/base/a.cc:1:")

    def test_units_are_verified(self):
        unit = (Path(__file__).parents[2] /
                "deploy/systemd/paceline-worker.service").read_text()
        self.write("deploy/a.service", unit)
        self.assert_clean(formats.check_systemd)
        self.write("deploy/a.service", unit + "Restrat=always\n")
        self.assert_says(formats.check_systemd, "Restrat")
        self.write("deploy/a.service", unit.replace("CapabilityBoundingSet=\n",
                                                    ""))
        self.assert_says(formats.check_systemd, "exposure")


class Dashboards(LintTest):
    def setUp(self):
        super().setUp()
        self.write("worker/control/metrics.h",
                   '  "paceline_worker_seconds_total"\n'
                   '  "paceline_worker_wait_seconds"\n')

    def dashboard(self, *expressions):
        self.write("dashboards/a.json", json.dumps({"panels": [{
            "title": "t", "panels": [{
                "title": "inner",
                "targets": [{"expr": e} for e in expressions]}]}]}))

    def dashboard_uses_all(self, name):
        self.write(name, json.dumps({"panels": [{"targets": [
            {"expr": "paceline_worker_seconds_total"},
            {"expr": "paceline_worker_wait_seconds"}]}]}))

    def test_the_same_names_on_both_sides_pass(self):
        self.dashboard("rate(paceline_worker_seconds_total[1m])",
                       "paceline_worker_wait_seconds_bucket")
        self.assert_clean(dashboards.check_metrics)

    def test_a_metric_without_a_panel_is_caught(self):
        self.dashboard("paceline_worker_seconds_total")
        self.assert_says(dashboards.check_metrics, "worker/control/metrics.h:2:",
                         "paceline_worker_wait_seconds")

    def test_a_panel_without_a_metric_is_caught(self):
        self.dashboard("paceline_worker_seconds_total",
                       "paceline_worker_wait_seconds_sum",
                       "paceline_worker_dreams_total")
        self.assert_says(dashboards.check_metrics, "dreams", "'inner'")

    def test_an_alert_counts_as_use(self):
        self.dashboard("paceline_worker_seconds_total")
        self.write("dashboards/rules.yml", "groups:\n- name: a\n  rules:\n"
                   "  - alert: A\n    expr: paceline_worker_wait_seconds > 1\n")
        self.assert_clean(dashboards.check_metrics)

    def test_expressions_are_read_by_promtool(self):
        self.dashboard('rate(a{b="$job"}[$__rate_interval])')
        self.assert_clean(dashboards.check_promtool)
        self.dashboard("rate(a[5m]")
        self.assert_says(dashboards.check_promtool, "'inner'")

    def test_configuration_and_rules_are_read_by_promtool(self):
        self.write("dashboards/prometheus.yml", "scrape_configz: []\n")
        self.assert_says(dashboards.check_promtool, "scrape_configz")
        self.write("dashboards/prometheus.yml", "scrape_configs: []\n")
        self.write("dashboards/rules.yml", "groups:\n- name: a\n  rules:\n"
                   "  - record: A\n    expr: a >\n")
        self.assert_says(dashboards.check_promtool, "rules.yml")

    def test_an_annotation_is_read_too(self):
        self.write("dashboards/a.json", json.dumps({"annotations": {"list": [
            {"name": "event", "expr": "paceline_worker_dreams_total"}]}}))
        self.dashboard_uses_all("dashboards/b.json")
        self.assert_says(dashboards.check_metrics, "dreams", "'event'")

    def test_metrics_of_the_process_are_read_too(self):
        self.write("core/obs/process_metrics.h", '  "process_open_fds"\n')
        self.dashboard_uses_all("dashboards/a.json")
        self.assert_says(dashboards.check_metrics, "process_open_fds")

    def test_a_dashboard_that_differs_from_its_source_is_caught(self):
        self.write("dashboards/a.yaml", "uid: a\ntitle: A\nrows: {}\n")
        self.assert_says(dashboards.check_generated, "a.json", "generate.py")
        self.write("dashboards/a.json", "{}\n")
        self.assert_says(dashboards.check_generated, "a.json", "generate.py")

    def test_an_alert_needs_a_runbook(self):
        self.write("dashboards/rules.yml", "groups:\n- name: a\n  rules:\n"
                   "  - alert: A\n    expr: a > 1\n")
        self.write("dashboards/rules_test.yml",
                   "rule_files: [rules.yml]\ntests: []  # A\n")
        self.assert_says(dashboards.check_promtool, "alert A", "runbook")

    def test_an_alert_needs_a_test_that_passes(self):
        self.write("dashboards/rules.yml", "groups:\n- name: a\n  rules:\n"
                   "  - alert: A\n    expr: a > 1\n"
                   "    annotations: {runbook: wait}\n")
        self.assert_says(dashboards.check_promtool, "alert A has no test")
        case = ("rule_files: [rules.yml]\ntests:\n- interval: 1m\n"
                "  input_series:\n  - {series: a, values: '%d'}\n"
                "  alert_rule_test:\n  - eval_time: 0m\n    alertname: A\n"
                "    exp_alerts:\n    - exp_labels: {}\n"
                "      exp_annotations: {runbook: wait}\n")
        self.write("dashboards/rules_test.yml", case % 2)
        self.assert_clean(dashboards.check_promtool)
        self.write("dashboards/rules_test.yml", case % 1)
        self.assert_says(dashboards.check_promtool, "rules_test.yml")


class ThreadSafety(LintTest):
    HEADER = ('#pragma once\n#include "absl/synchronization/mutex.h"\n'
              "struct C {\n  absl::Mutex mutex;\n"
              "  int value ABSL_GUARDED_BY(mutex) = 0;\n};\n")

    def compile(self, name, body):
        self.write("worker/c.h", self.HEADER)
        self.write(name, f'#include "worker/c.h"\n{body}\n')
        file = str(self.root / name)
        self.write("build/compile_commands.json", json.dumps([{
            "directory": str(self.root), "file": file,
            "command": f"/usr/bin/c++ -DX=1 -I{self.root} -O2 "
                       f"-std=c++20 -o a.o -c {file}"}]))
        return self.said(thread_safety.check, self.root / "build")

    def test_an_unlocked_read_is_caught(self):
        said = self.compile("worker/a.cc", "int f(C& c) { return c.value; }")
        self.assertEqual(len(said), 1)
        self.assertIn("thread-safety", said[0])

    def test_a_locked_read_passes(self):
        self.assertEqual(self.compile(
            "worker/a.cc", "int f(C& c) {\n  absl::MutexLock lock(&c.mutex);\n"
            "  return c.value;\n}"), [])

    def test_a_build_folder_without_commands_is_caught(self):
        self.assertEqual(len(self.said(thread_safety.check, self.root)), 1)


if __name__ == "__main__":
    unittest.main()
