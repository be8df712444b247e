"""Speed of the verifier processes against bare math-verify in one process, on a file of recorded answers.

    python -m gspo_ray.bench.reward FILE [--workers 2] [--rounds 5] [--json]

Bare: parse(gold in a box), parse(completion), verify, with the library's defaults, in the main thread of this process.
Both sides are warm; they take turns and medians are compared, because the machine may have other work.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gspo_ray.audit.records import Columns, Record, read_records
from gspo_ray.errors import UserError
from gspo_ray.reward.workers import VerifierPool

GOAL = 0.9  # of the number of processes


def bench_reward(records: Sequence[Record], *, num_workers: int, rounds: int) -> dict[str, Any]:
    """Seconds for 1,000 answers on both sides, each round and in the median, and their ratio."""
    from gspo_ray.reward.library import bare_verdict  # heavy

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    items = [(record.completion, record.gold) for record in records]
    bare, pooled = [], []
    with VerifierPool(num_workers, timeout_s=5.0, memory_limit_mib=2048) as pool:
        pool.examine(items)  # warm: grammar tables, processes
        for item in items:
            bare_verdict(*item)
        for _ in range(rounds):
            started = time.perf_counter()
            pool.examine(items)
            pooled.append(1000 * (time.perf_counter() - started) / len(items))
            started = time.perf_counter()
            for item in items:
                bare_verdict(*item)
            bare.append(1000 * (time.perf_counter() - started) / len(items))
    ratios = [one / other for one, other in zip(bare, pooled, strict=True)]
    return {
        "num_items": len(items),
        "num_workers": num_workers,
        "bare_s_per_1000": bare,
        "pool_s_per_1000": pooled,
        "median_bare_s_per_1000": statistics.median(bare),
        "median_pool_s_per_1000": statistics.median(pooled),
        "ratios": ratios,
        "median_ratio": statistics.median(ratios),
        "goal": GOAL * num_workers,
    }


def _print(report: dict[str, Any]) -> None:
    print(f"{report['num_items']} answers, seconds for 1,000 of them")
    print(f"{'round':>8} {'bare':>8} {report['num_workers']:>4} processes {'ratio':>8}")
    columns = (report["bare_s_per_1000"], report["pool_s_per_1000"], report["ratios"])
    for number, (bare, pool, ratio) in enumerate(zip(*columns, strict=True), start=1):
        print(f"{number:>8} {bare:>8.3f} {pool:>14.3f} {ratio:>8.2f}")
    medians = (report["median_bare_s_per_1000"], report["median_pool_s_per_1000"], report["median_ratio"])
    print(f"{'median':>8} {medians[0]:>8.3f} {medians[1]:>14.3f} {medians[2]:>8.2f}   goal {report['goal']:.2f}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gspo_ray.bench.reward", description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE", help="JSONL with boxed answers")
    parser.add_argument("--gold", default="gold", metavar="COLUMN")
    parser.add_argument("--completion", default="completion", metavar="COLUMN")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    args = parser.parse_args(argv)
    try:
        records = read_records(args.file, Columns(args.gold, args.completion, None), limit=args.limit)
        report = bench_reward(records, num_workers=max(1, args.workers), rounds=max(1, args.rounds))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        _print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
