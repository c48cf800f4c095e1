"""The files that the lint checks look at."""

import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE_SUFFIXES = (".h", ".cc")


class Problem(NamedTuple):
    """One broken rule; `line` is 0 when it concerns the whole file."""
    path: str
    line: int
    why: str

    def __str__(self):
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.why}"


class Tree:
    """Files under `root` that belong to the project, as posix paths."""

    def __init__(self, root):
        self.root = Path(root)
        self.files = sorted(self._from_git() or self._from_disk())

    def _from_git(self):
        if not (self.root / ".git").exists():
            return None
        try:
            listing = subprocess.run(
                ["git", "-c", f"safe.directory={self.root}", "ls-files", "-z",
                 "--cached", "--others", "--exclude-standard"],
                cwd=self.root, capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        names = [name for name in listing.decode().split("\0") if name]
        return [name for name in names if (self.root / name).is_file()]

    def _from_disk(self):
        names = []
        for path in self.root.rglob("*"):
            name = path.relative_to(self.root).as_posix()
            if path.is_file() and not name.startswith(("build/", ".git/")):
                names.append(name)
        return names

    def text(self, name):
        return (self.root / name).read_text(encoding="utf-8")

    def lines(self, name):
        return self.text(name).split("\n")

    def sources(self, *folders):
        """C++ files, of `folders` only when some are given."""
        return [name for name in self.files if name.endswith(SOURCE_SUFFIXES)
                and (not folders or name.startswith(folders))]

    def with_suffix(self, *suffixes):
        return [name for name in self.files if name.endswith(suffixes)]

    def exists(self, name):
        return (self.root / name).exists()
