"""Rewards of groups to advantages. `by_hand` repeats what the description derives."""

from __future__ import annotations

from typing import Any

from tests.conformance.oracle import Case

Groups = list[list[float | None]]

MIXED: Groups = [[1.0, 0.0, 0.0, 0.0], [0.0, 2.0], [1.0, 1.0, 0.5, 0.25]]


def case(name: str, description: str, kind: str, rewards: Groups, by_hand: Any = None) -> Case:
    made: Case = {
        "name": name,
        "kind": "advantages",
        "description": description,
        "settings": {"kind": kind},
        "inputs": {"rewards": rewards},
    }
    return made if by_hand is None else {**made, "by_hand": by_hand}


def cases() -> list[Case]:
    one_of_four: Groups = [[1.0, 0.0, 0.0, 0.0]]
    return [
        case(
            "advantages_sample",
            "Mean 1/4; squares (9 + 1 + 1 + 1) / 16 = 3/4, over N - 1 = 3: std 1/2. 0.75 and -0.25 over 0.5 + 1e-8.",
            "sample",
            one_of_four,
            [[0.75 / 0.50000001] + [-0.25 / 0.50000001] * 3],
        ),
        case(
            "advantages_population",
            "The same with N = 4: std sqrt(3) / 4 = 0.4330127.",
            "population",
            one_of_four,
            [[0.75 / (3**0.5 / 4 + 1e-8)] + [-0.25 / (3**0.5 / 4 + 1e-8)] * 3],
        ),
        case("advantages_mean_only", "Reward less 1/4.", "mean_only", one_of_four, [[0.75, -0.25, -0.25, -0.25]]),
        case(
            "advantages_leave_one_out",
            "1 less the others' mean 0; 0 less the others' mean 1/3.",
            "leave_one_out",
            one_of_four,
            [[1.0, -1 / 3, -1 / 3, -1 / 3]],
        ),
        case(
            "advantages_batch",
            "All rewards 1 0 0 0 | 0 2 as one group: mean 1/2, squares 5 * 0.25 + 2.25 = 3.5, over 5: std sqrt(0.7).",
            "batch",
            [[1.0, 0.0, 0.0, 0.0], [0.0, 2.0]],
            [
                [0.5 / (0.7**0.5 + 1e-8)] + [-0.5 / (0.7**0.5 + 1e-8)] * 3,
                [-0.5 / (0.7**0.5 + 1e-8), 1.5 / (0.7**0.5 + 1e-8)],
            ],
        ),
        case(
            "advantages_degenerate",
            "Equal rewards: exactly 0. The mean of three times 0.1 is not 0.1 in floating point; that residue over "
            "1e-8 would be an advantage.",
            "sample",
            [[0.1, 0.1, 0.1], [1.0, 1.0], [0.0, 0.0, 0.0, 0.0]],
            [[0.0] * 3, [0.0] * 2, [0.0] * 4],
        ),
        case(
            "advantages_never_judged",
            "null was never judged: it counts nowhere and gets 0. 1 and 0 remain: mean 1/2, std sqrt(1/2).",
            "sample",
            [[1.0, None, 0.0], [None, 1.0], [None, None]],
            [[0.5 / (0.5**0.5 + 1e-8), 0.0, -0.5 / (0.5**0.5 + 1e-8)], [0.0, 0.0], [0.0, 0.0]],
        ),
        *(
            case(f"advantages_groups_{kind}", "Groups of different sizes.", kind, MIXED)
            for kind in ("sample", "population", "mean_only", "leave_one_out", "batch")
        ),
    ]
