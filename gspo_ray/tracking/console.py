"""The run as a person watches it: a line a step, notes in words, a sample now and then, a summary at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from gspo_ray.algo.record import StepRecord
from gspo_ray.tracking.console_format import (
    GAP,
    LEGEND,
    PHASES,
    align,
    count,
    duration,
    fit,
    number,
    one_line,
    share,
    sparkline,
    step_columns,
)
from gspo_ray.types import Group, RunState, StepMetrics

TITLE_EVERY = 20  # lines after which the column titles are shown again
RATE_STEPS = 5  # steps that the estimate of the time left looks back on
RULE_WIDTH = 100
OUTCOME_STYLES = {"correct": "green", "wrong": "yellow", "no_answer": "yellow", "timeout": "red", "error": "red"}


class ConsoleTracker:
    """Prints plain lines, so that a job log reads like a terminal. Texts are never read as markup.

    `sample_every=k` shows a completion in step 1 and every k steps; 0: never.
    """

    def __init__(self, console: Console, *, total_steps: int, sample_every: int) -> None:
        self._console = console
        self._total_steps = total_steps
        self._sample_every = sample_every
        self._columns = step_columns(total_steps)
        self._steps: list[StepMetrics] = []
        self._lines_since_title = TITLE_EVERY

    def print_header(self, title: str, fields: Mapping[str, str]) -> None:
        """What is about to run: model, data, resources, where the run is stored, how to open MLflow."""
        self._rule(title)
        self._fields(fields)
        self._print(Text(""))
        self._print(Text("\n".join(LEGEND), style="dim"))

    def warn(self, message: str) -> None:
        """A sentence that the person must not miss; safe to call from any thread."""
        self._print(Text(f"! {message}", style="yellow"))

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Nothing: the header shows what matters of it."""

    def log_step(self, metrics: StepMetrics) -> None:
        self._steps.append(metrics)
        values = {**metrics.values, "step": float(metrics.step), "console/left_s": self._seconds_left(metrics.step)}
        columns = fit(self._columns, self._console.width if self._console.is_terminal else None)
        if self._lines_since_title >= TITLE_EVERY:
            titles = GAP.join(align(column.title, column) for column in columns)
            self._print(Text("\n" + titles.rstrip(), style="bold dim"))
            self._lines_since_title = 0
        line = Text()
        for column in columns:
            line.append(align(column.show(values), column), style=column.style)
            line.append(GAP)
        line.rstrip()
        self._print(line)
        self._lines_since_title += 1
        for note in (*_verifier_trouble(metrics.values), *metrics.notes):
            self._print(Text(f"    {note}", style="yellow"))

    def log_rollouts(self, record: StepRecord) -> None:
        """One problem, if possible with mixed rewards: its best and its worst completion."""
        step, groups_P = record.step, record.groups_P
        if not self._sample_every or (step != 1 and step % self._sample_every) or not groups_P:
            return
        mixed = [group for group in groups_P if not group.is_degenerate] or list(groups_P)
        group = mixed[step % len(mixed)]
        problem = group.prompt.problem
        self._print(
            Text(f"\n  sample of step {step}, problem {problem.problem_id}, gold {problem.answer}", style="dim")
        )
        self._print(_labelled("question", one_line(problem.question, 240)))
        rewards = group.rewards_G or (0.0,) * len(group.completions)
        order = sorted(range(len(group.completions)), key=lambda index: rewards[index], reverse=True)
        chosen = [order[0], order[-1]] if rewards[order[0]] != rewards[order[-1]] else order[:1]
        for index in chosen:
            self._print(self._answer(group, index))
        self._lines_since_title = TITLE_EVERY  # the next line stands far from its titles

    def log_evaluation(self, step: int, summary: Mapping[str, Any], values: Mapping[str, float]) -> None:
        n = summary["val_n"]
        text = f"evaluation of step {step}: avg@{n} {values['eval/average']:.3f}"
        if "eval/average_low" in values:
            text += f" ({values['eval/average_low']:.3f} to {values['eval/average_high']:.3f})"
        text += f", pass@{n} {values['eval/pass_at_n']:.3f}, {summary['problems']} problems"
        if "comparison" in summary:
            verdict, p_value = summary["comparison"]["verdict"], values["eval/p_value"]
            text += f"; against the base {values['eval/difference']:+.3f}, p {p_value:.3f}: {verdict}"
        self._print(Text(f"    {text}", style="cyan"))

    def log_checkpoint(self, state: RunState, path: str) -> None:
        self._print(Text(f"    checkpoint of step {state.step}: {path}", style="dim"))

    def close(self, status: str) -> None:
        """Nothing: the driver prints the summary when everything is stored."""

    def print_summary(
        self, title: str, *, fields: Mapping[str, str] | None = None, next_commands: Sequence[str] = ()
    ) -> None:
        """What came out of the steps seen here; `fields` adds lines (adapter, plot), `next_commands` what to try."""
        self._print(Text(""))
        self._rule(title)
        self._fields({**self._results(), **(fields or {})})
        for index, command in enumerate(next_commands):
            self._print(_labelled("next" if index == 0 else "", command, style="bold cyan"))

    def _results(self) -> dict[str, str]:
        results: dict[str, str] = {}
        rewards = [(s.step, s.values["reward/mean"]) for s in self._steps if _has(s, "reward/mean")]
        if rewards:
            first, last = rewards[0][1], rewards[-3:]
            mean = math.fsum(reward for _, reward in last) / len(last)
            where = f"mean of steps {last[0][0]}-{last[-1][0]}" if len(last) > 1 else f"step {last[0][0]}"
            results["reward"] = (
                f"{first:.3f} (step {rewards[0][0]}) -> {mean:.3f} ({where}), {mean - first:+.3f}  "
                f"{sparkline([reward for _, reward in rewards])}"
            )
        total = self._total("time/step_s")
        if total:
            parts = [f"{phase} {share(self._total(f'time/{phase}_s') / total)}" for phase in PHASES]
            results["time"] = f"{duration(total)} for {len(self._steps)} steps: {', '.join(parts)}"
        speeds = [
            f"{name} {count(tokens / seconds)} tokens/s"
            for name, tokens, seconds in (
                ("sampler", self._total("completion/tokens"), self._total("time/rollout_s")),
                ("learner", self._total("learner/tokens"), self._total("time/train_s")),
            )
            if tokens and seconds
        ]
        if speeds:
            results["speed"] = ", ".join(speeds)
        return results

    def _total(self, name: str) -> float:
        return math.fsum(s.values[name] for s in self._steps if _has(s, name))

    def _seconds_left(self, step: int) -> float:
        recent = [s.values["time/step_s"] for s in self._steps[-RATE_STEPS:] if _has(s, "time/step_s")]
        return (self._total_steps - step) * math.fsum(recent) / len(recent) if recent else math.nan

    def _answer(self, group: Group, index: int) -> Text:
        completion = group.completions[index]
        text = _labelled("answer", one_line(completion.text, 320) or "(empty)")
        ending = f"{len(completion.token_ids)} tokens, {completion.finish.value}"
        if not group.verdicts:
            return text.append(f"\n            not scored; {ending}", style="dim")
        verdict = group.verdicts[index]
        read = "nothing" if verdict.extracted is None else one_line(verdict.extracted, 60)
        text.append(f"\n            {verdict.outcome.value}", style=OUTCOME_STYLES.get(verdict.outcome.value, ""))
        return text.append(f", reward {number(verdict.reward, 2)}, read {read}; {ending}", style="dim")

    def _rule(self, title: str) -> None:
        width = min(RULE_WIDTH, self._console.width)
        self._print(Text(f"── {title} ".ljust(width, "─"), style="bold cyan"))

    def _fields(self, fields: Mapping[str, str]) -> None:
        for name, value in fields.items():
            self._print(_labelled(name, value))

    def _print(self, text: Text) -> None:
        # soft_wrap: rich would otherwise break long lines at 80 characters in a job log, and paths with them
        self._console.print(text, soft_wrap=True, highlight=False)


def _labelled(label: str, value: str, style: str = "") -> Text:
    return Text.assemble((f"  {label:<9} ", "dim"), (value, style))


def _has(metrics: StepMetrics, name: str) -> bool:
    return name in metrics.values and math.isfinite(metrics.values[name])


def _verifier_trouble(values: Mapping[str, float]) -> list[str]:
    shares = [
        f"{share(values[name])} {words}"
        for name, words in (
            ("outcome/timeout_frac", "of the verifications hit the time limit and were paid 0"),
            ("outcome/error_frac", "of the completions could not be judged and are left out of the update"),
        )
        if values.get(name, 0.0) > 0
    ]
    return [f"{'; '.join(shares)}."] if shares else []
