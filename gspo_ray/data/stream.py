"""The endless order in which problems are trained on: a function of (seed, problems seen) and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence

from gspo_ray.errors import DataError
from gspo_ray.seeding import derive_seed
from gspo_ray.types import Prompt


class ProblemStream:
    """One permutation of the whole set a pass, each derived from (seed, pass); without `shuffle` the given order.

    Within a pass no problem comes twice; the next pass follows without a gap, so a step larger than what is
    left of the set takes the rest from the next pass. `problems_seen` is the only state: a stream built with
    problems_seen=n goes on exactly like one that took n.
    """

    def __init__(self, prompts: Sequence[Prompt], *, seed: int, shuffle: bool, problems_seen: int = 0) -> None:
        if not prompts:
            raise DataError("there is no prompt to train on. Check data.path and data.max_prompt_tokens.")
        if problems_seen < 0:
            raise ValueError(f"problems_seen is {problems_seen}, must be 0 or more")
        self._prompts = tuple(prompts)
        self._seed = seed
        self._shuffle = shuffle
        self._seen = problems_seen
        self._order_pass = -1
        self._order: list[int] = []

    @property
    def problems_seen(self) -> int:
        """The cursor: prompts taken since the start of the run, over all passes."""
        return self._seen

    def take(self, k: int) -> list[Prompt]:
        """The next `k` prompts, k >= 1."""
        if k < 1:
            raise ValueError(f"cannot take {k} prompts, k must be 1 or more")
        taken = [self._at(position) for position in range(self._seen, self._seen + k)]
        self._seen += k
        return taken

    def _at(self, position: int) -> Prompt:
        pass_index, offset = divmod(position, len(self._prompts))
        if pass_index != self._order_pass:
            self._order = list(range(len(self._prompts)))
            if self._shuffle:
                random.Random(derive_seed(self._seed, "data", pass_index)).shuffle(self._order)
            self._order_pass = pass_index
        return self._prompts[self._order[offset]]
