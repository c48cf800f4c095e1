"""Draws every panel with Grafana's own components, in a headless Chromium.

Takes the answers that proof.py left in --out.  npm installs @grafana/ui and its
like there, in the versions of package.json, and esbuild bundles page.jsx with
them.  Writes NAME.png of each dashboard to --png, by default --out.  A panel
that throws, or draws nothing, is an error.  The Grafana server itself is not
run.
"""

import io
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from browser import browser
from dashboards.prometheus import DASHBOARDS
from mesh import eventually
from nightly import say
from PIL import Image

PAGE = Path(__file__).resolve().parent
OPTIONS = {"out": Path("build/dashboards"), "png": Path}
WIDTH = 1420
PATIENCE_SECONDS = 60
COLOURS = 96  # of a PNG, which keeps it small

HTML = """<!doctype html><meta charset="utf-8">
<link rel="stylesheet" href="page.css">
<style>body { margin: 0; overflow: hidden }</style><div id="root"></div>
<script>
window.problems = [];
window.onerror = (message) => { window.problems.push(String(message)); };
window.answers = %s;
window.dashboard = %s;
</script><script src="page.js"></script>
"""

# A panel that draws has marks: pixels on a canvas, shapes, or text in its
# content.  Returns the titles of those that have none.
EMPTY = """
return window.answers.dashboards.find((d) => d.title === window.dashboard)
  .panels.filter((panel) => panel.type !== 'row').filter((panel) => {
    const place = document.getElementById(`panel-${panel.id}`);
    if (place === null) return true;
    if (panel.type === 'timeseries') {
      const canvas = place.querySelector('canvas');
      if (canvas === null || canvas.width === 0) return true;
      return !canvas.getContext('2d').getImageData(
        0, 0, canvas.width, canvas.height).data.some((byte) => byte > 0);
    }
    if (panel.type === 'stat' || panel.type === 'bargauge') {
      return !/[0-9]/.test(place.innerText.replace(panel.title, ''));
    }
    return place.querySelectorAll('rect').length === 0;
  }).map((panel) => panel.title);
"""


def bundle(folder):
    """page.js and page.css in `folder`."""
    for name in ("package.json", "page.jsx"):
        shutil.copy(PAGE / name, folder)
    # Scripts of packages are not run; none of these needs one.
    subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit",
                    "--no-fund", "--legacy-peer-deps", "--loglevel=error"],
                   cwd=folder, check=True)
    subprocess.run(["node_modules/.bin/esbuild", "page.jsx", "--bundle",
                    "--outfile=page.js", "--jsx=automatic",
                    "--loader:.svg=dataurl", "--loader:.ttf=dataurl",
                    "--log-level=error",
                    '--define:process.env.NODE_ENV="production"'],
                   cwd=folder, check=True)


def draw(driver, folder, answers, title, png):
    """What is wrong."""
    page = folder / "page.html"
    page.write_text(HTML % (json.dumps(answers), json.dumps(title)),
                    encoding="utf-8")
    driver.get(page.resolve().as_uri())
    problems, empty = [], []

    def drawn():
        problems[:] = driver.execute_script("return window.problems")
        empty[:] = driver.execute_script(EMPTY)
        return problems or not empty
    if not eventually(drawn, PATIENCE_SECONDS):
        problems.append(f"nothing is drawn in: {', '.join(empty)}")
    height = driver.execute_script("return document.body.scrollHeight")
    driver.set_window_size(WIDTH, height + 100)
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png()))
    picture = picture.convert("RGB").crop((0, 0, WIDTH, height))
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(png, optimize=True)
    say(f"{png}: {png.stat().st_size // 1024} KiB")
    return [f"{title}: {each}" for each in problems]


def main(run):
    bundle(run.out)
    answers = json.loads((run.out / "answers.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as profile:
        driver = browser(WIDTH, 1000, "--allow-file-access-from-files",
                         f"--user-data-dir={profile}")
        try:
            for path in sorted(DASHBOARDS.glob("*.json")):
                title = json.loads(path.read_text(encoding="utf-8"))["title"]
                png = (run.png or run.out) / f"{path.stem}.png"
                run.wrong += draw(driver, run.out, answers, title, png)
        finally:
            driver.quit()
