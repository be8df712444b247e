"""`gspo-ray train` with an engine that is made up: `python -m tests.e2e.autoscaled_run FLAG ...`."""

import sys
from collections.abc import Sequence

from gspo_ray.config_io import load_config
from gspo_ray.rollout.engine_fake import FakeEngine
from gspo_ray.seeding import derive_seed
from gspo_ray.train import train


def guess(prompt_ids: Sequence[int], seed: int) -> tuple[str, list[int]]:
    """Every seventeenth is right by luck: enough for groups that differ."""
    return f"\\boxed{{{derive_seed(seed, 'guess') % 17 + 2}}}", [5, 6, 7]


class Engine(FakeEngine):
    def __init__(self) -> None:
        super().__init__(script=guess)

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        """Another value after every push, or the run would say that the push was ignored."""
        return [-0.5 - 0.01 * len(self.loaded)] * (len(token_ids) - num_prompt)


if __name__ == "__main__":
    config = load_config("configs/demo.yaml", sys.argv[1:])
    sys.exit(train(config, engines=[Engine] * config.rollout.num_engines))
