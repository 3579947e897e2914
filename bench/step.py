#!/usr/bin/env python3
"""Measures the training step on this machine's GPU; figures are appended to bench/results/step.jsonl.

    bench/step.py [--sizes nano,small,prod] [--peer PYTHON SCRIPT] [--program PACELINE] [--results FILE]

SCRIPT times the same step in PyTorch: `SCRIPT --sizes NAME` prints a JSON line with `size`, `ms` and
`peak_GiB`. Both run in turn, ours first. `paceline bench step` itself checks that every step was applied and
that the loss of a batch fell. Needs a program built with CUDA code (`make build`).
"""
import argparse, datetime, json, os, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def commit():
    known = os.environ.get("PACELINE_COMMIT")
    if known:
        return known
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--sizes", default="nano,small,prod")
    ap.add_argument("--peer", nargs=2, metavar=("PYTHON", "SCRIPT"))
    ap.add_argument("--program", default=os.path.join(ROOT, "build", "release", "paceline"))
    ap.add_argument("--results", default=os.path.join(ROOT, "bench", "results", "step.jsonl"))
    args = ap.parse_args()
    for size in args.sizes.split(","):
        ours = run(args.program, "bench", "step", "--device", "cuda", "--size", size, "--json")[0]
        theirs = None
        if args.peer:
            theirs = run(*args.peer, "--sizes", size)[0]
            if "error" in theirs:
                sys.exit(f"{args.peer[1]}: {theirs['error']}")

        def record(metric, unit, mine, peer=None, other=None, **more):
            line = dict(bench="step", case=size, metric=metric, unit=unit, ours=mine, peer=peer, theirs=other,
                        ratio=round(other / mine, 4) if other else None, device=ours["device"],
                        date=datetime.date.today().isoformat(), commit=commit(),
                        command=f"bench/step.py --sizes {size}", **more)
            with open(args.results, "a") as f:
                f.write(json.dumps(line) + "\n")
            print(json.dumps({k: v for k, v in line.items() if k != "kernels"}), flush=True)

        peer = "PyTorch, compiled, FlexAttention" if theirs else None
        record("ms", "ms", round(ours["ms"], 3), peer, theirs and theirs["ms"], useful_tflops=round(ours["useful_tflops"], 1),
               kernels=ours["kernels"])
        record("ms_without_attention", "ms", round(ours["ms_without_attention"], 3))
        record("memory", "GiB", round(ours["device_bytes"] / 2**30, 3), peer, theirs and theirs["peak_GiB"])


if __name__ == "__main__":
    main()
