#!/usr/bin/env python3
"""Writes the first corpus of the fuzz targets: small Parquet files of many encodings, configs, states,
manifests and safetensors files.

  .venv/bin/python tests/fuzz/make_seeds.py        (names begin with `seed-`; finds are kept beside them)
"""
import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent
CORPUS = HERE / "corpus"


def table(mask="int", integer=pa.int64(), lists=pa.list_):
    """Five rows; row 2 has an empty history."""
    history = [[3, 4, 5], [7], [], [1, 2], [9, 9, 9, 9]]
    candidates = [[1], [2, 3], [4], [5, 6, 7], [8]]
    like = {1: [False, True], 2: [True], 3: [], 0: [False]}
    bools = pa.list_(pa.bool_())

    def column(rows, of=integer):
        return pa.array(rows, lists(of))

    masks = [[v % 4 for v in row] for row in history]
    return pa.table({
        "user_id": pa.array([1, 2, 1, 3, 2], integer),
        "request_time": pa.array([1000, 1100, 1200, 1300, 1400], pa.int64()),
        "history_item": column(history),
        "history_time": column([[900 + v for v in row] for row in history], pa.int64()),
        "history_mask": column([[like[m] for m in row] for row in masks], bools) if mask == "bools" else column(masks),
        "candidate_item": column(candidates),
        "candidate_price": column([[v / 8 for v in row] for row in candidates], pa.float32()),
        "candidate_actions": column([[v % 4 for v in row] for row in candidates]),
    })


def parquet():
    folder = CORPUS / "row_group"
    folder.mkdir(parents=True, exist_ok=True)
    plain = dict(compression="none", use_dictionary=False)
    delta = {name: "DELTA_BINARY_PACKED" for name in ("user_id", "request_time", "history_item.list.element")}
    split = {"candidate_price.list.element": "BYTE_STREAM_SPLIT"}
    files = {
        "plain": (table(), plain),
        "bare": (table(), dict(plain, write_statistics=False)),
        "dictionary": (table(), dict(compression="none", use_dictionary=True)),
        "checksums": (table(), dict(plain, write_page_checksum=True)),
        "zstd": (table(), dict(compression="zstd")),
        "snappy": (table(), dict(compression="snappy")),
        "gzip": (table(), dict(compression="gzip")),
        "pages2": (table(), dict(plain, data_page_version="2.0")),
        "pages2_zstd": (table(), dict(compression="zstd", data_page_version="2.0")),
        "small_pages": (table(), dict(plain, data_page_size=8, write_batch_size=2)),
        "delta": (table(), dict(plain, column_encoding=delta)),
        "split": (table(), dict(plain, column_encoding=split)),
        "groups": (table(), dict(plain, row_group_size=2)),
        "int8": (table(integer=pa.int8()), plain),
        "uint32": (table(integer=pa.uint32()), plain),
        "large_list": (table(lists=pa.large_list), plain),
        "legacy_lists": (table(), dict(plain, use_compliant_nested_type=False)),
        "bools": (table(mask="bools"), plain),
        "no_rows": (table().slice(0, 0), plain),
    }
    for name, (data, options) in files.items():
        pq.write_table(data, folder / f"seed-{name}.parquet", store_schema=False, **options)


def text():
    config = CORPUS / "config"
    config.mkdir(parents=True, exist_ok=True)
    for example in sorted((HERE.parents[1] / "examples").glob("*/*.toml")):
        (config / f"seed-{example.parent.name}.toml").write_text(example.read_text())
    (config / "seed-every_kind.toml").write_text("""[run]
dir = "run"
[data]
train = ["a", "b/*.parquet"]
depth = 2
[[features]]
name = "item"
scope = "event"
kind = "id"
history_column = "h"
candidate_column = "c"
rows = 10
hashes = 3
[[features]]
name = "age"
scope = "history"
kind = "bucket"
history_column = "t"
minus = "request_time"
boundaries = [1, 2.5, 1e3]
[[features]]
name = "n"
scope = "user"
kind = "number"
column = "n"
token = "profile"
[[features]]
name = "k"
scope = "candidate"
kind = "category"
column = "k"
rows = 4
[[features]]
name = "m"
scope = "history"
kind = "multi_hot"
column = "m"
size = 64
[[actions]]
name = "like"
bit = 63
weight = 0.5
[[targets]]
name = "dwell"
candidate_column = "d"
loss = "tweedie"
[batch]
tokens = 512
[schedule]
warmup = "10 rows"
""")
    (config / "seed-set.toml").write_text("features[0].rows=3\n")


def folder(name):
    path = CORPUS / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def states():
    state = {
        "format_version": 1, "step": 12, "examples": 100, "tokens": 900, "skipped_steps": 0, "bad_in_a_row": 0,
        "adam_steps": 12, "config": [["train.seed", "1"]],
        "position": {"fingerprint": "00ff00ff00ff00ff", "seed": "1", "shuffle_window": 16, "epoch": 0,
                     "next_row": 100, "rows": 100, "batches": 12},
    }
    (folder("state") / "seed-state.json").write_text(json.dumps(state))
    state |= {
        "format_version": 2, "starts": 2, "run_id": "0" * 32,
        "cuts": dict.fromkeys(("history_events_cut", "candidates_cut", "unknown_actions", "unknown_categories",
                               "request_before_history"), 1),
        "best": {"valid": {"step": 10, "metric": "mean_auc", "value": 0.75}},
        "lineage": [{"run": "1" * 32, "path": "run/checkpoints/step_000000000010", "step": 10, "why": "resume"}],
        "build": {"version": "1", "commit": "", "compiler": "g++ 12", "build_id": "ab"},
        "machine": {"cpu": "one", "onednn": "3", "isa": "avx2", "device": "cpu"},
    }
    state["position"] |= {"skipped_rows": 1, "skipped_blocks": 2,
                          "skipped_in_all": {"rows": 1, "blocks": 2, "rows_of_blocks": 30}}
    (folder("state") / "seed-version2.json").write_text(json.dumps(state))


def manifests():
    def manifest(tables, **more):
        names = ["model.safetensors", "optimizer.safetensors", "state.json", *tables, "MANIFEST.json"]
        return {"format": "paceline-checkpoint", **more,
                "files": [{"name": n, "bytes": 10, "xxh3": "0123456789abcdef"} for n in names]}

    parts = [f"tables-0000{i}-of-00003.safetensors" for i in range(3)]
    for name, found in {
        "manifest": manifest(["tables.safetensors"], version=1, step=12),
        "parts": manifest(parts, version=2, step=12),
        "difference": manifest(["tables.safetensors"], version=2, step=12, base={"step": 11, "xxh3": "f" * 16}),
    }.items():
        # Its own entry names its own size; its hash is put in by the target.
        for _ in range(3):
            found["files"][-1]["bytes"] = len(json.dumps(found, indent=2)) + 1
        (folder("manifest") / f"seed-{name}.json").write_text(json.dumps(found, indent=2) + "\n")


def safetensors():
    def file(tensors, data, metadata=None):
        header = {"__metadata__": metadata} if metadata else {}
        header |= {name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}
                   for name, (dtype, shape, offsets) in tensors.items()}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + bytes(i % 256 for i in range(data))

    for name, found in {
        "none": file({}, 0),
        "scalar": file({"steps": ("I64", [], [0, 8])}, 8),
        "empty": file({"a": ("F32", [0, 4], [0, 0]), "b": ("F32", [2], [0, 8])}, 8),
        "kinds": file({"w": ("F32", [2, 3], [8, 32]), "i": ("I64", [1], [0, 8]), "h": ("BF16", [3], [36, 42]),
                       "n": ("I32", [1], [32, 36]), "u": ("U8", [5], [42, 47])}, 47),
        "rows": file({"table.row_index": ("I64", [2], [0, 16]), "table.rows": ("F32", [2, 2], [16, 32])}, 32,
                     {"begin": "0", "end": "2", "entries": "2", "rows": "9"}),
        "hole": file({"a": ("F32", [1], [4, 8])}, 8),
        "huge": file({"a": ("F32", [2**40, 2**40], [0, 4])}, 4),
    }.items():
        (folder("safetensors") / f"seed-{name}.safetensors").write_bytes(found)


parquet()
text()
states()
manifests()
safetensors()
