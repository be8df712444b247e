"""One measurement in a process of its own, so that its peak memory is its own.

    python -m gspo_ray.bench.worker CASE.json FOLDER

leaves result.json in FOLDER, gradient.safetensors beside it, and profile.txt where that was asked for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from gspo_ray.bench.case import Case, Measurement
from gspo_ray.bench.flops import model_size, step_flops
from gspo_ray.bench.hardware import Stopwatch, forget_peak, held_bytes, limit_memory, peak_bytes
from gspo_ray.bench.limit import measure_limit
from gspo_ray.bench.variants import BUILDERS, Variant, move_adapter
from gspo_ray.learner.model import build_policy

LIMIT = "limit"  # the variant that is no step, but matrix products alone
PROFILE_ROWS = 25


def measure(case: Case, folder: Path) -> None:
    empty = held_bytes(case.device)
    model = build_policy(
        case.model_path,
        case.model,
        device=case.device,
        seed=case.seed,
        gradient_checkpointing=case.gradient_checkpointing,
    )
    size = model_size(model)
    if case.variant == LIMIT:
        _write(folder, measure_limit(size, case).model_dump())
        return
    move_adapter(model, case.seed)
    loaded = held_bytes(case.device)
    _warm_up(model, case)
    variant = BUILDERS[case.variant](model, case)
    model.zero_grad(set_to_none=True)
    if case.profile:
        (folder / "profile.txt").write_text(_profile(variant, case.device), encoding="utf-8")
        return
    forget_peak(case.device)
    watch = Stopwatch(case.device)
    work, micro_batches = variant.step()
    span = watch.read()
    done = Measurement(
        variant=case.variant,
        note=variant.note,
        seconds=span.seconds,
        cpu_seconds=span.cpu_seconds,
        computed_tokens=work.tokens,
        micro_batches=micro_batches,
        flops=step_flops(size, work),
        empty_bytes=empty,
        loaded_bytes=loaded,
        peak_bytes=peak_bytes(case.device),
        busy_others=span.busy_others,
    )
    gradient = {n: p.grad.float().cpu() for n, p in model.named_parameters() if p.grad is not None}
    save_file(gradient, folder / "gradient.safetensors")
    _write(folder, done.model_dump())


def _warm_up(model: Any, case: Case) -> None:
    """The first group; on a GPU the whole batch, whose kernels are chosen by size."""
    groups = case.groups if case.device != "cpu" else case.groups[:1]
    rows = sum(len(completions) for _, completions in groups)
    small = case.model_copy(update={"groups": groups, "trl_rows": min(rows, case.trl_rows)})
    base = model.get_base_model()
    attention = base.config._attn_implementation
    BUILDERS[case.variant](model, small).step()
    base.set_attn_implementation(attention)


def _profile(variant: Variant, device: str) -> str:
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device != "cpu")
    with profile(activities=activities) as record:
        variant.step()
    order = "self_cpu_time_total" if device == "cpu" else "self_cuda_time_total"
    return str(record.key_averages().table(sort_by=order, row_limit=PROFILE_ROWS, max_name_column_width=50))


def _write(folder: Path, result: dict[str, Any]) -> None:
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def main() -> int:
    case, folder = Case.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    torch.set_num_threads(case.threads)
    if case.memory_limit is not None:
        limit_memory(case.memory_limit)
    try:
        measure(case, folder)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        _write(folder, Measurement(variant=case.variant, failure="does not fit into memory").model_dump())
    return 0


if __name__ == "__main__":
    sys.exit(main())
