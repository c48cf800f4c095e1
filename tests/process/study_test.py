"""A study that is killed, and a worker under it: no trial is lost or doubled.
The winner of a race trains on from where it was."""

import json

from mesh_case import SMALL, MeshCase

STUDY = """
name: seeds
base: job.yaml
vary:
  train.optimizer.name: [sgd, adamw]
  train.batch: [16, 32]
measure: [loss, step_time]
exclusive: true
"""


RACE = """
base: job.yaml
vary: {train.seed: [1, 2, 3, 4]}
race: {halving: 2, on: loss, budget: 120}
"""


class Study(MeshCase):
    light = True

    def run_study(self, file):
        finished = self.good(self.client("study", file, "-o", "json"))
        return json.loads(finished.stdout)

    def test_goes_on_after_it_and_a_worker_were_killed(self):
        self.start(3)
        self.write(SMALL.replace("steps: 160", "steps: 800"))
        file = self.write(STUDY, "study.yaml")
        study = self.background("study", file)
        self.soon(lambda: len(self.jobs()) > 1, study)
        # The worker first: the job ends by itself.
        self.await_step_after(0, "2")
        self.kill(self.job("2")["workers"][0]["name"])
        study.kill()
        study.wait()

        document = self.run_study(file)

        jobs = self.jobs()
        self.assertEqual(sorted(each["name"] for each in jobs),
                         [f"seeds/name={name} batch={batch}"
                          for name in ("adamw", "sgd") for batch in (16, 32)])
        self.assertEqual({each["state"] for each in jobs}, {"succeeded"})
        self.assertEqual([trial["jobs"][0]["job"]
                          for trial in document["trials"]], [1, 2, 3, 4])
        for trial in document["trials"]:
            for measure in ("loss", "step_time"):
                self.assertGreater(trial["values"][measure]["median"], 0)
        self.assertEqual(self.job("2")["recovery"]["recoveries"], 1)

        self.assertEqual(self.run_study(file), document, "once more")
        self.assertEqual(len(self.jobs()), 4)

    def test_of_a_race_ends_with_the_weights_of_an_undisturbed_job(self):
        self.start(2)
        self.write(SMALL.replace("steps: 160, ", ""))
        file = self.write(RACE, "race.yaml")

        document = self.run_study(file)

        seed, steps = document["winner"].split("=")[1], 80
        trials = document["trials"]
        self.assertEqual(sorted(trial["jobs"][-1]["steps"] for trial in trials),
                         [10, 10, 20, steps])
        last = next(trial["jobs"][-1]["job"] for trial in trials
                    if trial["label"] == document["winner"])
        alone = self.submit(SMALL, f"train.seed={seed}",
                            f"train.steps={steps}")
        self.assertEqual(self.job(str(last))["weights_sha256"],
                         alone["weights_sha256"])
