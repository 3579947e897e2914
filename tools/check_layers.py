#!/usr/bin/env python3
"""Checks that every include goes to the same room or to a room that the table allows.

CMake's link lists do not see header includes, since all rooms share one include root. Checked are:
  * src/<room>: quoted includes are paths from src/ and stay within the table below;
  * CUDA headers appear in the rooms that may see them only, hopper/ only in CUDA sources of ops;
  * nobody includes from apps/, bench/, tests/ or examples/ but these themselves;
  * the rooms that CMakeLists.txt lists for each room are those of the table.
`--self-test` proves that each rule can fail.
"""
import pathlib
import re
import sys
import tempfile

# The one table: what a room may include besides itself and core.
ALLOWED = {
    "core": set(),
    "pipeline": set(),
    "features": set(),
    "hopper": set(),
    "device": {"pipeline"},
    "data": {"features", "pipeline"},
    "checkpoint": {"pipeline"},
    "telemetry": {"pipeline"},
    "candidate_pipeline": {"pipeline"},
    "ops": {"device", "hopper", "pipeline"},
    "model": {"ops", "features", "device"},
    "train": {"model", "ops", "data", "checkpoint", "telemetry", "features", "device", "pipeline"},
    "serve": {"model", "candidate_pipeline", "checkpoint", "telemetry", "features", "device",
              "pipeline"},
}
CUDA_ROOMS = {"hopper", "device", "ops", "model", "train", "serve"}
CUDA_HEADER = re.compile(
    r"^(cuda|cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvtx|nvml|nvrtc|cooperative_groups"
    r"|driver_types|vector_types|device_launch_parameters|mma\.h)|^(cutlass|cute|cub|thrust)/")
TOPS = ("apps", "bench", "tests", "examples")
SUFFIXES = {".hpp", ".h", ".cpp", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
ROOM_RULE = re.compile(r"paceline_room\(\s*(\w+)([^)]*)\)")


def includes_of(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def sources_under(folder):
    if folder.is_dir():
        yield from sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES)


def check_room_include(room, path, quote, target):
    """Why the include is wrong, or None."""
    first = target.split("/")[0]
    if CUDA_HEADER.search(target):
        return None if room in CUDA_ROOMS else f"{room} must not see the CUDA header {target}"
    if first in TOPS and "/" in target:
        return f"rooms must not include from {first}/"
    if first not in ALLOWED or "/" not in target:
        if quote == '"':
            return f'"{target}" does not start with a room; write the path from src/'
        return None
    if first == "hopper" and room != "hopper" and not (
            room == "ops" and path.suffix in {".cu", ".cuh"}):
        return "hopper/ is for CUDA sources of ops alone"
    if first in {room, "core"} or first in ALLOWED[room]:
        return None
    allowed = ", ".join(sorted(ALLOWED[room] | {"core"}))
    return f"{room} must not include {first} (allowed: {allowed})"


def check_cmake(file):
    if not file.exists():
        return
    for match in ROOM_RULE.finditer(file.read_text(encoding="utf-8")):
        room, words = match.group(1), match.group(2).split()
        if room not in ALLOWED:
            yield f"{file.name}: room {room} is not in the table"
            continue
        listed = set()
        if "ROOMS" in words:
            for word in words[words.index("ROOMS") + 1:]:
                if word == "LIBS":
                    break
                listed.add(word)
        for extra in sorted(listed - ALLOWED[room] - {"core"}):
            yield f"{file.name}: room {room} lists {extra}, which the table does not allow"


def check(root):
    """All violations under root, as lines of text, and the number of files read."""
    problems, files = [], 0
    source = root / "src"
    for path in sources_under(source):
        files += 1
        room = path.relative_to(source).parts[0]
        where = path.relative_to(root)
        if room not in ALLOWED:
            problems.append(f"{where}: src/{room} is not a room of the table")
            continue
        for number, quote, target in includes_of(path):
            why = check_room_include(room, path, quote, target)
            if why:
                problems.append(f"{where}:{number}: {why}")
    for top in TOPS:
        for path in sources_under(root / top):
            files += 1
            for number, _, target in includes_of(path):
                first = target.split("/")[0]
                if first in TOPS and "/" in target and first != top:
                    problems.append(
                        f"{path.relative_to(root)}:{number}: {top} must not include from {first}/")
    problems.extend(check_cmake(root / "CMakeLists.txt"))
    return problems, files


def self_test():
    cases = [  # file, its text, a part of the problem ("" when there is none)
        ("src/data/a.hpp", '#include "features/batch.hpp"\n#include <vector>', ""),
        ("src/data/a.cpp", '#include "data/a.hpp"\n#include <parquet/file_reader.h>', ""),
        ("src/data/b.hpp", '#include "model/ranker.hpp"', "data must not include model"),
        ("src/data/b_test.cpp", ' #  include "train/x.hpp"', "data must not include train"),
        ("src/data/c.hpp", "#include <cuda_runtime.h>", "CUDA header"),
        ("src/data/d.hpp", "#include <cute/tensor.hpp>", "CUDA header"),
        ("src/device/a.cu", "#include <cuda_runtime.h>", ""),
        ("src/core/a.hpp", '#include "a.hpp"', "path from src/"),
        ("src/core/b.hpp", '#include "../data/a.hpp"', "path from src/"),
        ("src/train/a.cpp", '#include "apps/main.hpp"', "must not include from apps"),
        ("src/ops/a/a.hpp", '#include "hopper/pipe.cuh"', "CUDA sources of ops"),
        ("src/ops/a/a.cu", '#include "hopper/pipe.cuh"', ""),
        ("src/train/b.cpp", '#include "hopper/pipe.cuh"', "CUDA sources of ops"),
        ("src/attic/a.hpp", "", "not a room"),
        ("apps/main.cpp", '#include "train/a.hpp"\n#include "commands.hpp"', ""),
        ("bench/a.cpp", '#include "apps/main.hpp"', "bench must not include from apps"),
        ("CMakeLists.txt", "paceline_room(data ROOMS core model\n  LIBS x)", "lists model"),
        ("CMakeLists.txt", "paceline_room(data ROOMS core pipeline LIBS model)", ""),
    ]
    for name, text, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            problems, _ = check(pathlib.Path(folder))
            found = "\n".join(problems)
            if bool(problems) != bool(expected) or expected not in found:
                sys.exit(f"self-test: {name} with {text!r}: expected {expected!r}, got {found!r}")
    print(f"check_layers: self-test of {len(cases)} cases passed")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    problems, files = check(pathlib.Path(__file__).resolve().parent.parent)
    if files == 0:
        sys.exit("check_layers: no source was found")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(f"check_layers: {len(problems)} includes break the table of rooms")
    print(f"check_layers: {files} files keep to the table of rooms")


if __name__ == "__main__":
    main()
