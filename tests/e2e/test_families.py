"""A tiny model of each family: the engine agrees with the learner on log-probs, whatever layers the adapter changes.

One engine after the other, 30 s each on two idle cores. GSPO_RAY_ALL_FAMILIES=1 adds the families in MORE, and
--junitxml writes what was measured.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from gspo_ray.algo.batch import unjudged_batch
from gspo_ray.config import EngineConfig, LoraConfig, ModelConfig
from gspo_ray.learner.model import build_policy
from gspo_ray.learner.scorer import Scorer, choose_scorer
from gspo_ray.learner.weights import export_adapter
from gspo_ray.rollout.engine_vllm import VllmEngine
from gspo_ray.types import Adapter, SamplingParams
from tests.unit.learner.families import (
    FAMILIES,
    VOCABULARY,
    WINDOW,
    kind_of,
    randomise_adapter,
    save_tiny,
    without_kind,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ALWAYS = ("llama", "qwen2", "qwen3")
MORE = ("qwen3_moe", "gemma2", "gemma3", "mistral", "qwen2_moe", "granite", "cohere2", "phi3", "gemma3_multimodal")
ENGINE_ARGS = {  # what a run does not give the engine: it refuses mixtures on CPU, see cpu_experts.py
    name: {
        "worker_extension_cls": "tests.e2e.cpu_experts.WorkerExtension",
        "lora_target_modules": list(FAMILIES[name].layers),
    }
    for name in ("qwen3_moe", "qwen2_moe")
} | {"gemma3_multimodal": {"language_model_only": True}}  # its folder has no processor of pictures

RANK = 12  # vLLM rounds it up
TOLERANCE = 1e-3  # of a log-prob in float32; what was seen is about 1e-5
FELT = 0.05  # how far a layer must move some log-prob
TEMPERATURE = 1.5
NUM_PROMPT = 20
SAMPLING = SamplingParams(max_tokens=24, temperature=TEMPERATURE, top_p=1.0, top_k=-1)


@dataclass
class Pair:
    """One model on both sides. Every push is a new version."""

    name: str
    policy: Any
    adapter_B: dict[str, torch.nn.Parameter]
    scorer: Scorer
    engine: VllmEngine
    runner: asyncio.Runner
    pushes: int = 0

    def push(self) -> Adapter:
        self.pushes += 1
        adapter = export_adapter(self.policy, step=self.pushes)
        assert self.runner.run(self.engine.load_adapter(adapter)) == adapter.version
        return adapter

    def learner_logprobs(self, prompt: list[int], completions: list[list[int]], temperature: float) -> torch.Tensor:
        """One group, as a step has them: packed behind one prompt where the family takes that."""
        with torch.no_grad():
            return self.scorer.logprobs(unjudged_batch([(prompt, completions)]), temperature)

    def both(self, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Learner's and engine's log-probs of what follows the prompt."""
        learner = self.learner_logprobs(token_ids[:NUM_PROMPT], [token_ids[NUM_PROMPT:]], 1.0)[0]
        engine = self.runner.run(self.engine.score(token_ids, num_prompt=NUM_PROMPT))
        return learner, torch.tensor(engine)


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Of this process and of what it starts: engines say a lot."""
    kept = [os.dup(1), os.dup(2)]
    with path.open("ab") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    try:
        yield
    finally:
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


def save_tokenizer(folder: str) -> None:
    """One word for each id: the engine wants a tokenizer, and is given ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w2", pad_token="w0").save_pretrained(
        folder
    )


def change_engine_args(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    import vllm

    plain = vllm.AsyncEngineArgs
    monkeypatch.setattr(vllm, "AsyncEngineArgs", lambda **given: plain(**given | changes))


@pytest.fixture(scope="module", params=[*ALWAYS, *(MORE if os.environ.get("GSPO_RAY_ALL_FAMILIES") == "1" else ())])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    if request.param == "gemma3_multimodal":  # the engine's class imports it; it does not load beside torch for CPUs
        pytest.importorskip("torchvision")
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    path = save_tiny(name, folder / "model")
    save_tokenizer(path)
    config = ModelConfig(path=path, dtype="float32", lora=LoraConfig(rank=RANK, alpha=2 * RANK))
    policy = build_policy(path, config, device="cpu", seed=0, gradient_checkpointing=False)
    adapter_B = randomise_adapter(policy)
    scorer, _ = choose_scorer(policy, "cpu")
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        asyncio.Runner() as runner,
        output_to(folder / "engine.log"),
    ):
        change_engine_args(monkeypatch, ENGINE_ARGS.get(name, {}))

        async def start() -> VllmEngine:
            return VllmEngine(
                path,
                revision=None,
                dtype="float32",
                device="cpu",
                max_model_len=128,
                lora_rank=RANK,
                engine=EngineConfig(max_num_seqs=8),
                engine_id=name,
                seed=0,
            )

        engine = runner.run(start())
        try:
            yield Pair(name, policy, adapter_B, scorer, engine, runner)
        finally:
            runner.run(engine.close())


def some_tokens(count: int) -> list[int]:
    assert count > 3 * WINDOW
    return torch.randint(3, VOCABULARY, (count,), generator=torch.Generator().manual_seed(11)).tolist()


def gap(left: torch.Tensor, right: torch.Tensor) -> float:
    """Largest difference of a token."""
    return float((left - right).abs().max())


def test_engine_and_learner_agree_on_given_tokens(pair, record_property):
    pair.runner.run(pair.engine.use_base_model())
    token_ids = some_tokens(60)
    with pair.policy.disable_adapter():
        base, engine = pair.both(token_ids)
    assert gap(base, engine) < TOLERANCE
    pair.push()
    adapted, engine = pair.both(token_ids)
    record_property("largest gap", gap(adapted, engine))
    assert gap(adapted, engine) < TOLERANCE
    assert gap(adapted, base) > 10 * FELT


def test_engine_and_learner_agree_on_what_the_engine_samples(pair, record_property):
    pair.push()
    prompt = some_tokens(NUM_PROMPT)
    completions = pair.runner.run(pair.engine.generate(prompt, n=6, sampling=SAMPLING, seed=5))
    learner = pair.learner_logprobs(prompt, [list(c.token_ids) for c in completions], TEMPERATURE)
    assert len({c.token_ids for c in completions}) > 1  # some may end at once
    gaps = [
        gap(row[: len(c.token_ids)], torch.tensor(c.sampler_logprobs))
        for row, c in zip(learner, completions, strict=True)
    ]
    record_property("largest gap", max(gaps))
    assert max(gaps) < TOLERANCE


def test_every_kind_of_layer_is_felt_on_both_sides(pair, record_property):
    """Switched off one after the other: a layer that the engine left out would agree with the learner once only."""
    token_ids = some_tokens(60)
    whole, _ = pair.both(token_ids)
    for kind in FAMILIES[pair.name].layers:
        with without_kind(pair.adapter_B, kind):
            pair.push()
            learner, engine = pair.both(token_ids)
        record_property(f"{kind} moves", gap(learner, whole))
        assert gap(learner, whole) > FELT, kind
        assert gap(learner, engine) < TOLERANCE, kind
    assert {kind_of(name) for name in pair.adapter_B} == set(FAMILIES[pair.name].layers)
