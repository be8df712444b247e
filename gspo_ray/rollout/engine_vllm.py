"""One vLLM engine behind `InferenceEngine`: ids in, ids and sampling log-probs out, versioned adapters."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gspo_ray.config import EngineConfig, engine_lora_rank
from gspo_ray.errors import EngineError
from gspo_ray.openmp import openmp_environment
from gspo_ray.rollout.vllm_worker import GROUPED_LORA_ENV
from gspo_ray.types import BASE_MODEL, Adapter, Completion, Finish, SamplingParams, WeightVersion

MAX_LORAS = 2  # the adapter in use and the one arriving


class VllmEngine:
    """Adapters get a name and an id of their own for each version and are never replaced in place.

    vLLM keys its prefix cache by adapter name, and an id that it knows already keeps its OLD weights without a
    word; so a new version is a new name, and the old one is removed once no request in flight names it.
    """

    def __init__(
        self,
        model_path: str,
        *,
        revision: str | None,
        dtype: str,
        device: str,
        max_model_len: int,
        lora_rank: int,
        engine: EngineConfig,
        engine_id: str,
        seed: int,
    ) -> None:
        self._engine_id = engine_id
        self._directory = _adapter_directory()
        self._current: tuple[WeightVersion, Any] | None = None  # version and its LoRARequest (None: the base model)
        self._in_flight: dict[int, int] = {}  # LoRA id -> requests that name it
        self._retired: set[int] = set()
        self._request_ids = itertools.count()
        _set_environment(device, engine)

        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.executor.uniproc_executor import UniProcExecutor

        args: dict[str, Any] = {}
        if device == "cpu":
            # A seeded request whose prefill is split over two batches kills the CPU engine ("CPU Generator does
            # not use offset"), so a prompt is never split here.
            args |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(max_model_len, 4096)}
            args |= {"kv_cache_memory_bytes": engine.cpu_kv_cache_gib << 30}
            # In the engine's own process: beside a worker process it would keep one core busy with waiting for it.
            args["distributed_executor_backend"] = UniProcExecutor
        if engine.tensor_parallel_size > 1:
            args["distributed_executor_backend"] = "mp"  # inside an actor that holds the GPUs; vLLM would ask Ray again
        if engine.architecture is not None:
            args["hf_overrides"] = {"architectures": [engine.architecture]}
        if engine.block_size is not None:
            args["block_size"] = engine.block_size
        try:
            self._llm = AsyncLLM.from_engine_args(
                AsyncEngineArgs(
                    model=model_path,
                    revision=revision,
                    dtype=dtype,
                    max_model_len=max_model_len,
                    seed=seed,
                    enable_lora=True,
                    max_loras=MAX_LORAS,
                    max_cpu_loras=MAX_LORAS,
                    max_lora_rank=engine_lora_rank(lora_rank),
                    logprobs_mode="processed_logprobs",  # of the distribution that is sampled from
                    generation_config="vllm",  # no hidden sampling defaults from the model's folder
                    enable_prefix_caching=True,
                    enforce_eager=engine.enforce_eager or device == "cpu",
                    gpu_memory_utilization=engine.gpu_memory_utilization,
                    tensor_parallel_size=engine.tensor_parallel_size,
                    max_num_seqs=engine.max_num_seqs,
                    worker_extension_cls="gspo_ray.rollout.vllm_worker.WorkerExtension",
                    disable_log_stats=True,
                    **args,
                )
            )
        except Exception as error:  # any library of the engine may refuse model, memory or device
            shutil.rmtree(self._directory, ignore_errors=True)
            raise EngineError(f"engine {engine_id} does not start: {error}") from error

    async def generate(
        self, prompt_ids: Sequence[int], *, n: int, sampling: SamplingParams, seed: int
    ) -> list[Completion]:
        """`n` completions; completion i has seed `seed + i`. Raises EngineError when vLLM returns something else."""
        from vllm import SamplingParams as VllmSamplingParams
        from vllm.sampling_params import RequestOutputKind

        version, output = await self._request(
            prompt_ids,
            VllmSamplingParams(
                n=n,
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=max(sampling.top_k, 0),  # vLLM: 0 is off
                seed=seed,
                logprobs=0,  # the sampled token alone
                output_kind=RequestOutputKind.FINAL_ONLY,
            ),
        )
        if len(output.outputs) != n:
            raise EngineError(
                f"engine {self._engine_id} returned {len(output.outputs)} completions, {n} were asked for"
            )
        return [
            Completion(
                token_ids=tuple(item.token_ids),
                sampler_logprobs=_sampled_logprobs(item.token_ids, item.logprobs),
                text=item.text,
                finish=Finish(item.finish_reason) if item.finish_reason in ("stop", "length") else Finish.ABORT,
                version=version,
                engine_id=self._engine_id,
                seed=seed + index,
            )
            for index, item in enumerate(output.outputs)
        ]

    async def score(self, token_ids: Sequence[int], *, num_prompt: int) -> list[float]:
        from vllm import SamplingParams as VllmSamplingParams

        _, output = await self._request(token_ids, VllmSamplingParams(max_tokens=1, prompt_logprobs=0))
        return [
            table[token].logprob
            for token, table in zip(token_ids[num_prompt:], output.prompt_logprobs[num_prompt:], strict=True)
        ]

    async def load_adapter(self, adapter: Adapter) -> WeightVersion:
        from vllm.lora.request import LoRARequest

        version = adapter.version
        request = LoRARequest(version.name, version.step + 1, str(self._directory / version.name))
        _write_peft_directory(Path(request.lora_path), adapter)
        try:
            await self._llm.add_lora(request)
            if request.lora_int_id not in await self._llm.list_loras():
                raise EngineError(f"engine {self._engine_id} does not list adapter {version.name} after loading it")
            for names in await self._llm.collective_rpc("unapplied_modules", args=(request.lora_int_id,)):
                if names:
                    raise EngineError(
                        f"engine {self._engine_id} has no module for {len(names)} layers of {version.name}, first "
                        f"{names[0]}: it would sample without them. Engine and learner "
                        "load different classes of this model: see rollout.engine.architecture."
                    )
            digests = set(await self._llm.collective_rpc("adapter_sha256", args=(request.lora_path,)))
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(f"engine {self._engine_id} refused adapter {version.name}: {error}") from error
        if len(digests) != 1:
            raise EngineError(f"workers of engine {self._engine_id} hold different bytes of {version.name}: {digests}")
        self._retire_current(unless=request.lora_int_id)
        self._current = (version, request)
        await self._drop_retired()
        return WeightVersion(step=version.step, sha256=digests.pop())

    async def use_base_model(self) -> WeightVersion:
        self._retire_current()
        self._current = (BASE_MODEL, None)
        await self._drop_retired()
        return BASE_MODEL

    async def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        await asyncio.to_thread(self._llm.shutdown)

    async def _request(self, prompt_ids: Sequence[int], params: Any) -> tuple[WeightVersion, Any]:
        """Run one request under the adapter that is current now, which stays loaded until the request ends."""
        from vllm.inputs import TokensPrompt

        if self._current is None:
            raise EngineError(f"engine {self._engine_id} has no adapter yet: it would sample from the bare base model")
        version, lora = self._current
        lora_id = 0 if lora is None else lora.lora_int_id  # vLLM's ids start at 1
        self._in_flight[lora_id] = self._in_flight.get(lora_id, 0) + 1
        last = None
        try:
            request_id = f"{self._engine_id}-{next(self._request_ids)}"
            prompt = TokensPrompt(prompt_token_ids=list(prompt_ids))
            async for output in self._llm.generate(prompt, params, request_id, lora_request=lora):
                last = output
        except Exception as error:  # a dead engine raises a different class at every layer
            raise EngineError(f"engine {self._engine_id} failed: {error}") from error
        finally:
            self._in_flight[lora_id] -= 1
        if last is None or not last.finished:
            raise EngineError(f"engine {self._engine_id} ended a request without an answer")
        await self._drop_retired()
        return version, last

    def _retire_current(self, unless: int | None = None) -> None:
        if self._current is not None and self._current[1] is not None and self._current[1].lora_int_id != unless:
            self._retired.add(self._current[1].lora_int_id)

    async def _drop_retired(self) -> None:
        for lora_id in [i for i in self._retired if not self._in_flight.get(i)]:
            self._retired.discard(lora_id)
            await self._llm.remove_lora(lora_id)
            shutil.rmtree(self._directory / f"policy-{lora_id - 1}", ignore_errors=True)


def _set_environment(device: str, engine: EngineConfig) -> None:
    """For this process and vLLM's children; before vllm is imported, because it reads them then."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if device == "cpu":
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"  # the learner shares these cores
        os.environ.update(openmp_environment(engine.cpu_threads))
        os.environ[GROUPED_LORA_ENV] = "1" if engine.cpu_grouped_lora else "0"


def _adapter_directory() -> Path:
    """A folder in memory where /dev/shm can be written, else on disk. Folders of engines that were killed are swept:
    of this host alone, since containers may share the memory but not the process ids."""
    root = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
    prefix = f"gspo-adapters-{socket.gethostname()}-"
    for left in root.glob(f"{prefix}*-*"):
        if not Path("/proc", left.name.removeprefix(prefix).split("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=root))


def _write_peft_directory(directory: Path, adapter: Adapter) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "adapter_model.safetensors").write_bytes(adapter.payload)
    (directory / "adapter_config.json").write_text(adapter.peft_config, encoding="utf-8")


def _sampled_logprobs(token_ids: Sequence[int], tables: Any) -> tuple[float, ...]:
    """Looked up by the sampled id: a position's table may hold other candidates, and the first need not be it."""
    if tables is None or len(tables) != len(token_ids):
        raise EngineError(f"vLLM returned {len(tables or ())} log-probs for {len(token_ids)} tokens")
    return tuple(table[token].logprob for token, table in zip(token_ids, tables, strict=True))
