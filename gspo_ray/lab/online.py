"""`lab online`: the whole loop on the two-decision policy: sample, freeze the old log-probs, update, sample again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gspo_ray.algo.advantages import is_degenerate
from gspo_ray.algo.kl import token_kl
from gspo_ray.algo.losses import sequence_log_ratio
from gspo_ray.lab import bounds, decisions
from gspo_ray.lab.experiment import Experiment, Table
from gspo_ray.lab.figures_toy import draw_online
from gspo_ray.lab.golden import Check, equal

# (beta, seed) -> exact expected reward after the last round, with the default settings. The random stream that gives
# them: one CPU generator seeded once; a round draws its first tokens, then its second ones, by torch.multinomial.
GOLDEN_FINAL_REWARDS = {
    (0.0, 0): 0.983443,
    (0.0, 1): 0.979609,
    (0.0, 2): 0.983805,
    (1.0, 0): 0.661570,
    (1.0, 1): 0.663586,
    (1.0, 2): 0.666853,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineSettings:
    rounds: int = 20
    groups: int = 8
    group_size: int = 8
    updates: int = 3  # SGD steps on one round's answers
    learning_rate: float = 0.5
    epsilon: float = 0.2

    def check(self) -> None:
        """Raises ConfigError for the first value out of bounds."""
        for name in ("rounds", "groups", "updates"):
            bounds.whole(f"--{name}", getattr(self, name), at_least=1)
        bounds.whole("--group-size", self.group_size, at_least=2)
        bounds.whole("--groups times --group-size", self.groups * self.group_size, at_least=2)
        bounds.learning_rate(self.learning_rate)
        bounds.epsilon(self.epsilon)


def run(
    *, seeds: Sequence[int] = (0, 1, 2), betas: Sequence[float] = (0.0, 1.0), settings: OnlineSettings | None = None
) -> Experiment:
    """One run a beta and seed. `beta` weighs the exact KL to the initial policy. Raises ConfigError."""
    settings = settings or OnlineSettings()
    settings.check()
    bounds.seeds(seeds)
    for beta in betas:
        bounds.real("--betas", beta, at_least=0, at_most=bounds.LARGEST_STEP)
    runs = [_one_run(seed, float(beta), settings) for beta in betas for seed in seeds]
    report = {
        "experiment": "online",
        "scope": "two independent binary decisions, one prompt; no model",
        "torch": torch.__version__,
        "device": "cpu",
        "dtype": "float64",
        "runs": runs,
    }
    known = settings == OnlineSettings()
    answers = settings.rounds * settings.groups * settings.group_size
    return Experiment(
        name="online",
        title=f"Online GSPO on two binary decisions: {settings.rounds} rounds of {settings.groups} x "
        f"{settings.group_size} answers, {settings.updates} updates each",
        report=report,
        checks=_checks(runs, known),
        tables=[_table(runs)],
        notes=[
            f"Budget of a run: {answers:,} answers, {decisions.NUM_TOKENS * answers:,} tokens, "
            f"{settings.rounds * settings.updates:,} updates.",
            "Golden values: a public GSPO tutorial; known for the default settings, seeds 0 1 2, betas 0 1.",
        ],
        size_inches=(12.0, 5.0),
        draw=draw_online,
    )


def _one_run(seed: int, beta: float, settings: OnlineSettings) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    logits_TV = decisions.uniform_logits()
    reference_TV = logits_TV.detach().log_softmax(-1)
    optimizer = torch.optim.SGD([logits_TV], lr=settings.learning_rate)
    history = []
    for number in range(1, settings.rounds + 1):
        answers_BT = decisions.sample(logits_TV, settings.groups * settings.group_size, generator)
        old_BT = decisions.token_logprobs(logits_TV, answers_BT).detach()  # frozen for the round
        kept_BT = old_BT.clone()
        mask_BT = torch.ones_like(old_BT, dtype=torch.bool)
        rewards_B = decisions.rewards(answers_BT)
        rewards_PG = rewards_B.reshape(settings.groups, settings.group_size).tolist()
        advantages_B = decisions.population_advantages(rewards_PG)
        ratio_error = 0.0
        kl_before = {
            "exact_reference_kl_before_update": float(decisions.exact_kl(logits_TV.detach(), reference_TV)),
            "sampled_reference_kl_before_update": _sampled_kl(old_BT, reference_TV, answers_BT),
        }
        for update in range(settings.updates):
            logprobs_BT = decisions.token_logprobs(logits_TV, answers_BT)
            if update == 0:
                log_ratio_B = sequence_log_ratio(logprobs_BT.detach(), old_BT, mask_BT)
                ratio_error = float((log_ratio_B.exp() - 1).abs().max())
            loss, _ = decisions.gspo(logprobs_BT, old_BT, advantages_B, settings.epsilon)
            optimizer.zero_grad()
            (loss + beta * decisions.exact_kl(logits_TV, reference_TV)).backward()
            optimizer.step()
        history.append(
            {
                "round": number,
                "sampled_reward_before_update": float(rewards_B.mean()),
                "exact_reward_after_update": decisions.expected_reward(logits_TV),
                **kl_before,
                "exact_reference_kl_after_update": float(decisions.exact_kl(logits_TV.detach(), reference_TV)),
                "zero_variance_group_fraction": sum(map(is_degenerate, rewards_PG)) / settings.groups,
                "initial_ratio_max_error": ratio_error,
                "old_logps_max_change": float((old_BT - kept_BT).abs().max()),
            }
        )
    answers = settings.rounds * settings.groups * settings.group_size
    values = asdict(settings)
    values["updates_per_round"] = values.pop("updates")
    return {
        "seed": seed,
        "beta": beta,
        **values,
        "sampled_responses": answers,
        "sampled_tokens": decisions.NUM_TOKENS * answers,
        "history": history,
    }


def _sampled_kl(logprobs_BT: torch.Tensor, reference_TV: torch.Tensor, answers_BT: torch.Tensor) -> float:
    """What the k3 estimator makes of the samples; its expectation is the exact value."""
    reference_BT = decisions.token_logprobs(reference_TV, answers_BT)
    return float(token_kl(logprobs_BT, reference_BT, "k3").sum(-1).mean())


def _checks(runs: Sequence[dict[str, Any]], known: bool) -> list[Check]:
    checks = []
    for one in runs:
        golden = GOLDEN_FINAL_REWARDS.get((one["beta"], one["seed"]))
        if known and golden is not None:
            final = one["history"][-1]["exact_reward_after_update"]
            name = f"final expected reward, beta {one['beta']:g}, seed {one['seed']}"
            checks.append(equal(name, golden, final, within=5e-7))
    for key, name in (
        ("initial_ratio_max_error", "largest |ratio - 1| before a round's first update"),
        ("old_logps_max_change", "largest change of an old log-prob within its round"),
    ):
        worst = max(row[key] for one in runs for row in one["history"])
        checks.append(equal(name, 0.0, worst, within=0))
    return checks


def _table(runs: Sequence[dict[str, Any]]) -> Table:
    rows = [["run", "sampled reward, round 1", "exact reward, end", "KL to the start, end", "flat groups, last round"]]
    for one in runs:
        first, last = one["history"][0], one["history"][-1]
        rows.append(
            [
                f"beta {one['beta']:g}, seed {one['seed']}",
                f"{first['sampled_reward_before_update']:.4f}",
                f"{last['exact_reward_after_update']:.6f}",
                f"{last['exact_reference_kl_after_update']:.6f}",
                f"{last['zero_variance_group_fraction']:.0%}",
            ]
        )
    return Table(title="runs", rows=rows)
