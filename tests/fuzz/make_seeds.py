#!/usr/bin/env python3
"""Writes the first corpus of the fuzz targets: small Parquet files of many encodings, configs, states.

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
    position = CORPUS / "position"
    position.mkdir(parents=True, exist_ok=True)
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
    state = {
        "format_version": 1, "step": 12, "examples": 100, "tokens": 900, "skipped_steps": 0, "bad_in_a_row": 0,
        "adam_steps": 12, "config": [["train.seed", "1"]],
        "position": {"fingerprint": "00ff00ff00ff00ff", "seed": "1", "shuffle_window": 16, "epoch": 0,
                     "next_row": 100, "rows": 100, "batches": 12},
    }
    (position / "seed-state.json").write_text(json.dumps(state))
    manifest = {"format": "paceline-checkpoint", "version": 1, "step": 12, "files": [
        {"name": "state.json", "bytes": 10, "xxh3": "0123456789abcdef"},
        {"name": "MANIFEST.json", "bytes": 0, "xxh3": "0" * 16}]}
    # Its own entry names its own size.
    for _ in range(3):
        manifest["files"][1]["bytes"] = len(json.dumps(manifest, indent=2)) + 1
    (position / "seed-manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


parquet()
text()
