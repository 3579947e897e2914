#!/usr/bin/env python3
"""Measures the batch pipeline; figures are appended to bench/results/loader.jsonl.

    bench/loader.py decode   --peer PYTHON SCRIPT   rows per CPU-second against Arrow's decode and Python loaders
    bench/loader.py cores    --peer PYTHON SCRIPT   two cores against one, in turns
    bench/loader.py start    --python PYTHON        first batch at 90 % against 0 % of 10 million rows
    bench/loader.py position --python PYTHON        cost of carrying the position
    bench/loader.py flat     --python PYTHON        memory and threads over epochs and pipelines
    bench/loader.py stalls                          exposed wait under a reader that stalls; docs/stalls.svg

SCRIPT is a Python loader of the same rows: `SCRIPT DIR --make` writes random impressions (zstd Parquet) and
prints JSON lines with `path` and `rows_per_s` for Arrow's decode, vectorised NumPy and a PyTorch DataLoader,
all on one core. PYTHON needs pyarrow and numpy (and torch for SCRIPT). Needs `make build`, and the tests' build for
start, position, flat and stalls.
"""
import argparse, datetime, json, os, statistics, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "release", "paceline")
BENCH = os.path.join(ROOT, "build", "release", "bench", "paceline_bench_loader")

CONFIG = """
[batch]
examples = 64
history_len = 8
candidates = 4
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "history_item_id"
candidate_column = "candidate_item_id"
rows = 100000
[[actions]]
name = "like"
bit = 1
"""

SMALL_ROWS = """
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
out, rows, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
r = np.random.default_rng(3)
def lists(n, low, high):
    length = r.integers(low, high + 1, n); offsets = np.concatenate(([0], np.cumsum(length))).astype(np.int32)
    return pa.array(offsets), offsets[-1]
for f in range(files):
    n = rows // files
    h, hn = lists(n, 0, 3); c, cn = lists(n, 1, 2)
    table = pa.table({
        "user_id": r.integers(1, 100_000, n), "request_time": r.integers(1_780_000_000, 1_780_086_400, n),
        "history_item_id": pa.ListArray.from_arrays(h, pa.array(r.integers(1, 50_000, hn))),
        "candidate_item_id": pa.ListArray.from_arrays(c, pa.array(r.integers(1, 50_000, cn))),
        "candidate_actions": pa.ListArray.from_arrays(c, pa.array(r.integers(0, 4, cn)))})
    pq.write_table(table, f"{out}/part-{f:04d}.parquet", row_group_size=10_000, compression="zstd")
"""


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def processor():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else f"{os.cpu_count()} cores"


def record(case, metric, unit, ours, peer=None, theirs=None, smaller_is_better=False):
    ratio = None
    if theirs:
        ratio = round(theirs / ours if smaller_is_better else ours / theirs, 4)
    line = dict(bench="loader", case=case, metric=metric, unit=unit, ours=ours, peer=peer, theirs=theirs, ratio=ratio,
                device=processor(), date=datetime.date.today().isoformat(),
                commit=run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip(),
                command="bench/loader.py " + sys.argv[1])
    os.makedirs(os.path.join(ROOT, "bench", "results"), exist_ok=True)
    with open(os.path.join(ROOT, "bench", "results", "loader.jsonl"), "a") as f:
        f.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def ours(data, *options):
    return json_lines(run(PROGRAM, "bench", "loader", data, "--json", *options))[0]


def decode(work, peer):
    python, script = peer
    # The loaders take turns: the machine's speed differs from minute to minute.
    turns = []
    for turn in range(3):
        theirs = {d["path"]: d["rows_per_s"] for d in json_lines(run(python, script, work, *(["--make"] if turn == 0 else []))) if "path" in d}
        turns.append((ours(work, "--cores", "1", "--rounds", "3"), theirs))
    case = "1022 history, 64 candidates, one core"
    mine = statistics.median(o["pipeline"]["rows_per_cpu_s"] for o, _ in turns)
    base = statistics.median(o["decode"]["rows_per_cpu_s"] for o, _ in turns)
    record(case, "shuffled packed batches", "rows/CPU-s", round(mine), "Arrow C++ decode of the same columns", round(base))
    record(case, "reading alone", "rows/CPU-s", round(statistics.median(o["read"]["rows_per_cpu_s"] for o, _ in turns)),
           "Arrow C++ decode of the same columns", round(base))
    for path, name in (("arrow", "vectorised NumPy on pyarrow, padded"), ("dataloader", "PyTorch DataLoader, one worker, padded")):
        record(case, f"shuffled packed batches against {path}", "rows/s",
               round(statistics.median(o["pipeline"]["rows_per_s"] for o, _ in turns)), name,
               round(statistics.median(t[path] for _, t in turns)))


def cores(work, peer):
    python, script = peer
    # So many that the last windows, which are cut when nothing is left to read, do not count.
    run(python, script, work, "--make", "--rows", "98304")
    once = ("--rounds", "1", "--epochs", "4")
    pairs = []
    for _ in range(9):
        one = ours(work, "--cores", "1", "--readers", "1", *once)["pipeline"]["rows_per_s"]
        two = ours(work, "--cores", "2", "--readers", "2", "--depth", "4", *once)["pipeline"]["rows_per_s"]
        pairs.append((two / one, two, one))
        print(f"two cores {two:.0f} rows/s, one {one:.0f}: {two / one:.3f}", flush=True)
    # The machine's speed changes from minute to minute: the turn in the middle is recorded, not its fastest sides.
    _, two, one = sorted(pairs)[len(pairs) // 2]
    record("1022 history, 64 candidates, 98,304 rows, 4 epochs", "two cores against one, the middle of nine turns", "rows/s", round(two),
           "one core, one reader", round(one))


def small_rows(work, python, rows, files):
    with open(f"{work}/config.toml", "w") as f:
        f.write(CONFIG)
    os.makedirs(f"{work}/rows")
    run(python, "-c", SMALL_ROWS, f"{work}/rows", rows, files)
    return f"{work}/config.toml", f"{work}/rows"


def start(work, python):
    found = json_lines(run(BENCH, "start", *small_rows(work, python, 10_000_000, 20)))[0]
    record("10 million small rows, 1,000 row groups", "first batch at 90 % against 0 %", "ms",
           round(found["first_batch_at_90_s"] * 1e3, 2), "the same at 0 %", round(found["first_batch_at_0_s"] * 1e3, 2), True)
    record("10 million small rows, 1,000 row groups", "opening 20 files", "ms", round(found["open_s"] * 1e3, 1))


def position(work, python):
    found = json_lines(run(BENCH, "position", *small_rows(work, python, 1_000_000, 2)))[0]
    record("1 million small rows", "carrying the position", "ns/batch", round(found["ns_per_batch"]))
    record("1 million small rows", "carrying the position, of a 10 ms step", "%", round(found["ns_per_batch"] / 1e7 * 100, 5))


def flat(work, python):
    found = json_lines(run(BENCH, "flat", *small_rows(work, python, 1_000_000, 4)))
    epochs = [d for d in found if d["after"] == "epoch"]
    pipes = [d for d in found if d["after"] == "pipelines"]
    record("4 epochs of 1 million rows, two readers", "resident memory, fourth epoch against the second", "MiB",
           round(epochs[3]["resident_kib"] / 1024, 1), "after the second epoch", round(epochs[1]["resident_kib"] / 1024, 1), True)
    record("100 pipelines opened and left early", "resident memory, after 100 against after 10", "MiB",
           round(pipes[1]["resident_kib"] / 1024, 1), "after 10 pipelines", round(pipes[0]["resident_kib"] / 1024, 1), True)
    record("100 pipelines opened and left early", "threads, after 100 against after 10", "threads", pipes[1]["threads"],
           "after 10 pipelines", pipes[0]["threads"], True)


def plot(lines):
    left, top, width, height = 60, 20, 420, 220
    most = max(max(d["measured_wait_percent"], d["simulated_wait_percent"]) for d in lines) * 1.1
    x = lambda i: left + width * (i + 0.5) / len(lines)
    y = lambda percent: top + height * (1 - percent / most)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 20}" height="{top + height + 50}" '
           'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for percent in range(0, int(most) + 1, 5):
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y(percent):.1f}" y2="{y(percent):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(percent) + 4:.1f}" text-anchor="end">{percent} %</text>')
    points = " ".join(f'{x(i):.1f},{y(d["simulated_wait_percent"]):.1f}' for i, d in enumerate(lines))
    out.append(f'<polyline points="{points}" fill="none" stroke="#c60" stroke-width="2"/>')
    for i, d in enumerate(lines):
        out.append(f'<circle cx="{x(i):.1f}" cy="{y(d["measured_wait_percent"]):.1f}" r="5" fill="#036"/>'
                   f'<text x="{x(i):.1f}" y="{top + height + 18}" text-anchor="middle">{d["depth"]}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle">depth</text>'
               f'<text x="{left + width - 170}" y="{top + 12}" fill="#036">● measured exposed wait</text>'
               f'<text x="{left + width - 170}" y="{top + 28}" fill="#c60">— simulated queue</text></svg>\n')
    with open(os.path.join(ROOT, "docs", "stalls.svg"), "w") as f:
        f.write("\n".join(out))


def stalls():
    lines = json_lines(run(BENCH, "stalls"))
    for d in lines:
        record(f"20 ms steps, reads of 5 ms, one in 50 stalls 200 ms, depth {d['depth']}", "exposed wait", "% of time",
               round(d["measured_wait_percent"], 2), "simulated queue", round(d["simulated_wait_percent"], 2), True)
    plot(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["decode", "cores", "start", "position", "flat", "stalls"])
    p.add_argument("--peer", nargs=2, metavar=("PYTHON", "SCRIPT"))
    p.add_argument("--python", default=sys.executable)
    a = p.parse_args()
    if a.what in ("decode", "cores") and not a.peer:
        p.error(f"{a.what} needs --peer")
    with tempfile.TemporaryDirectory(prefix="paceline-loader-") as work:
        if a.what == "stalls":
            stalls()
        elif a.what in ("decode", "cores"):
            globals()[a.what](work, a.peer)
        else:
            globals()[a.what](work, a.python)


if __name__ == "__main__":
    main()
