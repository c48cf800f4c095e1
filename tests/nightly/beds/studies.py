"""Runs studies of deploy/studies/ on real data, and checks their results.

Parts:
  racing        Fashion-MNIST: five races of sixteen starts, LeNet and an MLP,
                beside sixteen single starts with as many steps each
  splits        four emulated machines (root): DeiT-S in up to six stages
  amp           Fashion-MNIST: bf16 beside fp32
  loaders       2,000 JPEGs of Fashion-MNIST's pictures: threads that load ahead
  distribution  Fashion-MNIST: members with unlike data
  lora          descriptions of Debian's packages (apt-cache dumpavail): a bert
                learns their sections, then to tell games from science
"""

import gzip
import random
import re
import statistics
import subprocess
from collections import Counter
from pathlib import Path

from bed import NODES, ROOT
from mesh import sets_of
from nightly import say

STUDIES = ROOT / "deploy/studies"
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
            say(f"  {trial['label']}: {'; '.join(whys)}")
        found[trial["label"]] = {
            name: value["median"] for name, value in trial["values"].items()
            if value is not None}
    return found


def study(mesh, file, *sets):
    """Runs a study of deploy/studies/, or of another file; its medians.  Prints
    its table."""
    words = ("study", STUDIES / file, *sets_of(sets))
    say(mesh.run(*words, timeout=7200).stdout)
    return medians(mesh.ask(*words))


def splits(run):
    run.needs(root=True)
    with run.bed() as bed:
        bed.ask("profile", "--model", "deit_small_patch16_224", "--batch", "2")
        found = study(bed, "splits.yaml")
    run.at_least("splits, four stages: speed-up", 3.62,
                 found["4 optimal"]["speedup"])
    run.at_most("splits, not in a row's losses", 0.02,
                max(abs(row["unexplained"]) for row in found.values()))


def amp(run):
    with run.mesh(1) as mesh:
        found = study(mesh, "amp.yaml")
    full, half = found["precision=fp32"], found["precision=bf16"]
    ratio = half["step_time"] / full["step_time"]
    # Other CPUs multiply bf16 no faster than fp32.
    if "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="ascii"):
        run.at_most("amp: bf16's time / fp32's", 0.75, ratio)
    else:
        print(f"amp: bf16's time / fp32's {ratio:.3f}, without avx512_bf16")
    run.at_most("amp: accuracy lost", 0.006,
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
            picture = Image.frombytes("L", (28, 28), pixels[begin:begin + 784])
            collage.paste(picture.convert("RGB"),
                          (28 * (place % COLLAGE), 28 * (place // COLLAGE)))
        to = folder / str(number % 2) / f"{number}.jpg"
        to.parent.mkdir(exist_ok=True, parents=True)
        collage.save(to, quality=90)


def loaders(run):
    with run.mesh(1) as mesh:
        folder = mesh.state / "pictures"
        make_pictures(folder)
        found = study(mesh, "loaders.yaml", f"data.path={folder}")
    times = {label: row["step_time"] for label, row in found.items()}
    run.at_most("loaders: the default / the best", 1.05,
                times["workers=1"] / min(times.values()))


def distribution(run):
    with run.mesh(NODES) as mesh:
        found = study(mesh, "distribution.yaml")
    accuracy = {label: row["accuracy"] for label, row in found.items()}
    run.at_least("distribution: by-label loses with gossip", 0.02,
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


def lora(run):
    with run.mesh(2) as mesh:
        make_texts(mesh.state)
        sets = ("model.lora.rank=0", "data.name=text-labels",
                f"data.path={mesh.state}/sections.txt",
                f"data.classes={SECTIONS}", "data.block=64", "train.epochs=8",
                "train.micro_batch=32", "train.learning_rate.base=0.002",
                "train.learning_rate.warmup_steps=200", "pipeline.stages=1")
        learned = mesh.train("deploy/jobs/lora.yaml", *sets)
        say(f"sections: accuracy {learned['test_accuracy']:.4f}")
        weights = mesh.state / "bert.safetensors"
        mesh.export(learned["id"], weights)
        found = study(mesh, "lora-against-full.yaml", f"model.weights={weights}",
                      f"data.path={mesh.state}/apart.txt")
    full, adapted = found["full"], found["lora"]
    run.at_most("lora: accuracy lost", 0.01,
                full["accuracy"] - adapted["accuracy"])
    run.at_most("lora: memory of gradients and optimizer", 0.35,
                adapted["update_memory"] / full["update_memory"])
    run.at_most("lora: bytes in rounds", 0.2, adapted["bytes"] / full["bytes"])


def racing(run):
    """Races of starts that the single ones are not among."""
    text = (STUDIES / "init-racing.yaml").read_text(encoding="utf-8")
    seeds = re.search(r"train.seed: \[.*\]", text).group()
    race = re.search(r"\nrace:.*", text).group()
    with run.mesh(2) as mesh:
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
                document = mesh.ask("study", file, *sets_of(
                    (f"model.name={model}", *sets)))
                loss = {trial["label"]: trial["values"]["loss"]["median"]
                        for trial in document["trials"]}
                if not turn:
                    median = statistics.median(loss.values())
                    say(f"{model}: single starts {min(loss.values()):.4f} to "
                        f"{max(loss.values()):.4f}, median {median:.4f}")
                    continue
                ended = loss[document["winner"]]
                won += ended < median
                say(f"{model}: a race ends at {ended:.4f}")
            run.at_least(f"init-racing, {model}: won of {RACES} races", 4, won)


PARTS = {"racing": racing, "splits": splits, "amp": amp, "loaders": loaders,
         "distribution": distribution, "lora": lora}
OPTIONS = {"name": "studies"}
