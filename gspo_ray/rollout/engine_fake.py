"""An engine without a model, for tests: every answer is a function of (prompt, seed) and of the script it is given."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

from gspo_ray.errors import EngineError
from gspo_ray.seeding import derive_seed
from gspo_ray.types import BASE_MODEL, Adapter, Completion, Finish, SamplingParams, WeightVersion

Script = Callable[[Sequence[int], int], tuple[str, list[int]]]


def echo_script(prompt_ids: Sequence[int], seed: int) -> tuple[str, list[int]]:
    """Text naming the prompt's last token and the seed; as many tokens as the seed decides (1 to 4)."""
    return f"prompt {prompt_ids[-1]} seed {seed}", [derive_seed(seed, i) % 50 + 3 for i in range(seed % 4 + 1)]


class FakeEngine:
    """Follows `InferenceEngine`. `script(prompt_ids, seed)` gives text and token ids of one completion."""

    def __init__(self, engine_id: str = "fake-0", *, script: Script = echo_script, delay_s: float = 0.0) -> None:
        self._engine_id, self._script, self._delay_s = engine_id, script, delay_s
        self._version: WeightVersion | None = None
        self.loaded: list[WeightVersion] = []

    async def generate(
        self, prompt_ids: Sequence[int], *, n: int, sampling: SamplingParams, seed: int
    ) -> list[Completion]:
        version = self._loaded_version()
        # The later a prompt's id, the sooner it answers: order must come from the sampler, not from luck.
        await asyncio.sleep(self._delay_s / (1 + prompt_ids[-1]))
        completions = []
        for index in range(n):
            text, ids = self._script(prompt_ids, seed + index)
            finish = Finish.STOP if len(ids) <= sampling.max_tokens else Finish.LENGTH
            ids = ids[: sampling.max_tokens]
            completions.append(
                Completion(
                    token_ids=tuple(ids),
                    sampler_logprobs=(-0.5,) * len(ids),
                    text=text,
                    finish=finish,
                    version=version,
                    engine_id=self._engine_id,
                    seed=seed + index,
                )
            )
        return completions

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        self._loaded_version()
        return [-0.5] * (len(token_ids) - num_prompt)

    async def load_adapter(self, adapter: Adapter) -> WeightVersion:
        echo = WeightVersion(step=adapter.version.step, sha256=hashlib.sha256(adapter.payload).hexdigest())
        self._version = adapter.version
        self.loaded.append(echo)
        return echo

    async def use_base_model(self) -> WeightVersion:
        self._version = BASE_MODEL
        return BASE_MODEL

    async def close(self) -> None:
        self._version = None

    def _loaded_version(self) -> WeightVersion:
        if self._version is None:
            raise EngineError(f"engine {self._engine_id} has no adapter yet")
        return self._version
