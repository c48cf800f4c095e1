"""A mesh shows metrics, discovery and health."""

from mesh_case import ENDLESS, JOB, SMALL, MeshCase, get, run
from dashboards.prometheus import Prometheus

GROUP = ("aggregation.mode=rolling", "pipeline.stages=0",
         'faults=[{"worker": "w2", "step": 30, "kind": "kill"}]', ENDLESS)


class TimeParts(MeshCase):
    alone = True

    def test_explain_ninety_seven_percent_of_every_workers_time(self):
        """In one job at least: a host that takes the CPU between two parts has
        that time counted in none."""
        self.start(2)
        self.detach(JOB, "pipeline.stages=2", ENDLESS)

        def parts():
            return [worker["seconds"] for worker in self.job()["workers"]]
        self.soon(lambda: len(parts()) == 2 and all(
            each["wall"] > 1 and each["unexplained"] < 0.03 * each["wall"]
            for each in parts()), parts)
        self.stop()


class Metrics(MeshCase):
    light = True
    shared = 2

    def test_promtool_accepts_both_daemons_while_a_job_runs(self):
        job = self.begin(SMALL, "pipeline.stages=2", step=2)
        # The page without its script.
        self.has(get(self.http, "/"), "<td>w1</td><td>busy</td>", "<noscript>")
        targets = self.discovered()
        self.assertEqual(len(targets), 3, "the coordinator and two workers")

        for target in targets:
            file = self.write(get(target, "/metrics"), "metrics.txt")
            checked = run("bash", "-c", f"promtool check metrics < {file}")
            self.assertEqual(checked.returncode, 0,
                             target + checked.stderr + checked.stdout)
            self.assertEqual(get(target, "/healthz"), "ok\n", target)
            self.assertEqual(get(target, "/readyz"), "ready\n", target)
        self.soon(lambda: all(
            f'job_{each}_seconds{{job="{job}"' in get(self.http, "/metrics")
            for each in ("step_predicted", "step_measured", "stage_predicted",
                         "stage_measured")))


class Scraped(MeshCase):
    """By a real Prometheus, configured as dashboards/ does it."""
    light = True

    def test_it_finds_the_mesh_and_sees_why_a_killed_members_part_was_skipped(self):
        self.start(3)
        prometheus = self.enterContext(Prometheus(self.folder, self.http))
        self.soon(lambda: prometheus.value("sum(up)") == 4, "sum(up)")
        self.detach(SMALL, *GROUP)
        rounds = 'sum(paceline_worker_rounds_total{outcome="committed"})'

        self.soon(lambda: prometheus.value(rounds) > 0, rounds)
        before = prometheus.value(rounds)
        self.soon(lambda: prometheus.value(rounds) > before, rounds)
        # Each is asked for until a scrape has brought it.
        for expression in (
                'sum(paceline_worker_round_parts_skipped_total{reason="lost"}) '
                "> 0",
                'sum(paceline_coordinator_group_leavers_total{reason="lost"}) '
                "> 0",
                "histogram_quantile(0.5, sum by (le) "
                "(rate(paceline_worker_round_seconds_bucket[30s]))) > 0",
                "min(paceline_worker_round_deadline_seconds) > 0",
                "max(paceline_worker_round_contributors) > 0",
                'sum(paceline_worker_round_bytes_total{direction="sent"}) > 0',
                "paceline_coordinator_job_phase == bool 2",
                "paceline_coordinator_workers_lost_total > 0",
                # It came back.
                'paceline_coordinator_job_group_members{state="member"} == 3'):
            self.soon(lambda e=expression: prometheus.value(e) > 0, expression)

        def health():
            """By rule; "unknown" before its first evaluation."""
            return {rule["name"]: rule["health"]
                    for group in prometheus.ask("rules")["groups"]
                    for rule in group["rules"]}
        self.soon(lambda: "unknown" not in health().values(), health)
        self.assertEqual(set(health().values()), {"ok"}, health())
