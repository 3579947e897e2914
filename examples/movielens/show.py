#!/usr/bin/env python3
"""Prints one user's ranked candidates with titles: show.py INPUT.parquet RANKED.parquet ITEMS

INPUT is a file of impressions, RANKED what `paceline rank` wrote for it, ITEMS the item file of
MovieLens-100K. Shown is the newest request with eight candidates and at least 32 events of
history, beside what the user did with each candidate. `--user ID` chooses another user's newest.
"""
import argparse
import datetime

import pyarrow.parquet as pq

LIKE, DISLIKE, LOVE = 2, 4, 8


def read_titles(path):
    titles = {}
    with open(path, encoding="utf-8") as file:
        next(file)
        for line in file:
            item, title, year = line.rstrip("\n").split("\t")[:3]
            titles[int(item)] = f"{title} ({year})" if year.isdigit() else title
    return titles


def describe(actions):
    if actions & LOVE:
        return "loved (5 stars)"
    if actions & LIKE:
        return "liked (4 stars)"
    return "disliked (1-2 stars)" if actions & DISLIKE else "3 stars"


def newest_row(table, user):
    """Index of the row to show. Rows are ordered by time."""
    columns = [table[name].to_pylist() for name in ("user_id", "candidate_item_id", "history_item_id")]
    for row in range(table.num_rows - 1, -1, -1):
        who, candidates, history = (column[row] for column in columns)
        if who == user or (user is None and len(candidates) == 8 and len(history) >= 32):
            return row
    raise SystemExit("no such request in the input")


def main():
    parser = argparse.ArgumentParser()
    for name in ("input", "ranked", "items"):
        parser.add_argument(name)
    parser.add_argument("--user", type=int)
    args = parser.parse_args()

    table, ranked, titles = pq.read_table(args.input), pq.read_table(args.ranked), read_titles(args.items)
    index = newest_row(table, args.user)
    row, scores = (t.slice(index, 1).to_pylist()[0] for t in (table, ranked))
    if row["candidate_item_id"] != scores["candidate_item_id"]:
        raise SystemExit("the ranked file does not belong to the input")

    when = datetime.datetime.fromtimestamp(row["request_time"], datetime.timezone.utc)
    liked = [titles[i] for i, a in zip(row["history_item_id"], row["history_actions"]) if a & LIKE]
    print(f"User {row['user_id']}, {when:%Y-%m-%d %H:%M}, after {len(row['history_item_id'])} rated films,")
    print(f"last liked: {', '.join(liked[-3:]) or 'none'}")
    print(f"\n  {'':2} {'score':>6}  {'candidate':<48} what the user did")
    order = sorted(range(len(scores["score"])), key=lambda i: -scores["score"][i])
    for place, i in enumerate(order, 1):
        title = titles[row["candidate_item_id"][i]]
        print(f"  {place:2} {scores['score'][i]:6.3f}  {title[:48]:<48} {describe(row['candidate_actions'][i])}")


if __name__ == "__main__":
    main()
