#!/usr/bin/env python3
"""Measures `paceline data synth`: rows and events per second, CPU time per row, memory, size.

    bench/synth.py [--rows N] [--threads N] [--turns N] [--tmp FOLDER]

Draws the default world into a temporary folder, once at the default lengths and once with histories
of 418 events on average (450 with the candidates), zstd. The median of the turns by wall time is
appended to bench/results/synth.jsonl. Needs a release build (`make build`).
"""
import argparse, datetime, json, os, re, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LENGTHS = {"default lengths": [], "450 events a row": ["--history", "26-125:0.12,126-509:0.59,510-1022:0.29"]}


def processor():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else f"{os.cpu_count()} cores"


def record(case, metric, unit, ours, command):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    line = dict(bench="synth", case=case, metric=metric, unit=unit, ours=ours, peer=None, theirs=None, ratio=None,
                device=processor(), date=datetime.date.today().isoformat(), commit=commit.stdout.strip(), command=command)
    os.makedirs(os.path.join(ROOT, "bench", "results"), exist_ok=True)
    with open(os.path.join(ROOT, "bench", "results", "synth.jsonl"), "a") as f:
        f.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def draw(program, out, rows, threads, more):
    """Wall and CPU seconds, peak MiB, events and bytes of one run."""
    command = [program, "data", "synth", out, "--rows", str(rows), "--threads", str(threads), "--overwrite"] + more
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    found = re.search(r"(\d+) rows, (\d+) history events, (\d+) candidates", text)
    if status != 0 or not found or int(found[1]) != rows:
        sys.exit(f"{' '.join(command)} failed:\n{text}")
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(out) for f in files)
    return dict(wall=wall, cpu=usage.ru_utime + usage.ru_stime, mib=usage.ru_maxrss / 1024,
                events=int(found[2]) + int(found[3]), bytes=size)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", type=int, default=40960)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--tmp", help="folder for the data; default: the system's")
    p.add_argument("--program", default=os.path.join(ROOT, "build", "release", "paceline"), help=argparse.SUPPRESS)
    a = p.parse_args()
    if not os.path.exists(a.program):
        sys.exit("build/release/paceline is missing: run `make build`")
    command = f"bench/synth.py --rows {a.rows} --threads {a.threads} --turns {a.turns}"
    for case, more in LENGTHS.items():
        with tempfile.TemporaryDirectory(dir=a.tmp) as tmp:
            turns = [draw(a.program, f"{tmp}/data", a.rows, a.threads, more) for _ in range(a.turns)]
        one = sorted(turns, key=lambda t: t["wall"])[len(turns) // 2]
        case = f"{case}, zstd, {a.threads} threads"
        record(case, "rows per second", "rows/s", round(a.rows / one["wall"], 1), command)
        record(case, "events per second", "events/s", round(one["events"] / one["wall"]), command)
        record(case, "events of a row", "events", round(one["events"] / a.rows, 1), command)
        record(case, "CPU time of a row", "ms", round(1e3 * statistics.median(t["cpu"] for t in turns) / a.rows, 4), command)
        record(case, "peak resident memory", "MiB", round(max(t["mib"] for t in turns), 1), command)
        record(case, "size of a row", "bytes", round(one["bytes"] / a.rows), command)


if __name__ == "__main__":
    main()
