"""Result files of agentic-rl-lab's 07-gspo/eval.py: problem records, or a summary alone."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from gspo_ray.errors import DataError
from gspo_ray.evaluation.fields import Fields, read_objects
from gspo_ray.evaluation.per_problem import correctness_rates, majority_vote, pass_name
from gspo_ray.evaluation.result import Result, with_rates

_SETTINGS = {  # field of a lab summary -> name in the protocol
    "base_model": "model",
    "dataset": "data.name",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "max_tokens": "sampling.max_tokens",
}
_TOLERANCE = 1e-6  # between a lab summary and its own records


def read_lab_result(path: Path) -> Result:
    """The last summary counts; problem records, where there are any, must agree with it."""
    records = list(read_objects(path))
    summaries = [record for record in records if record.data.get("type") == "summary"]
    if not summaries:
        raise DataError(f"{records[-1].where}: no summary record up to here, so the evaluation was not finished")
    summary = summaries[-1]
    n, step = summary.whole("val_n", least=1), _step(path, summary)
    names = {name: key for name, key in _SETTINGS.items() if summary.data.get(name) is not None}
    stated = Result(
        where=summary.where,
        is_base=step is None,
        step=step,
        adapter=summary.optional_text("model_path"),
        seed=None,
        samples_per_problem=n,
        max_tokens=summary.optional_whole("max_tokens", least=1),
        settings={"samples_per_problem": n} | {key: summary.data[name] for name, key in names.items()},
        means={
            pass_name(n): summary.share("pass_at_n"),
            "average": summary.share("average_at_n"),
            "format": summary.share("format_rate"),
            "tokens": summary.positive("mean_completion_tokens"),
        },
        num_problems=_problems(summary, n),
    )
    problems = [record for record in records if record.data.get("type") == "problem"]
    return _checked(stated, problems) if problems else stated


def _checked(stated: Result, problems: Sequence[Fields]) -> Result:
    """What the problem records say; DataError when the summary says something else."""
    rates, golds = {}, {}
    for record in problems:
        problem_id = str(record.data.get("problem_id"))
        if problem_id in rates:
            raise DataError(f"{record.where}: problem {problem_id!r} is there a second time")
        rates[problem_id] = _rates(record, stated.samples_per_problem)
        golds[problem_id] = str(record.data.get("ground_truth"))
    result = with_rates(stated, rates, golds)
    for metric, mean in stated.means.items():
        if not math.isclose(result.means[metric], mean, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
            raise DataError(
                f"{stated.where}: the summary states {metric} = {mean:g}, but the problem records above give "
                f"{result.means[metric]:g}: the file was changed or joined from parts"
            )
    return result


def _rates(record: Fields, n: int) -> dict[str, float]:
    samples = record.items("generations")
    if len(samples) != n:
        raise DataError(f"{record.where}: {len(samples)} generations, but val_n is {n}")
    correct = [sample.flag("correct") for sample in samples]
    answers = [sample.data.get("predicted_answer") for sample in samples]
    rates = {
        **correctness_rates(correct),
        "majority": majority_vote([None if answer is None else str(answer) for answer in answers], correct),
        "format": sum(sample.flag("formatted") for sample in samples) / n,
    }
    stops = [sample.data.get("stop_reason") for sample in samples]
    if all(isinstance(stop, str) for stop in stops):
        rates["truncated"] = sum(str(stop).lower() == "length" for stop in stops) / n
    rates["tokens"] = sum(sample.whole("completion_tokens") for sample in samples) / n
    return rates


def _problems(summary: Fields, n: int) -> int:
    if "problems" in summary.data:
        return summary.whole("problems", least=1)
    generations = summary.whole("generations", least=n)
    if generations % n:
        raise DataError(f"{summary.where}: generations is {generations}, no multiple of val_n = {n}")
    return generations // n


def _step(path: Path, summary: Fields) -> int | None:
    """Their summaries hold no step: it is in the name, `...-step20.jsonl`."""
    if match := re.search(r"step[-_]?(\d+)", path.stem):
        return int(match[1])
    if summary.data.get("model_path") is not None:
        raise DataError(f"{summary.where}: which training step? Name the file ...-step<k>.jsonl.")
    return None
