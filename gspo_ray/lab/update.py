"""`lab update`: one frozen batch, a few SGD steps, and the plateau where every gradient is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gspo_ray.lab import bounds, decisions
from gspo_ray.lab.experiment import Experiment, Table
from gspo_ray.lab.figures_toy import draw_update
from gspo_ray.lab.golden import Check, equal

GOLDEN_SETTINGS = {"steps": 5, "learning_rate": 0.5, "epsilon": 0.2}
GOLDEN_ADVANTAGES = (-1.41421, 0.0, 0.0, 1.41421)
GOLDEN_REWARDS = (0.5, 0.5440794421, 0.5871459958, 0.6279859323, 0.6279859323, 0.6279859323)
GOLDEN_OBJECTIVES = (0.0, 0.0623377431, 0.1232430456, 0.1414213522)
GOLDEN_PLATEAU_RATIOS = (0.744028, 1.255972)  # of answers 00 and 11
GOLDEN_PLATEAU_FLAT = 0.5  # share of answers whose gradient is cut; the other two have no advantage


def run(*, steps: int = 5, learning_rate: float = 0.5, epsilon: float = 0.2) -> Experiment:
    """The four answers once each, old log-probs those of the uniform policy.

    Raises ConfigError for a parameter out of bounds.
    """
    settings = {
        "steps": bounds.whole("--steps", steps, at_least=1, at_most=10_000),
        "learning_rate": bounds.learning_rate(learning_rate),
        "epsilon": bounds.epsilon(epsilon),
    }
    answers_BT = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    logits_TV = decisions.uniform_logits()
    old_logprobs_BT = decisions.token_logprobs(logits_TV, answers_BT).detach()
    rewards_B = decisions.rewards(answers_BT)
    advantages_B = decisions.population_advantages([rewards_B.tolist()])
    optimizer = torch.optim.SGD([logits_TV], lr=learning_rate)
    history: list[dict[str, Any]] = []
    for step in range(steps + 1):
        logprobs_BT = decisions.token_logprobs(logits_TV, answers_BT)
        loss, terms = decisions.gspo(logprobs_BT, old_logprobs_BT, advantages_B, epsilon)
        history.append(
            {
                "step": step,
                "objective": 0.0 - float(loss.detach()),  # no -0.0
                "exact_expected_reward": decisions.expected_reward(logits_TV),
                "ratios": terms.log_ratio_B.exp().tolist(),
                "flat_fraction": float((terms.clipped_tokens_B > 0).double().mean()),
            }
        )
        if step < steps:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    report = {
        "experiment": "update",
        "scope": "one fixed batch of all four answers; no sampling, no KL, no model",
        "torch": torch.__version__,
        **settings,
        "responses": answers_BT.tolist(),
        "rewards": rewards_B.tolist(),
        "advantages": advantages_B.tolist(),
        "history": history,
    }
    return Experiment(
        name="update",
        title=f"One frozen batch of four answers, {steps} SGD steps of GSPO, epsilon {epsilon:g}",
        report=report,
        checks=_checks(advantages_B.tolist(), history) if settings == GOLDEN_SETTINGS else (),
        tables=[_table(history)],
        notes=["Golden values: a public GSPO tutorial; known for 5 steps, learning rate 0.5, epsilon 0.2."],
        size_inches=(12.0, 4.6),
        draw=draw_update,
    )


def _checks(advantages_B: Sequence[float], history: Sequence[dict[str, Any]]) -> list[Check]:
    checks = [
        equal(f"advantage of answer {i:02b}", golden, advantages_B[i], within=5e-6)
        for i, golden in enumerate(GOLDEN_ADVANTAGES)
    ]
    checks += [
        equal(f"expected reward after step {step}", golden, history[step]["exact_expected_reward"], within=5e-11)
        for step, golden in enumerate(GOLDEN_REWARDS)
    ]
    checks += [
        equal(f"objective after step {step}", golden, history[step]["objective"], within=5e-11)
        for step, golden in enumerate(GOLDEN_OBJECTIVES)
    ]
    plateau = history[-1]
    checks += [
        equal(f"ratio of answer {name} on the plateau", golden, plateau["ratios"][row], within=5e-7)
        for name, row, golden in zip(("00", "11"), (0, 3), GOLDEN_PLATEAU_RATIOS, strict=True)
    ]
    return [*checks, equal("flat share on the plateau", GOLDEN_PLATEAU_FLAT, plateau["flat_fraction"], within=0)]


def _table(history: Sequence[dict[str, Any]]) -> Table:
    rows = [["step", "objective", "expected reward", "ratio 00", "ratio 11", "flat share"]]
    rows += [
        [
            str(row["step"]),
            f"{row['objective']:.10f}",
            f"{row['exact_expected_reward']:.10f}",
            f"{row['ratios'][0]:.6f}",
            f"{row['ratios'][3]:.6f}",
            f"{row['flat_fraction']:.2f}",
        ]
        for row in history[:21]
    ]
    more = f" (the first 20 of {len(history) - 1})" if len(history) > 21 else ""
    return Table(title=f"after each step{more}", rows=rows)
