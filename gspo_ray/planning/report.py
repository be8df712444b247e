"""The plan for people (110 columns), as JSON, and in the one or two lines that a run starts with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from gspo_ray.planning.fit import learner_limit
from gspo_ray.planning.gpus import PRICES_FROM
from gspo_ray.planning.memory import GIB
from gspo_ray.planning.plan import OnGpu, Plan, Split
from gspo_ray.planning.steptime import ANSWERS_PER_S, ITERATION_S, LORA_SPEED

EXACT = (
    "Parameters are exact. The learner's tensors are counted by running its code without numbers: 2 and 12 % (layers "
    "recomputed) less than a small model was measured to take on CPU (gspo-ray bench plan)."
)
NOT_ON_A_GPU = "Nothing here has been run on a GPU: times are arithmetic with the efficiencies below."


def as_json(plan: Plan) -> dict[str, Any]:
    tree = dataclasses.asdict(dataclasses.replace(plan, config=None, gpus={}))  # type: ignore[arg-type]
    tree["config"] = plan.config.model_dump(mode="json")
    tree["gpus"] = {name: gpu.model_dump() for name, gpu in plan.gpus.items()}
    tree["works"] = plan.works
    tree["learner"]["total"] = plan.learner.total
    for name, one in plan.by_gpu.items():
        tree["by_gpu"][name]["time"] |= {"rollout": one.time.rollout, "total": one.time.total}
        tree["by_gpu"][name]["engine"] |= {
            "kv_room": one.engine.kv_room,
            "longest_fit": one.engine.longest_fit,
            "usual_fit": one.engine.usual_fit,
        }
    return tree


def in_short(plan: Plan) -> list[str]:
    """For the start of a run: a line on memory, and where the GPU is known one on time and cost."""
    learner = f"learner {_gib(plan.learner.total)} GiB"
    if plan.gpu is None:
        assert plan.cpu_engine is not None
        return [f"Plan: {learner}, engine {_gib(plan.cpu_engine.budget)} GiB, above what its processes take anyway."]
    here, limit = plan.by_gpu[plan.gpu], learner_limit(plan.config, plan.gpus[plan.gpu]) / GIB
    fatal = [f"! {problem.text}" for problem in plan.problems if problem.fatal]
    if not plan.gpu_known:
        engine = _gib(here.engine.weights + here.engine.adapters + here.engine.workspace)
        return [f"Plan: {learner} of a GPU, engine {engine} GiB and its KV cache. By GPU type: gspo-ray plan.", *fatal]
    lines = [
        f"Plan for {plan.gpu} ({plan.gpu_chosen}): {learner} of {limit:.0f} a GPU, engine KV cache for "
        f"{here.engine.usual_fit} sequences of {_mean_row(plan)} tokens.",
        f"About {_seconds(here.time.total)} a step, {_money(here.to_the_end)} for {plan.config.steps} steps; nothing "
        "of this has been run on a GPU. More: gspo-ray plan.",
    ]
    return lines + fatal


def render(plan: Plan, console: Console) -> None:
    config, shape = plan.config, plan.shape

    def say(text: str = "", style: str = "") -> None:
        console.print(text, style=style, highlight=False, markup=False)

    say(
        f"{config.name}: {config.model.path}, {config.model.dtype}, {shape.total:,} parameters; LoRA "
        f"r={config.model.lora.rank}, {shape.lora:,} trainable"
    )
    say(EXACT if plan.gpu is None else f"{EXACT} {NOT_ON_A_GPU}")
    say()
    console.print(_memory(plan))
    if plan.gpu is not None:
        here = plan.by_gpu[plan.gpu]
        console.print(_times(plan, here))
        for sentence in (*_cost(plan, here), *_split_words(plan)):
            say(sentence)
        console.print(_others(plan))
    else:
        say("No times: the table of speeds has no CPUs.")
    for sentence in _noise(plan):
        say(sentence)
    say()
    for sentence in _assumptions(plan):
        say(f"- {sentence}", style="dim")
    for problem in plan.problems:
        say(f"{'x' if problem.fatal else '!'} {problem.text}", style="red" if problem.fatal else "yellow")
    say("This can work." if plan.works else "This cannot work: see the lines with x.", style="bold")


def _memory(plan: Plan) -> Table:
    learner = plan.learner
    engine = plan.cpu_engine if plan.gpu is None else plan.by_gpu[plan.gpu].engine
    assert engine is not None
    where = "a process, above what Python and its libraries take" if plan.gpu is None else f"one {plan.gpu}"
    table = _table(f"GiB of {where}", "learner", "engine")
    table.add_row("base weights", _gib(learner.weights), _gib(engine.weights))
    table.add_row("adapter (learner: with gradients, AdamW)", _gib(learner.adapter), _gib(engine.adapters))
    table.add_row(f"activations kept, {learner.tokens} tokens at once", _gib(learner.activations), "")
    table.add_row("passing: log-prob chunks, a layer again, gradients", _gib(learner.passing), "")
    if plan.gpu is not None:
        table.add_row("workspace, CUDA itself (guess)", _gib(learner.reserve), _gib(engine.workspace))
    table.add_row("KV cache: what is left", "", _gib(engine.kv_room))
    total = _gib(learner.total)
    if plan.gpu is not None:
        limit = learner_limit(plan.config, plan.gpus[plan.gpu])
        total = f"{total} of {_gib(limit)}"
    table.add_row("total", total, _gib(engine.budget), style="bold")
    rows = f"{engine.usual_fit} of {_mean_row(plan)}, {engine.longest_fit} of {plan.config.max_model_len}"
    table.add_row("sequences that the cache holds, by tokens", "", rows)
    return table


def _times(plan: Plan, here: OnGpu) -> Table:
    assert plan.gpu is not None
    time, gpu = here.time, plan.gpus[plan.gpu]
    engines, ranks = plan.config.rollout.num_engines, plan.config.learner.num_ranks
    table = _table(f"A step on {here.num_gpus} x {plan.gpu}", "seconds", "share")
    share = f"{gpu.learner_efficiency:.0%} of {gpu.tflops:g} TFLOP/s"
    rows = [
        ("rollout: prompts", time.prefill),
        (
            f"rollout: {time.decode_rounds} rounds of tokens, {engines} engine(s), {time.decode_bound}",
            time.decode,
        ),
        ("rewards", time.reward),
        (f"learner: {time.learner_flops / 1e15:.2f} PFLOP at {share}, {ranks} rank(s)", time.learner),
        ("adapter to the engines", time.sync),
    ]
    for name, seconds in rows:
        table.add_row(name, f"{seconds:.1f}", f"{seconds / time.total:.0%}")
    table.add_row("total, phases one after the other", f"{time.total:.1f}", "", style="bold")
    return table


def _cost(plan: Plan, here: OnGpu) -> Iterator[str]:
    config = plan.config
    sequences = config.data.problems_per_step * config.rollout.group_size
    tokens = sequences * plan.lengths.completion
    yield (
        f"A step: {sequences} completions, {tokens:,} tokens, {_money(here.per_step)}. To step {config.steps}: "
        f"{config.steps * tokens / 1e6:.1f} million tokens, {_seconds(config.steps * here.time.total)}, "
        f"{_money(here.to_the_end)}. Evaluations and start-up are not counted."
    )


def _split_words(plan: Plan) -> Iterator[str]:
    if plan.fastest is not None:
        yield f"Fastest split of these GPUs: {_split(plan.fastest)}, {plan.fastest.time.total:.0f} s a step."
    if plan.balanced is not None:
        time = plan.balanced.time
        yield (
            f"Balanced (phases take turns now; this matters when they overlap): {_split(plan.balanced)}, rollout "
            f"{time.rollout:.0f} s, learner {time.learner:.0f} s."
        )


def _others(plan: Plan) -> Table:
    columns = ("learner\nGiB of", "KV cache\nsequences", "rollout\ns", "learner\ns", "step\ns", "step\n$", "run\n$")
    table = _table("On GPUs of a type", "fits", *columns)
    for name, one in plan.by_gpu.items():
        limit = learner_limit(plan.config, plan.gpus[name])
        cost = [f"{amount:.2f}" if amount is not None else "-" for amount in (one.per_step, one.to_the_end)]
        table.add_row(
            name,
            "yes" if one.fits else "no",
            f"{_gib(plan.learner.total)} of {_gib(limit)}",
            str(one.engine.usual_fit),
            f"{one.time.rollout:.0f}",
            f"{one.time.learner:.0f}",
            f"{one.time.total:.0f}",
            *cost,
            style="bold" if name == plan.gpu else "",
        )
    return table


def _noise(plan: Plan) -> Iterator[str]:
    noise, algo = plan.noise, plan.config.algo
    band = f"the band -{algo.eps_low:g} / +{algo.eps_high:g}"
    yield (
        f"Noise of {noise.token_noise:g} a token's log-prob gives the ratio of {noise.tokens:.0f} tokens a standard "
        f"deviation of {noise.ratio_std:.1e}: {noise.outside:.1%} of the sequences outside {band} with no update at "
        f"all (under 5 % from {noise.enough_tokens} tokens on)."
    )
    if not noise.in_the_ratio:
        yield f"algo.old_logprobs={algo.old_logprobs}: this gap is measured at every step, and is not in the ratio."


def _assumptions(plan: Plan) -> Iterator[str]:
    lengths = plan.lengths
    given = "assumed; --prompt-tokens, --completion-tokens" if lengths.assumed else "given"
    yield f"mean prompt {lengths.prompt} tokens, mean answer {lengths.completion}, longest {lengths.longest} ({given})"
    rows = "one copy of a prompt" if plan.shares_prompts else "padded rows, every prompt repeated, padding not counted"
    yield f"every group has a gradient (the learner skips the others); {rows}"
    if plan.shape.state_bytes:
        yield (
            "linear attention counts as its projections alone: without flash-linear-attention and causal-conv1d its "
            "reference code makes the learner slower than stated"
        )
    yield f"token noise: {plan.noise.source}"
    if plan.gpu is None:
        yield (
            "glibc keeps most of what is freed: above the model 1.3 to 10 times as much was measured, unless "
            "MALLOC_MMAP_THRESHOLD_=65536 is in the learner's environment"
        )
        return
    gpu = plan.gpus[plan.gpu]
    yield f"{plan.gpu}, {plan.gpu_chosen}; {gpu.source}"
    yield (
        f"engine: {gpu.decode_efficiency:.0%} of {gpu.bandwidth_gb_s:g} GB/s and {gpu.prefill_efficiency:.0%} of the "
        f"peak are guesses, x {LORA_SPEED} with an adapter (measured on an A100), {1000 * ITERATION_S:g} ms a round, "
        f"{ANSWERS_PER_S} answers judged a second by a process: guesses"
    )
    yield f"prices: {PRICES_FROM}; your own with --gpus FILE"


def _table(title: str, *columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(title)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _mean_row(plan: Plan) -> int:
    return plan.lengths.prompt + plan.lengths.completion


def _split(split: Split) -> str:
    return f"{split.engines} engine(s) : {split.ranks} learner rank(s)"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


def _money(amount: float | None) -> str:
    return "no price known" if amount is None else f"${amount:.2f}"


def _seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
