#!/usr/bin/env python3
"""Measures checkpoints; figures are appended to bench/results/checkpoint.jsonl.

    bench/checkpoint.py save      saving 1 GiB against dd of the same files on the same disk, in turns
    bench/checkpoint.py restore   restoring it from the disk against a plain read of its files into memory, in turns
    bench/checkpoint.py wait      what the training thread waits for a save of 1 GiB against a plain copy of it
    bench/checkpoint.py training  steps of a run with 1 GiB of state while it saves, against the same steps without
    bench/checkpoint.py kills     a run killed 200 times, resumed each time, against one that was left alone
    bench/checkpoint.py points    every file operation of a save failed, or the process ended there, one at a time
    bench/checkpoint.py flips     a bit flipped in each byte of small files and in 10,000 of large ones
    bench/checkpoint.py trouble   a full disk, a read-only one and a directory that goes away, while a run saves

All check what was saved, to the bit, before a figure counts. They need the tests' build; save, restore, wait and training some
10 GB below --tmp, on the disk that is meant; trouble mounts small file systems in a namespace of its own (unshare).
"""
import argparse, datetime, json, os, re, shutil, statistics, subprocess, sys, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "release")
PROGRAM = os.path.join(BUILD, "paceline")
BENCH = os.path.join(BUILD, "bench", "paceline_bench_checkpoint")
CONFIG = os.path.join(ROOT, "examples", "synth", "config.toml")
MIB = 1024


def run(*command, allowed=(0,), env=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=dict(os.environ, **(env or {})))
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def json_file(path):
    with open(path) as f:
        return json_lines(f.read())


def processor():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else f"{os.cpu_count()} cores"


def record(case, metric, unit, ours, peer=None, theirs=None, smaller_is_better=False):
    ratio = None
    if theirs:
        ratio = round(theirs / ours if smaller_is_better else ours / theirs, 4)
    line = dict(bench="checkpoint", case=case, metric=metric, unit=unit, ours=ours, peer=peer, theirs=theirs, ratio=ratio,
                device=processor(), date=datetime.date.today().isoformat(),
                commit=run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").stdout.strip(),
                command="bench/checkpoint.py " + sys.argv[1])
    os.makedirs(os.path.join(ROOT, "bench", "results"), exist_ok=True)
    with open(os.path.join(ROOT, "bench", "results", "checkpoint.jsonl"), "a") as f:
        f.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)


def middle(pairs):
    """The turn whose ratio is the median: a disk's speed differs from minute to minute."""
    return sorted(pairs, key=lambda p: p[0] / p[1])[len(pairs) // 2]


def files_below(path):
    return sorted(os.path.join(d, f) for d, _, names in os.walk(path) for f in names)


def dd(sources, out):
    start = time.perf_counter()
    for i, source in enumerate(sources):
        run("dd", f"if={source}", f"of={out}/{i}", "bs=1M", "conv=fsync")
    return time.perf_counter() - start


def save(work):
    turns, before = [], None
    for step in range(1, 10):
        def copy(files):
            os.makedirs(f"{work}/copy")
            took = dd(files, f"{work}/copy")
            shutil.rmtree(f"{work}/copy")
            return took

        # Who comes first changes; dd copies what is in memory too: the checkpoint before, or this one.
        first = copy(files_below(before)) if before and step % 2 else None
        saved = json_lines(run(BENCH, "save", f"{work}/saved", MIB, step).stdout)[0]
        copied = first or copy(files_below(saved["path"]))
        if before:
            shutil.rmtree(before)
        before = saved["path"]
        print(f"save {saved['s']:.2f} s, dd {copied:.2f} s", flush=True)
        turns.append((saved["bytes"] / 1e6 / saved["s"], saved["bytes"] / 1e6 / copied))
    ours, theirs = middle(turns)
    record("1 GiB", "save", "MB/s", round(ours), "dd conv=fsync of the same files", round(theirs))


def restore(work):
    turns = json_lines(run(BENCH, "restore", f"{work}/saved", MIB, 9).stdout)
    for t in turns:
        print(f"restore {t['s']:.2f} s, plain read {t['plain_s']:.2f} s", flush=True)
    ours, theirs = middle([(t["bytes"] / 1e6 / t["s"], t["bytes"] / 1e6 / t["plain_s"]) for t in turns])
    record("1 GiB, from the disk", "restore", "MB/s", round(ours), "plain read of the same files into memory", round(theirs))


def wait(work):
    turns = json_lines(run(BENCH, "wait", f"{work}/saved", MIB, 9).stdout)
    for t in turns:
        print(f"wait {t['wait_s'] * 1e3:.0f} ms, copy {t['copy_s'] * 1e3:.0f} ms", flush=True)
    ours, theirs = middle([(t["wait_s"], t["copy_s"]) for t in turns])
    record("1 GiB, no step to hide it", "wait for a save", "ms", round(ours * 1e3, 1), "plain copy of the same state",
           round(theirs * 1e3, 1), True)


def train_command(work, name, steps, *sets):
    return [PROGRAM, "train", CONFIG, *(f"--set={s}" for s in (
        f"data.train={work}/data/train", f"run.dir={work}/{name}", "train.log_every=1", "train.epochs=1000",
        f"train.max_steps={steps}", "checkpoint.every_seconds=0", *sets))]


def train(*what):
    run(*train_command(*what))


def start_training(*what):
    return subprocess.Popen(train_command(*what), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def newest(checkpoints):
    """Hashes of all tensors of the newest checkpoint."""
    steps = sorted(d for d in os.listdir(checkpoints) if d.startswith("step_"))
    with open(f"{checkpoints}/{steps[-1]}/MANIFEST.json") as f:
        return {e["name"]: e["xxh3"] for e in json.load(f)["files"] if e["name"].endswith(".safetensors")}


def losses(run_dir):
    return [(m["step"], m["loss"]) for m in json_file(f"{run_dir}/metrics.jsonl")]


def during_saves(saving, plain):
    """Of each save: its wait, the share of time that steps lost while it was written, the writer's share."""
    steps = {m["step"]: m for m in json_file(f"{saving}/metrics.jsonl")}
    base = {m["step"]: m["step_ms"] for m in json_file(f"{plain}/metrics.jsonl")}
    found = []
    for save in json_file(f"{saving}/saves.jsonl"):
        step, ours, theirs = save["step"] + 1, 0.0, 0.0
        while step in steps and ours < save["write_ms"]:
            # What the loop stood still is told apart.
            ours += steps[step]["step_ms"] - steps[step]["wait_ms"]["save"]
            theirs += base[step]
            step += 1
        if ours < save["write_ms"]:
            continue  # the last one: no steps come after it
        found.append(dict(wait_ms=save["wait_ms"], bytes=save["bytes"], lost=100 * (1 - theirs / ours),
                          writer=100 * save["write_cpu_ms"] / save["write_ms"] / os.cpu_count()))
        print(f"save at {save['step']}: wait {save['wait_ms']:.0f} ms, written in {save['write_ms'] / 1e3:.1f} s, "
              f"{found[-1]['lost']:.1f} % lost, writer {found[-1]['writer']:.1f} % of the processors", flush=True)
    return found


def training(work):
    rows = MIB * 2**20 // (33 * 4)
    run(PROGRAM, "data", "synth", f"{work}/data", "--rows", 12288)
    table = f"features[6].rows={rows}"
    turns, plain_ms, saving_ms = [], [], []
    for turn in range(3):
        for name in ("plain", "saving"):
            shutil.rmtree(f"{work}/{name}", ignore_errors=True)
            train(work, name, 600, table, f"checkpoint.every_steps={200 if name == 'saving' else 0}", "checkpoint.keep_last=1")
        if losses(f"{work}/plain") != losses(f"{work}/saving") or newest(f"{work}/plain/checkpoints") != newest(f"{work}/saving/checkpoints"):
            sys.exit("saving changed the run")
        turns += during_saves(f"{work}/saving", f"{work}/plain")
        whole = lambda name: sum(m["step_ms"] for m in json_file(f"{work}/{name}/metrics.jsonl"))
        plain_ms.append(whole("plain"))
        saving_ms.append(whole("saving"))
    copy = statistics.median(t["copy_s"] for t in json_lines(run(BENCH, "wait", f"{work}/copied", MIB, 5).stdout)) * 1e3
    case = "1 GiB of state, two training threads"
    record(case, "wait for a save", "ms", round(statistics.median(t["wait_ms"] for t in turns), 1),
           "plain copy of the same state", round(copy, 1), True)
    record(case, "time lost by steps while a save is written", "%", round(statistics.median(t["lost"] for t in turns), 1),
           "processor time of the writer", round(statistics.median(t["writer"] for t in turns), 1), True)
    ours, theirs = middle(list(zip(saving_ms, plain_ms)))
    record(case, "600 steps, a save each 200", "s", round(ours / 1e3, 2), "without saves", round(theirs / 1e3, 2), True)


def gtest(program, pattern, env=None):
    done = run(os.path.join(BUILD, *program), f"--gtest_filter={pattern}", env=env)
    passed = re.search(r"\[  PASSED  \] (\d+) test", done.stdout)
    if not passed or int(passed[1]) == 0 or "SKIPPED" in done.stdout:
        sys.exit(f"{pattern}: nothing ran\n{done.stdout}")
    return done.stdout


def kills(_):
    out = gtest(("tests", "paceline_e2e_tests"), "Saves.KillsAtAnyMomentLoseAndRepeatNothing", {"PACELINE_KILLS": "200"})
    found = re.search(r"(\d+) kills, (\d+) steps, all bits equal", out)
    record("a small run that saves every 3 steps", "kills survived, losses and weights bit-equal", "kills", int(found[1]),
           "kills", 200)
    record("a small run that saves every 3 steps", "steps compared", "steps", int(found[2]))


def points(_):
    out = gtest(("paceline_checkpoint_tests",), "*Crash*:Saver.EveryOperation*:Checkpoint.AnyFailure*:Checkpoint.APersistent*")
    found = [(m[1], int(m[2])) for m in re.finditer(r"(.+): (\d+) points, none torn", out)]
    if not found:
        sys.exit(f"the tests name no points:\n{out}")
    total = {}
    for name, count in found:
        total[name] = total.get(name, 0) + count
    for name, count in total.items():
        record("every file operation of a save", name, "points", count, "points", count)


def flips(work):
    for d in json_lines(run(BENCH, "flip", f"{work}/saved", 10_000).stdout):
        case = f"{d['files']} files, {d['flips']:,} flipped bits"
        record(case, "found by verify", "bits", d["by_verify"], "flipped", d["flips"])
        record(case, "found at restore", "bits", d["by_restore"], "flipped", d["flips"])


class SmallDisk:
    """A file system of 64 MiB in memory; in a namespace where mounting is allowed."""

    def __init__(self, path):
        self.path, self.read_only = path, False
        os.makedirs(path)
        run("mount", "-t", "tmpfs", "-o", "size=64m", "none", path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        run("umount", self.path)

    def harm(self, how):
        """Called again and again: what a save frees is taken too."""
        if how == "full disk":
            with open(f"{self.path}/filler", "ab", buffering=0) as f:
                try:
                    while f.write(bytes(1 << 16)):
                        pass
                except OSError:
                    pass
        elif how == "read-only disk":
            if not self.read_only:  # over it: the lock of the run keeps the file system itself from that
                run("mount", "--bind", self.path, self.path)
                run("mount", "-o", "remount,bind,ro", self.path)
            self.read_only = True
        else:
            shutil.rmtree(f"{self.path}/checkpoints", ignore_errors=True)

    def mend(self):
        if self.read_only:
            run("umount", self.path)
        self.read_only = False
        if os.path.exists(f"{self.path}/filler"):
            os.remove(f"{self.path}/filler")


def saves(run_dir):
    try:
        return [s for s in json_file(f"{run_dir}/saves.jsonl") if not s["skipped"]]
    except FileNotFoundError:
        return []


def until(process, condition, act=lambda: None):
    while not condition() and process.poll() is None:
        act()
        time.sleep(0.02)


def troubled(work, small, how, mended):
    name = f"{how}, {'mended' if mended else 'stays'}".replace(", ", "-").replace(" ", "-")
    run_dir, steps = f"{work}/{name}", 150
    shutil.rmtree(f"{small.path}/checkpoints", ignore_errors=True)
    sets = (f"checkpoint.dir={small.path}/checkpoints", "checkpoint.every_steps=2", "checkpoint.keep_last=1",
            f"checkpoint.fail_after={1000 if mended else 3}")
    process = start_training(work, name, steps, *sets)
    until(process, lambda: any(not s["error"] for s in saves(run_dir)))
    failed = lambda: [s["error"] for s in saves(run_dir) if s["error"]]
    if how == "removed directory":
        small.harm(how)
    else:
        until(process, failed, lambda: small.harm(how))
    if mended:
        small.mend()
    out, err = process.communicate()
    small.mend()
    left = lambda: [n for n in sorted(os.listdir(f"{small.path}/checkpoints")) if n.startswith(".step") or "corrupt" in n]
    # What was being written when the disk became read-only can be removed by the next start alone.
    bad = [] if how == "read-only disk" and not mended else left()
    said = how == "removed directory" or (failed() and all(small.path in e for e in failed()))
    if process.returncode != (0 if mended else 1) or not said or bad:
        sys.exit(f"{name}: exit {process.returncode}, failed {failed()[:2]}, left {bad}\n{err[-2000:]}")
    run(PROGRAM, "checkpoint", "verify", run_dir)
    train(work, name, steps, *sets)  # goes on, or has nothing left to do
    if left() or losses(run_dir) != losses(f"{work}/plain") or newest(f"{small.path}/checkpoints") != newest(f"{work}/plain/checkpoints"):
        sys.exit(f"{name}: the run is not that without trouble")
    print(f"{name}: exit {process.returncode}, {len(failed())} of {len(saves(run_dir))} saves failed; {failed()[:1]}", flush=True)


def trouble(work):
    if "PACELINE_BENCH_NAMESPACE" not in os.environ:
        os.environ["PACELINE_BENCH_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-rm", sys.executable, *sys.argv])
    run(PROGRAM, "data", "synth", f"{work}/data", "--rows", 12288)
    train(work, "plain", 150)
    ways = (("full disk", True), ("full disk", False), ("read-only disk", True), ("read-only disk", False),
            ("removed directory", True))
    with SmallDisk(f"{work}/small") as small:
        for how, mended in ways:
            troubled(work, small, how, mended)
    record("full disk, read-only disk, removed directory; mended or not", "ended as configured, nothing torn, bit-equal after",
           "cases", len(ways), "cases", len(ways))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["save", "restore", "wait", "training", "kills", "points", "flips", "trouble"])
    p.add_argument("--tmp", help="folder to work in; default: the system's")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-checkpoint-", dir=a.tmp) as work:
        globals()[a.what](work)


if __name__ == "__main__":
    main()
