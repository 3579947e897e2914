#!/usr/bin/env python3
"""Checks what the documents (every *.md) name.

  * Paths of the repository in backticks, in code blocks and in links exist. A path is tried from
    the root, from src/ and from the document's folder; `*` must match something. What the build
    and the runs create (build/, .venv/, what .gitignore names) is not checked.
  * `make x` is a target of the Makefile.
  * Names of code in backticks, `CamelCase`, `room::name` and `function()`, occur in the sources.
  * Figures carry a marker right behind them and agree with the newest line of bench/results:
        0.7712 <!-- bench: FILE CASE METRIC [FIELD] -->
    FILE without .jsonl; FIELD is ours (the default), theirs or ratio; words with spaces are
    quoted. The figure may be rounded and may hold thousands commas; text between it and the
    marker, such as a unit, holds no digit.
  * No `<!-- fill: ... -->` is left.
`--self-test` proves that each rule can fail.
"""
import fnmatch
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
UNFILLED = re.compile(r"<!--\s*fill\b:?(.*?)-->")
MARKER = re.compile(r"<!--\s*bench:(.*?)-->")
FIGURE = re.compile(r"(-?\d[\d,]*(?:\.\d+)?)[^\d]*$")
PATH = re.compile(r"^[\w.*{},+-]+(?:/[\w.*{},+-]*)*$")
SOURCE_SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".md", ".env"}
CODE_SUFFIXES = SOURCE_SUFFIXES - {".md"} | {".txt", ".inc"}
CAMEL = re.compile(r"^(?:[A-Z][a-z0-9]+){2,}$")
SCOPED = re.compile(r"^(?:\w+::)+~?(\w+)(?:\(\))?$")
CALL = re.compile(r"^(\w+)\(\)$")
FOREIGN_SCOPES = ("std::", "arrow::", "parquet::", "tl::", "fmt::", "nlohmann::", "toml::", "cute::")


class Repository:
    def __init__(self, root):
        self.root = root
        self.files = self._list_files()
        self.tops = {f.parts[0] for f in self.files if len(f.parts) > 1}
        self.names = {f.name for f in self.files}
        self.generated = self._generated()
        self._identifiers = None

    def _list_files(self):
        try:
            out = subprocess.run(
                ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                cwd=self.root, check=True, capture_output=True).stdout.decode()
            listed = [pathlib.Path(name) for name in out.split("\0") if name]
        except (OSError, subprocess.CalledProcessError):
            listed = [p.relative_to(self.root) for p in self.root.rglob("*") if p.is_file()]
        return [f for f in listed if (self.root / f).exists()]

    def _generated(self):
        ignore = self.root / ".gitignore"
        lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.exists() else []
        return tuple(line.strip("/") for line in lines if line.startswith("/"))

    def is_generated(self, path):
        parents = [path] + [str(p) for p in pathlib.PurePosixPath(path).parents]
        return any(fnmatch.fnmatch(p, g) for p in parents for g in self.generated)

    def identifiers(self):
        if self._identifiers is None:
            self._identifiers = set()
            for file in self.files:
                if file.suffix in CODE_SUFFIXES:
                    text = (self.root / file).read_text(encoding="utf-8", errors="replace")
                    self._identifiers.update(re.findall(r"\w+", text))
        return self._identifiers

    def make_targets(self):
        makefile = self.root / "Makefile"
        text = makefile.read_text(encoding="utf-8") if makefile.exists() else ""
        return set(re.findall(r"^([\w-]+):(?!=)", text, re.M))

    def exists(self, path, folder):
        for base in (self.root, self.root / "src", folder):
            if "*" in path:
                if any(base.glob(path.rstrip("/"))):
                    return True
            elif (base / path).exists():
                return True
        return "/" not in path and path in self.names


def expand_braces(word):
    match = re.search(r"\{([^{}]*,[^{}]*)\}", word)
    if not match:
        return [word]
    return [out for choice in match.group(1).split(",")
            for out in expand_braces(word[:match.start()] + choice + word[match.end():])]


def looks_like_path(word, repo):
    # "examples/s" is a unit.
    if not PATH.match(word) or word.endswith("/s"):
        return False
    if "/" in word and word.split("/")[0] in repo.tops:
        return True
    return pathlib.PurePath(word).suffix in SOURCE_SUFFIXES and not word.startswith("*.")


def check_words(text, repo, folder):
    """Paths among the words of a code span or a line of a code block."""
    for raw in text.split():
        word = re.sub(r":\d+$", "", raw.strip("\"'();,").removeprefix("./"))
        for path in expand_braces(word):
            if looks_like_path(path, repo) and not repo.is_generated(path.rstrip("/")):
                if not repo.exists(path, folder):
                    yield f"{path} does not exist"


def check_make(text, repo):
    match = re.match(r"^(?:\$ )?make ([a-z][\w-]*)", text)
    if match and match.group(1) not in repo.make_targets():
        yield f"`make {match.group(1)}` is not a target of the Makefile"


def check_symbol(span, repo):
    if span.startswith(FOREIGN_SCOPES):
        return
    name = None
    if CAMEL.match(span):
        name = span
    for pattern in (SCOPED, CALL):
        match = pattern.match(span)
        if match:
            name = match.group(1)
    if name and name not in repo.identifiers():
        yield f"`{span}` occurs in no source"


def newest(repo, name, case, metric):
    file = repo.root / "bench" / "results" / f"{name}.jsonl"
    if not file.exists():
        return None, f"bench/results/{name}.jsonl does not exist"
    found = None
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.strip():
            row = json.loads(line)
            if row.get("case") == case and row.get("metric") == metric:
                found = row
    return found, None if found else f"bench/results/{name}.jsonl has no line of {case}, {metric}"


def check_figure(line, marker, repo):
    words = shlex.split(marker.group(1))
    if len(words) not in (3, 4) or (len(words) == 4 and words[3] not in ("ours", "theirs", "ratio")):
        return f"marker `{marker.group(0)}` is not `bench: FILE CASE METRIC [ours|theirs|ratio]`"
    field = words[3] if len(words) == 4 else "ours"
    figure = FIGURE.search(MARKER.sub("", line[:marker.start()]))
    if not figure:
        return f"no figure before `{marker.group(0)}`"
    row, why = newest(repo, *words[:3])
    if why:
        return why
    value = row.get(field)
    if not isinstance(value, (int, float)):
        return f"{' '.join(words[:3])} has no number in {field}"
    quoted = figure.group(1).replace(",", "")
    digits = len(quoted.partition(".")[2])
    # Half a unit of the last quoted digit, and a hair for the binary representation.
    if abs(float(quoted) - value) > 0.5 * 10.0 ** -digits * (1 + 1e-9):
        return f"quoted {quoted}, but {' '.join(words[:3])} {field} is {value}"
    return None


def check_document(file, repo):
    folder = (repo.root / file).parent
    fenced = False
    for number, line in enumerate((repo.root / file).read_text(encoding="utf-8").splitlines(), 1):
        problems = []
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            problems += check_words(line, repo, folder)
            problems += check_make(line, repo)
        else:
            # A marker in backticks is talked about, not used.
            line = SPAN.sub(lambda span: span.group(0) if "<!--" not in span.group(0) else "``", line)
            for unfilled in UNFILLED.findall(line):
                problems.append(f"left to fill in:{unfilled}")
            for marker in MARKER.finditer(line):
                problems.append(check_figure(line, marker, repo))
            for span in SPAN.findall(MARKER.sub("", line)):
                problems += check_words(span, repo, folder)
                problems += check_make(span, repo)
                problems += check_symbol(span, repo)
            for link in LINK.findall(line):
                target = link.partition("#")[0]
                if target and "://" not in target and not target.startswith("mailto:"):
                    if not (folder / target).exists():
                        problems.append(f"link to {target}, which does not exist")
        for problem in problems:
            if problem:
                yield f"{file}:{number}: {problem}"


def check(root):
    repo = Repository(root)
    documents = [f for f in repo.files if f.suffix == ".md"]
    problems = []
    for file in documents:
        problems.extend(check_document(file, repo))
    return problems, len(documents)


def self_test():
    tree = {
        "Makefile": "setup:\n\ttrue\n",
        ".gitignore": "/build/\n",
        "src/data/source.hpp": "class BlockSource { void read_block(); };",
        "docs/data.md": "",
        "bench/results/a.jsonl":
            '{"case": "old", "metric": "auc", "ours": 1}\n'
            '{"case": "like mean", "metric": "auc", "ours": 0.77045, "theirs": 0.7, "ratio": 1234.4}\n',
    }
    cases = [  # text of a document, a part of the problem ("" when there is none)
        ("`src/data/source.hpp`, `data/source.hpp:12`, `source.hpp`, `data.md`, `src/data/`", ""),
        ("`src/data/sink.hpp`", "sink.hpp does not exist"),
        ("`sink.hpp`", "sink.hpp does not exist"),
        ("`src/*/source.hpp` and `src/data/{source,sink}.hpp`", "sink.hpp does not exist"),
        ("`build/release/paceline` and `run/config.toml` and `a/b`", ""),
        ("```\nsrc/data/none.py --x\n```", "none.py does not exist"),
        ("```sh\nmake nonsense\n```", "not a target"),
        ("`make setup`, `make nonsense`", "not a target"),
        ("[data](data.md#order) [site](https://example.org)", ""),
        ("[data](date.md)", "link to date.md"),
        ("`BlockSource`, `data::BlockSource`, `read_block()`, `std::vector`", ""),
        ("`BlockSink`", "occurs in no source"),
        ("`data::BlockSink`", "occurs in no source"),
        ("`write_block()`", "occurs in no source"),
        ("| 0.7705 <!-- bench: a 'like mean' auc --> |", ""),
        ("1,234 x <!-- bench: a 'like mean' auc ratio -->", ""),
        ("0.7712 <!-- bench: a 'like mean' auc -->", "quoted 0.7712"),
        ("0.70 <!-- bench: a 'like mean' auc theirs --> 0.71 <!-- bench: a 'like mean' auc theirs -->",
         "quoted 0.71"),
        ("0.77 <!-- bench: a other auc -->", "has no line"),
        ("0.77 <!-- bench: b other auc -->", "does not exist"),
        ("fast <!-- bench: a 'like mean' auc -->", "no figure"),
        ("1 <!-- bench: a auc -->", "is not `bench:"),
        ("`<!-- bench: a b c -->` and `<!-- fill: x -->`", ""),
        ("<!-- fill: the output -->", "left to fill in: the output"),
    ]
    for text, expected in cases:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file, content in {**tree, "docs/case.md": text}.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(content, encoding="utf-8")
            problems, _ = check(folder)
            found = "\n".join(problems)
            if bool(problems) != bool(expected) or expected not in found:
                sys.exit(f"self-test: {text!r}: expected {expected!r}, got {found!r}")
    print(f"check_docs: self-test of {len(cases)} cases passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    problems, documents = check(pathlib.Path(__file__).resolve().parent.parent)
    if documents == 0:
        sys.exit("check_docs: no document was found")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(f"check_docs: {len(problems)} things that documents name do not hold")
    print(f"check_docs: {documents} documents name nothing that is not there")


if __name__ == "__main__":
    main()
