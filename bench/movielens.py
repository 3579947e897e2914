#!/usr/bin/env python3
"""Measures the MovieLens example: learning quality, training speed, the whole quickstart, memory.

    bench/movielens.py quality    --peer PYTHON SCRIPT   test AUC, per-user AUC and NE, seeds 1-3
    bench/movielens.py speed      --peer PYTHON SCRIPT   training examples/s, side by side, in turns
    bench/movielens.py quickstart                        import + train + eval + rank, wait, memory

SCRIPT is a PyTorch program for the same rows and model; it takes the data folder and the options
--seed, --threads, --history, --time-steps, and prints JSON lines (`test` with auc, user_auc, ne; or
`examples_per_s`). The peer always runs in the same run as ours, in turns. Figures are appended to
bench/results/movielens.jsonl, one object a line. Needs a release build (`make build`).
"""
import argparse, datetime, glob, json, os, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "release", "paceline")
CONFIG = os.path.join(ROOT, "examples", "movielens", "config.toml")
SEEDS = (1, 2, 3)


def run(*command, check=True):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def processor():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else f"{os.cpu_count()} cores"


def record(case, metric, unit, ours, command, peer=None, theirs=None, smaller_is_better=False):
    ratio = None
    if theirs:
        ratio = round(theirs / ours if smaller_is_better else ours / theirs, 4)
    line = dict(bench="movielens", case=case, metric=metric, unit=unit, ours=ours, peer=peer, theirs=theirs,
                ratio=ratio, device=processor(), date=datetime.date.today().isoformat(),
                commit=run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip(), command=command)
    os.makedirs(os.path.join(ROOT, "bench", "results"), exist_ok=True)
    with open(os.path.join(ROOT, "bench", "results", "movielens.jsonl"), "a") as f:
        f.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def inter_file():
    found = glob.glob(os.path.join(ROOT, ".venv/lib/python3*/site-packages/recbole/dataset_example/ml-100k/ml-100k.inter"))
    if not found:
        sys.exit("MovieLens-100K is not installed: run `make setup`")
    return found[0]


def train(work, data, *sets):
    """Trains into `work`; returns what the program printed and its metrics lines."""
    options = [f"run.dir={work}"] + [f"data.{s}={data}/{s}.parquet" for s in ("train", "valid", "test")] + list(sets)
    text = run(PROGRAM, "train", CONFIG, *[x for o in options for x in ("--set", o)])
    with open(f"{work}/metrics.jsonl") as f:
        return text, [json.loads(line) for line in f]


def quality(a, tmp, data):
    ours, theirs = [], []
    for seed in SEEDS:
        work = f"{tmp}/quality-{seed}"
        train(work, data, f"train.seed={seed}", f"data.seed={seed}", "eval.every_steps=0")
        run(PROGRAM, "eval", work, "--split", "test", "--set", "eval.bootstrap=0")
        with open(f"{work}/eval.jsonl") as f:
            ours.append(next(o for o in map(json.loads, f) if o["action"] == "like"))
        if a.peer:
            lines = [json.loads(x) for x in run(*a.peer, data, "--seed", seed, "--threads", 2).splitlines()]
            theirs.append(lines[-1]["test"])
    command = a.command
    for metric, smaller in (("auc", False), ("user_auc", False), ("ne", True)):
        mean = lambda rows: round(statistics.mean(r[metric] for r in rows), 5) if rows else None
        record("test, like, mean of seeds 1-3", metric, "", mean(ours), command,
               "PyTorch" if theirs else None, mean(theirs), smaller)


def speed(a, tmp, data):
    """Median step of the same 20 batches after 3 to warm up, ours and the peer's in turns."""
    ours, theirs = [], []
    for turn in range(a.turns):
        _, lines = train(f"{tmp}/speed-{turn}", data, "batch.history_len=128", "data.shuffle_window=0",
                         "train.max_steps=23", "train.log_every=1", "train.threads=2", "eval.every_steps=0")
        step_ms = statistics.median(x["step_ms"] for x in lines[3:23])
        assert all(x["loss"] is not None and 0 < x["loss"] < 10 for x in lines), "losses look wrong"
        ours.append(64 / step_ms * 1e3)
        if a.peer:
            out = run(*a.peer, data, "--history", 128, "--threads", 2, "--time-steps", 20)
            theirs.append(json.loads(out.splitlines()[-1])["examples_per_s"])
    median = lambda x: round(statistics.median(x), 1) if x else None
    record("training, history 128, batch 64, two threads", "examples_per_s", "examples/s", median(ours),
           a.command, "PyTorch" if theirs else None, median(theirs))


def quickstart(a, tmp, data):
    start = time.perf_counter()
    run(PROGRAM, "data", "import", "movielens", inter_file(), f"{tmp}/imported")
    imported = time.perf_counter()
    sets = [f"run.dir={tmp}/quick"] + [f"data.{s}={tmp}/imported/{s}.parquet" for s in ("train", "valid", "test")]
    sets.append("train.log_every=1")
    process = subprocess.Popen([PROGRAM, "train", CONFIG] + [x for o in sets for x in ("--set", o)],
                               stdout=subprocess.DEVNULL)
    resident = []
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        try:
            with open(f"/proc/{process.pid}/status") as f:
                resident += [int(x.split()[1]) / 1024 for x in f if x.startswith("VmRSS")]
        except OSError:
            pass
        time.sleep(0.2)
    if status != 0:
        sys.exit("training failed")
    trained = time.perf_counter()
    run(PROGRAM, "eval", f"{tmp}/quick", "--split", "test")
    run(PROGRAM, "rank", f"{tmp}/quick", f"{tmp}/imported/test.parquet", "-o", f"{tmp}/scores.parquet")
    end = time.perf_counter()
    command = a.command
    record("import + train + eval + rank", "wall", "s", round(end - start, 2), command)
    record("of it, train", "wall", "s", round(trained - imported, 2), command)
    with open(f"{tmp}/quick/metrics.jsonl") as f:
        lines = [json.loads(x) for x in f]
    wait, step = sum(x["wait_ms"]["batches"] for x in lines), sum(x["step_ms"] for x in lines)
    record("training", "exposed wait of the batch pipeline", "% of step time", round(100 * wait / step, 4), command)
    record("training", "peak resident memory", "MiB", round(usage.ru_maxrss / 1024, 1), command)
    steady = resident[len(resident) // 3:-1]
    if steady:
        record("training, after the first third", "growth of resident memory", "MiB", round(max(steady) - min(steady), 1), command)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("quality", "speed", "quickstart"))
    p.add_argument("--peer", nargs=2, metavar=("PYTHON", "SCRIPT"))
    p.add_argument("--turns", type=int, default=5)
    a = p.parse_args()
    # As given, but for where the peer lies.
    a.command = f"bench/movielens.py {a.what}" + (" --peer python3 " + os.path.basename(a.peer[1]) if a.peer else "")
    if not os.path.exists(PROGRAM):
        sys.exit("build/release/paceline is missing: run `make build`")
    with tempfile.TemporaryDirectory() as tmp:
        data = f"{tmp}/data"
        run(PROGRAM, "data", "import", "movielens", inter_file(), data)
        {"quality": quality, "speed": speed, "quickstart": quickstart}[a.what](a, tmp, data)


if __name__ == "__main__":
    main()
