#!/usr/bin/env python3
"""Row counts and digests of an imported MovieLens, as stored in src/data/movielens_test.cpp.

usage: movielens_digest.py DIR     DIR holds train.parquet, valid.parquet and test.parquet

The digest is FNV-1a over 64-bit words: h = (h xor word) * 0x100000001b3, from 0xcbf29ce484222325.
The words are, column by column in the file's order: for a scalar column its values; for a list
column the length of each list, then all values.
"""
import sys

import pyarrow.parquet as pq

MASK = (1 << 64) - 1


def digest(table):
    h = 0xCBF29CE484222325
    for column in table.columns:
        values = column.to_pylist()
        if values and isinstance(values[0], list):
            words = [len(v) for v in values] + [x for v in values for x in v]
        else:
            words = values
        for word in words:
            h = ((h ^ (word & MASK)) * 0x100000001B3) & MASK
    return h


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for split in ("train", "valid", "test"):
        table = pq.read_table(f"{sys.argv[1]}/{split}.parquet")
        candidates = sum(len(c) for c in table["candidate_item_id"].to_pylist())
        print(f'{{"{split}", {table.num_rows}, {candidates}, 0x{digest(table):016x}U}},')


if __name__ == "__main__":
    main()
