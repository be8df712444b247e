"""Small made-up groups and steps."""

from __future__ import annotations

from gspo_ray.types import Completion, Finish, Group, Outcome, Problem, Prompt, StepMetrics, Verdict, WeightVersion


def make_completion(text: str = "3 + 4 = \\boxed{7}", *, seed: int = 0, num_tokens: int = 3) -> Completion:
    return Completion(
        token_ids=tuple(range(10, 10 + num_tokens)),
        sampler_logprobs=tuple(-0.1 * (i + 1) for i in range(num_tokens)),
        text=text,
        finish=Finish.STOP,
        version=WeightVersion(step=0, sha256="ab" * 32),
        engine_id="engine-0",
        seed=seed,
    )


def make_group(
    texts: tuple[str, ...] = ("\\boxed{7}", "\\boxed{8}"),
    rewards: tuple[float, ...] = (1.0, 0.0),
    *,
    problem_id: str = "add-3-4",
    question: str = "What is 3 + 4?",
) -> Group:
    return Group(
        prompt=Prompt(
            problem=Problem(problem_id=problem_id, question=question, answer="7", source="additions"),
            token_ids=(1, 2, 3),
        ),
        completions=tuple(make_completion(text, seed=i) for i, text in enumerate(texts)),
        verdicts=tuple(
            Verdict(
                reward=r, outcome=Outcome.CORRECT if r else Outcome.WRONG, extracted="7" if r else "8", seconds=0.01
            )
            for r in rewards
        ),
    )


def make_step(step: int, reward: float = 0.5, *, notes: tuple[str, ...] = (), **values: float) -> StepMetrics:
    numbers = {
        "reward/mean": reward,
        "outcome/correct_frac": reward,
        "outcome/no_answer_frac": 0.11,
        "groups/degenerate_frac": 0.25,
        "completion/tokens": 842.0,
        "completion/len_mean": 13.2,
        "completion/truncated_frac": 0.02,
        "gspo/clip_frac": 0.12,
        "gspo/ratio_std": 3.1e-4,
        "mismatch/seq_log_ratio_std": 7e-6,
        "learner/grad_norm": 0.42,
        "learner/tokens": 5000.0,
        "time/rollout_s": 12.0,
        "time/reward_s": 0.3,
        "time/train_s": 10.6,
        "time/sync_s": 1.2,
        "time/step_s": 24.1,
    }
    return StepMetrics(step=step, values=numbers | {k.replace("__", "/"): v for k, v in values.items()}, notes=notes)
