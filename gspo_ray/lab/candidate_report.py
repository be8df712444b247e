"""What is known about `lab candidates` from elsewhere, beside our numbers."""

from __future__ import annotations

from typing import Any

from gspo_ray.lab.experiment import Table
from gspo_ray.lab.golden import Check, at_least, equal, shown

DIGITS = 1e-5
# (seed, steps, examples), group size 4, learning rate 0.08: exact values of the reproduction.
GOLDEN: dict[tuple[int, int, int], dict[str, float]] = {
    (42, 300, 512): {
        "baseline accuracy": 0.1640625,
        "final accuracy": 0.828125,
        "baseline mean_reward": 0.3126107,
        "final mean_reward": 0.8508579,
        "final kl_from_reference": 0.7016685,
        "last sequence_ratio_mean": 1.0130756,
        "last sequence_ratio_std": 0.0116878,
        "last clip_fraction": 0.0,
        "rollout_policy_refreshes": 18,
    },
    (42, 120, 256): {
        "baseline accuracy": 0.171875,
        "final accuracy": 0.78125,
        "final kl_from_reference": 0.1384707,
    },
}
PROTOCOL = {"steps": 300, "examples": 512, "group_size": 4, "learning_rate": 0.08}
REQUIRED_SEEDS = [42, 43, 44]
REQUIRED_ACCURACY = 0.80
PEERS = {"GRPO": 0.7813, "DAPO": 0.7578, "RLOO": 0.8281, "PPO": 0.8125}  # same protocol, seed 42


def checks(report: dict[str, Any]) -> list[Check]:
    """Exact values for the settings that have some, the required mean, and the peers for orientation."""
    found = []
    if (report["group_size"], report["learning_rate"]) == (PROTOCOL["group_size"], PROTOCOL["learning_rate"]):
        for one in report["runs"]:
            ours = _values(one)
            golden = GOLDEN.get((one["seed"], report["steps"], report["examples"]), {})
            found += [
                equal(f"{name}, seed {one['seed']}", value, ours[name], within=DIGITS) for name, value in golden.items()
            ]
    if is_required(report):
        mean = report["mean"]["final"]["accuracy"]
        found.append(at_least("mean final accuracy, seeds 42 43 44", REQUIRED_ACCURACY, mean))
        first = report["runs"][0]["final"]["accuracy"]
        found += [
            shown(f"final accuracy of {peer}, seed 42", accuracy, first, why="another algorithm, same protocol")
            for peer, accuracy in PEERS.items()
        ]
    return found


def is_required(report: dict[str, Any]) -> bool:
    seeds = [one["seed"] for one in report["runs"]]
    return seeds == REQUIRED_SEEDS and all(report[name] == value for name, value in PROTOCOL.items())


def table(report: dict[str, Any]) -> Table:
    rows = [["seed", "accuracy before", "after", "mean reward before", "after", "KL", "entropy"]]
    for one in [*report["runs"], {"seed": "mean", **report["mean"]}]:
        before, after = one["baseline"], one["final"]
        rows.append(
            [
                str(one["seed"]),
                f"{before['accuracy']:.4f}",
                f"{after['accuracy']:.4f}",
                f"{before['mean_reward']:.4f}",
                f"{after['mean_reward']:.4f}",
                f"{after['kl_from_reference']:.4f}",
                f"{after['entropy']:.4f}",
            ]
        )
    return Table(title="on the validation questions", rows=rows)


def _values(one: dict[str, Any]) -> dict[str, float]:
    training = one["training"]
    return {
        **{f"baseline {name}": value for name, value in one["baseline"].items()},
        **{f"final {name}": value for name, value in one["final"].items()},
        **{f"last {name}": value for name, value in training["last_diagnostics"].items()},
        "rollout_policy_refreshes": training["rollout_policy_refreshes"],
    }
