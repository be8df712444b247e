"""The two parts that other libraries break most: verifier processes and the engine's LoRA, tried for real."""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gspo_ray.config import EngineConfig, LoraConfig, ModelConfig, RewardConfig
from gspo_ray.doctor.finding import Finding, Level, Problem, judged
from gspo_ray.doctor.gpu import GpuFacts, probe
from gspo_ray.probe import DEFAULT_TOLERANCE
from gspo_ray.types import Adapter, SamplingParams, Verdict

ANSWERS = (  # completion, gold, what the verifier must say
    (r"so it is \boxed{0.5}", r"\frac{1}{2}", "correct"),
    (r"so it is \boxed{0.6}", r"\frac{1}{2}", "wrong"),
    ("I do not know", "3", "no_answer"),
    (r"\boxed{9^{9^{9^{9}}}}", "7", "timeout"),
    (r"\boxed{x=3}", "3", "correct"),  # after the process was killed and replaced
)
VERIFIER_TIMEOUT_S = 5.0

VOCABULARY = 64
TINY: dict[str, Any] = {  # sizes that kernels of CPUs and GPUs take
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,  # far from uniform, so that every layer is felt
    "bos_token_id": 1,
    "eos_token_id": 2,
}
RANK = 8
NUM_PROMPT = 8
TOKENS = [3 + 7 * number % (VOCABULARY - 3) for number in range(24)]
GPU_SHARE = 0.2  # of the memory of one GPU


def check_verifier(reward: RewardConfig) -> Finding:
    """Right, wrong, missing and hostile answers, in a process as a reward worker has it."""
    from gspo_ray.reward.pool import VerifierProcess

    with VerifierProcess(VERIFIER_TIMEOUT_S, reward.memory_limit_mib) as verifier:
        return judged_answers(verifier.score([(completion, gold) for completion, gold, _ in ANSWERS]))


def judged_answers(verdicts: list[Verdict]) -> Finding:
    wrong = [
        f"{completion!r} against {gold} is {verdict.outcome}, not {wanted}"
        for (completion, gold, wanted), verdict in zip(ANSWERS, verdicts, strict=True)
        if verdict.outcome.value != wanted
    ]
    if wrong:
        fix = "Install the pinned math-verify, latex2sympy2_extended and sympy; on a busy node repeat this."
        return Finding("verifier", Level.FAIL, "; ".join(wrong), fix)
    found = f"{len(ANSWERS)} answers judged right, a hostile one stopped after {VERIFIER_TIMEOUT_S:g} s"
    return Finding("verifier", Level.PASS, found)


def check_engine(device: str, dtype: str) -> Finding:
    """vLLM with a LoRA adapter on a tiny model of random weights, against the learner's log-probs."""
    if device == "cuda" and (reason := use_freest_gpu(probe())):
        return Finding("engine", Level.SKIP, reason)
    with _tiny_model() as path:
        tiny = _Tiny(path, ModelConfig(path=path, dtype=dtype, lora=LoraConfig(rank=RANK, alpha=2 * RANK)))
        return judged_engine(asyncio.run(_try_engine(tiny, device)), DEFAULT_TOLERANCE[dtype])


@dataclass(frozen=True, slots=True)
class Tried:
    """Log-probs of the same tokens, and a completion."""

    learner: list[float]
    engine: list[float]
    engine_base: list[float]  # without the adapter
    sampled: list[float]


def judged_engine(tried: Tried, tolerance: float) -> Finding:
    gap, shift = _mean_gap(tried.learner, tried.engine), _mean_gap(tried.engine_base, tried.engine)
    found = f"vLLM with LoRA agrees with the learner to {gap:.0e} a token; the adapter moved log-probs by {shift:.2f}"
    problems = []
    if not gap <= tolerance:  # NaN too
        text = f"engine and learner disagree by {gap:.2g} a token, allowed is {tolerance:g}"
        problems.append(Problem(Level.FAIL, text, "Install the pinned vllm, torch and transformers of this project."))
    if not shift > gap:
        text = "the adapter has no effect in the engine: a run would sample from the base model"
        problems.append(Problem(Level.FAIL, text, "Install the pinned vllm and peft of this project."))
    if not tried.sampled or not all(value <= 0 for value in tried.sampled):
        problems.append(Problem(Level.FAIL, "the engine's sampling log-probs are no log-probs", "Reinstall vllm."))
    return judged("engine", found, problems)


def use_freest_gpu(facts: GpuFacts) -> str:
    """Chooses it for this process; or a reason why none will do."""
    if not facts.gpus:
        return "no GPU on this node: no engine will be here"
    gpu = max(facts.gpus, key=lambda gpu: gpu.free_bytes)
    if gpu.free_bytes < 1.5 * GPU_SHARE * gpu.total_bytes:
        return "no GPU has memory left to try an engine; repeat this when they are free"
    os.environ.update(CUDA_VISIBLE_DEVICES=str(gpu.index), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    return ""


class _Tiny:
    """The learner's side, on the CPU."""

    def __init__(self, path: str, config: ModelConfig) -> None:
        import torch

        from gspo_ray.learner.model import build_policy
        from gspo_ray.learner.weights import export_adapter

        self.path, self.config = path, config
        self._policy = build_policy(path, config, device="cpu", seed=0, gradient_checkpointing=False)
        generator = torch.Generator().manual_seed(0)
        for name, parameter in self._policy.named_parameters():
            if "lora_B" in name:  # zero at first, and the adapter without effect
                parameter.data.normal_(0, 0.1, generator=generator)
        self.adapter: Adapter = export_adapter(self._policy, step=1)

    def logprobs(self) -> list[float]:
        import torch

        from gspo_ray.algo.batch import unjudged_batch
        from gspo_ray.learner.scorer import choose_scorer

        scorer, _ = choose_scorer(self._policy, "cpu")
        with torch.no_grad():
            scores = scorer.logprobs(unjudged_batch([(TOKENS[:NUM_PROMPT], [TOKENS[NUM_PROMPT:]])]), 1.0)
        return [float(score) for score in scores[0]]


async def _try_engine(tiny: _Tiny, device: str) -> Tried:
    from gspo_ray.rollout.engine_vllm import VllmEngine

    learner = tiny.logprobs()
    engine = VllmEngine(
        tiny.path,
        revision=None,
        dtype=tiny.config.dtype,
        device=device,
        max_model_len=128,
        lora_rank=RANK,
        engine=EngineConfig(max_num_seqs=8, gpu_memory_utilization=GPU_SHARE, enforce_eager=True),
        engine_id="self-test",
        seed=0,
    )
    try:
        await engine.use_base_model()
        base = await engine.score(TOKENS, num_prompt=NUM_PROMPT)
        await engine.load_adapter(tiny.adapter)
        scores = await engine.score(TOKENS, num_prompt=NUM_PROMPT)
        sampling = SamplingParams(max_tokens=8, temperature=1.0, top_p=1.0, top_k=-1)
        completions = await engine.generate(TOKENS[:NUM_PROMPT], n=2, sampling=sampling, seed=0)
    finally:
        await engine.close()
    return Tried(learner, scores, base, [value for item in completions for value in item.sampler_logprobs])


@contextmanager
def _tiny_model() -> Iterator[str]:
    """A folder with a Llama of random weights and a tokenizer of one word an id, for as long as the context lasts."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    with TemporaryDirectory(prefix="gspo-doctor-model-") as folder:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            LlamaForCausalLM(LlamaConfig(**TINY)).save_pretrained(Path(folder))
        words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", eos_token="w2", pad_token="w0")
        tokenizer.save_pretrained(folder)
        yield folder


def _mean_gap(left: list[float], right: list[float]) -> float:
    return statistics.fmean(abs(a - b) for a, b in zip(left, right, strict=True))
