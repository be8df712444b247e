"""What a run says of its plan before it starts."""

from __future__ import annotations

from gspo_ray.config import RunConfig
from gspo_ray.models import resolve_model


def plan_in_short(config: RunConfig) -> list[str]:
    """One to a few lines. Never raises: a run that works must not end because it cannot be planned."""
    from gspo_ray.planning.gpus import known_gpus
    from gspo_ray.planning.lengths import assumed_lengths
    from gspo_ray.planning.plan import make_plan  # transformers and peft
    from gspo_ray.planning.report import in_short

    try:
        path = resolve_model(config.model.path, config.model.revision)
        return in_short(make_plan(config, path, assumed_lengths(config), known_gpus()))
    except Exception as error:  # of any kind: the rehearsal runs the model's own code on tensors without numbers
        return [f"No plan of memory and time: {type(error).__name__}: {' '.join(str(error).split())[:300]}"]
