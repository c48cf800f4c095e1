#!/usr/bin/env python3
"""Runs studies of deploy/studies/ on real data, and checks their results.

  study_figures.py --bin build/release/bin [--part NAME]...

Parts:
  racing        Fashion-MNIST: five races of sixteen starts, LeNet and an MLP,
                beside sixteen single starts with as many steps each
  splits        four emulated machines (root): DeiT-S in up to six stages
  amp           Fashion-MNIST: bf16 beside fp32
  loaders       2,000 JPEGs of Fashion-MNIST's pictures: threads that load ahead
  distribution  Fashion-MNIST: members with unlike data
  lora          descriptions of Debian's packages (apt-cache dumpavail): a bert
                learns their sections, then to tell games from science

Prints each study's table and what must be reached beside what was; exits 1 when
something was not.
"""

import argparse
import gzip
import random
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
from bed import ROOT, Bed
from bed_speed import Report
from mesh import Mesh

STUDIES = ROOT / "deploy/studies"
NODES = 4
PICTURES = 2000
COLLAGE = 9  # pictures of 28 pixels in a row
SECTIONS = 30
TEXTS_A_SECTION = 1500
RACES = 5
STARTS = 16
# Thin layers, for long: with the default ones all starts are much alike.
RACERS = {"lenet": (), "mlp": ("model.hidden=[16,16,16,16,16,16]",
                               "train.steps=4000")}


def medians(document):
    """label -> measure -> median; tells trials without a result."""
    found = {}
    for trial in document["trials"]:
        whys = {job["why"] for job in trial["jobs"] if job["why"]}
        if whys:
            print(f"  {trial['label']}: {'; '.join(whys)}", flush=True)
        found[trial["label"]] = {
            name: value["median"] for name, value in trial["values"].items()
            if value is not None}
    return found


def study(mesh, name, *sets):
    words = [word for each in sets for word in ("--set", each)]
    file = str(STUDIES / f"{name}.yaml")
    told = mesh.run("study", file, *words, timeout=7200)
    print(told.stdout, flush=True)
    return medians(mesh.ask("study", file, *words))


def splits(arguments, report):
    with Bed("studies", arguments.bin) as bed:
        bed.json("profile", "--model", "deit_small_patch16_224",
                 "--batch", "2")
        file = str(STUDIES / "splits.yaml")
        print(bed.run("paceline", "study", file, check=False).decode(),
              flush=True)
        found = medians(bed.json("study", file))
    report.at_least("splits, four stages: speed-up", 3.62,
                    found["4 dp"]["speedup"])
    report.at_most("splits, not in a row's losses", 0.02,
                   max(abs(row["unexplained"]) for row in found.values()))


def amp(arguments, report):
    with Mesh(arguments.bin, 1) as mesh:
        found = study(mesh, "amp")
    full, half = found["precision=fp32"], found["precision=bf16"]
    ratio = half["step_time"] / full["step_time"]
    # Other CPUs multiply bf16 no faster than fp32.
    if "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="ascii"):
        report.at_most("amp: bf16's time / fp32's", 0.75, ratio)
    else:
        print(f"amp: bf16's time / fp32's {ratio:.3f}, without avx512_bf16")
    report.at_most("amp: accuracy lost", 0.006,
                   full["accuracy"] - half["accuracy"])


def make_pictures(folder):
    # Of python3-pil.  pylint: disable=import-outside-toplevel
    from PIL import Image
    data = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
    pixels = gzip.decompress(data.read_bytes())[16:]
    drawn = random.Random(1)
    for number in range(PICTURES):
        collage = Image.new("RGB", (28 * COLLAGE, 28 * COLLAGE))
        for place in range(COLLAGE * COLLAGE):
            begin = 784 * drawn.randrange(60000)
            picture = Image.frombytes("L", (28, 28),
                                      pixels[begin:begin + 784])
            collage.paste(picture.convert("RGB"),
                          (28 * (place % COLLAGE), 28 * (place // COLLAGE)))
        to = folder / str(number % 2) / f"{number}.jpg"
        to.parent.mkdir(exist_ok=True, parents=True)
        collage.save(to, quality=90)


def loaders(arguments, report):
    with Mesh(arguments.bin, 1) as mesh:
        folder = mesh.state / "pictures"
        make_pictures(folder)
        found = study(mesh, "loaders", f"data.path={folder}")
    times = {label: row["step_time"] for label, row in found.items()}
    report.at_most("loaders: the default / the best", 1.05,
                   times["workers=1"] / min(times.values()))


def distribution(arguments, report):
    with Mesh(arguments.bin, NODES) as mesh:
        found = study(mesh, "distribution")
    accuracy = {label: row["accuracy"] for label, row in found.items()}
    report.at_least("distribution: by-label loses with gossip", 0.02,
                    accuracy["gossip iid"] - accuracy["gossip by-label"])
    print(f"balanced wins back "
          f"{accuracy['gossip balanced'] - accuracy['gossip by-label']:.4f}")


def descriptions():
    """(section, description) of every package that apt knows."""
    known = subprocess.run(["apt-cache", "dumpavail"], check=True,
                           capture_output=True, text=True).stdout
    found = set()
    for package in known.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in package.splitlines()
                      if ": " in line and not line.startswith(" "))
        if "Section" in fields and "Description" in fields:
            found.add((fields["Section"], fields["Description"]))
    found = sorted(found)
    random.Random(1).shuffle(found)
    return found


def write_texts(path, texts):
    path.write_text("".join(f"{label}\t{text}\n" for label, text in texts),
                    encoding="utf-8")


def make_texts(folder):
    """Sections to learn from, and two others to tell apart."""
    told = descriptions()
    apart = [(int(section == "games"), text) for section, text in told
             if section in ("games", "science")]
    rest = [each for each in told if each[0] not in ("games", "science")]
    often = [section for section, _ in
             Counter(section for section, _ in rest).most_common(SECTIONS)]
    taken = Counter()
    texts = []
    for section, text in rest:
        taken[section] += 1
        if section in often and taken[section] <= TEXTS_A_SECTION:
            texts.append((often.index(section), text))
    write_texts(folder / "sections.txt", texts)
    write_texts(folder / "apart.txt", apart)


def lora(arguments, report):
    with Mesh(arguments.bin, 2) as mesh:
        make_texts(mesh.state)
        sets = ("model.lora.rank=0", "data.name=text-labels",
                f"data.path={mesh.state}/sections.txt",
                f"data.classes={SECTIONS}", "data.block=64",
                "train.epochs=8", "train.micro_batch=32",
                "train.learning_rate.base=0.002",
                "train.learning_rate.warmup_steps=200", "pipeline.stages=1")
        learned = mesh.ask("job", "submit", str(ROOT / "deploy/jobs/lora.yaml"),
                           *(word for each in sets for word in ("--set", each)))
        print(f"sections: accuracy {learned['test_accuracy']:.4f}", flush=True)
        weights = mesh.state / "bert.safetensors"
        mesh.run("job", "export", str(learned["id"]), "-o", str(weights))
        found = study(mesh, "lora-against-full", f"model.weights={weights}",
                      f"data.path={mesh.state}/apart.txt")
    full, adapted = found["full"], found["lora"]
    report.at_most("lora: accuracy lost", 0.01,
                   full["accuracy"] - adapted["accuracy"])
    report.at_most("lora: memory of gradients and optimizer", 0.35,
                   adapted["update_memory"] / full["update_memory"])
    report.at_most("lora: bytes in rounds", 0.2,
                   adapted["bytes"] / full["bytes"])


def racing(arguments, report):
    """Races of starts that the single ones are not among."""
    text = (STUDIES / "init-racing.yaml").read_text(encoding="utf-8")
    seeds = re.search(r"train.seed: \[.*\]", text).group()
    race = re.search(r"\nrace:.*", text).group()
    with Mesh(arguments.bin, 2) as mesh:
        for model, sets in RACERS.items():
            won = 0
            for turn in range(RACES + 1):
                begin = 1 + STARTS * turn
                starts = f"train.seed: {list(range(begin, begin + STARTS))}"
                file = mesh.state / f"{model}-{turn}.yaml"
                kind = race if turn else ""  # first the single ones
                file.write_text(
                    text.replace(seeds, starts).replace(race, kind)
                    .replace("name: init-racing", f"name: {file.stem}"),
                    encoding="utf-8")
                document = mesh.ask("study", str(file), *(
                    word for each in (f"model.name={model}", *sets)
                    for word in ("--set", each)))
                loss = {trial["label"]: trial["values"]["loss"]["median"]
                        for trial in document["trials"]}
                if not turn:
                    median = statistics.median(loss.values())
                    print(f"{model}: single starts {min(loss.values()):.4f} to "
                          f"{max(loss.values()):.4f}, median {median:.4f}",
                          flush=True)
                    continue
                ended = loss[document["winner"]]
                won += ended < median
                print(f"{model}: a race ends at {ended:.4f}", flush=True)
            report.at_least(f"init-racing, {model}: won of {RACES} races", 4,
                            won)


PARTS = {"racing": racing, "splits": splits, "amp": amp, "loaders": loaders,
         "distribution": distribution, "lora": lora}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--part", action="append", choices=PARTS)
    arguments = parser.parse_args()
    report = Report()
    for name in arguments.part or PARTS:
        PARTS[name](arguments, report)
    return 0 if report.print() else 1


if __name__ == "__main__":
    sys.exit(main())
