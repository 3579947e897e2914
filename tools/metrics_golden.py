#!/usr/bin/env python3
"""Writes src/train/metrics_golden.inc: scored candidates and their metrics by scikit-learn.

Run by hand where scikit-learn is installed; the test reads the stored file and needs no Python:
    python3 tools/metrics_golden.py > src/train/metrics_golden.inc
"""

import warnings

import numpy as np
import sklearn
from sklearn.metrics import log_loss, ndcg_score, roc_auc_score

SEED = 20240611


def case(rng, name, examples, users, candidates, levels, scale, rate, k):
    """Logits on a grid of 1/`levels` (coarse grids tie often); users, examples of mixed sizes."""
    user = rng.integers(0, users, examples)
    size = rng.integers(1, candidates + 1, examples)
    owner = np.repeat(np.arange(examples), size)
    bias = rng.normal(0, 1, users)
    logit = np.round(rng.normal(0, scale, owner.size) * levels) / levels
    label = (rng.random(owner.size) < 1 / (1 + np.exp(-(rate + bias[user[owner]] + 0.7 * logit)))).astype(int)
    logit = logit.astype(np.float32).astype(np.float64)
    return name, user * 1000003 - 7, owner, logit, label, k


def metrics(user, owner, logit, label, k):
    p = 1 / (1 + np.exp(-logit))
    by_user, weight = [], []
    per_candidate = user[owner]
    for u in np.unique(per_candidate):
        m = per_candidate == u
        if 0 < label[m].sum() < m.sum():
            by_user.append(roc_auc_score(label[m], logit[m]))
            weight.append(m.sum())
    gains = []
    for e in range(len(user)):
        m = owner == e
        if label[m].sum() == 0:
            continue
        # ndcg_score refuses single candidates, whose NDCG is 1.
        gains.append(ndcg_score([label[m]], [logit[m]], k=k) if m.sum() > 1 else 1.0)
    rate = label.mean()
    loss = log_loss(label, p)
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    return dict(
        auc=roc_auc_score(label, logit),
        user_auc=np.average(by_user, weights=weight),
        ne=loss / entropy,
        calibration=p.sum() / label.sum(),
        ndcg=np.mean(gains),
        log_loss=loss,
        users_one_class=len(np.unique(user)) - len(by_user),
        examples_without_positive=len(user) - len(gains),
    )


def main():
    warnings.simplefilter("error")
    rng = np.random.default_rng(SEED)
    cases = [
        case(rng, "many ties", 150, 12, 9, 2, 1.5, 0.0, 10),
        case(rng, "few ties", 300, 40, 8, 64, 2.0, -0.5, 10),
        case(rng, "rare positives", 400, 60, 6, 16, 1.0, -3.0, 10),
        case(rng, "cut at 3", 60, 5, 20, 4, 2.0, 0.5, 3),
        case(rng, "large logits", 80, 10, 5, 8, 9.0, 0.0, 5),
    ]
    print("// Written by tools/metrics_golden.py: do not edit.")
    print(f"// scikit-learn {sklearn.__version__}, numpy {np.__version__}, seed {SEED}.")
    print("// clang-format off")
    for name, user, owner, logit, label, k in cases:
        m = metrics(user, owner, logit, label, k)
        print(f'{{"{name}", {k},')
        print(" {" + ",".join(str(u) for u in user) + "},")
        print(" {" + ",".join(str(o) for o in owner) + "},")
        print(" {" + ",".join(repr(float(x)) for x in logit) + "},")
        print(" {" + ",".join(str(y) for y in label) + "},")
        values = ", ".join(f"{float(m[x])!r}" for x in ("auc", "user_auc", "ne", "calibration", "ndcg", "log_loss"))
        print(f' {{{values}}}, {m["users_one_class"]}, {m["examples_without_positive"]}}},')


if __name__ == "__main__":
    main()
