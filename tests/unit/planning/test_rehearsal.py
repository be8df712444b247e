"""Bytes counted by hand, operation by operation."""

import pytest
import torch

from gspo_ray.algo.batch import unjudged_batch
from gspo_ray.learner.model import build_policy
from gspo_ray.learner.scorer import PackedScorer, PaddedScorer
from gspo_ray.planning import rehearsal
from gspo_ray.planning.policy import policy_without_weights
from gspo_ray.planning.rehearsal import LiveBytes, Rehearsal, rehearse, scorer_of
from tests.unit.learner.conftest import save_tiny_llama
from tests.unit.planning.conftest import TINY, Save, model

HIDDEN, HEADS, QUERIES, MLP, RANK = 32, 4, 32, 48, 4
TOKENS = 4 + 3 + 5
PART = unjudged_batch([([0] * 4, [[0] * 3, [0] * 5])])


def rehearsed(path: str, dtype: str, *, recompute: bool = False, device: str = "cuda") -> Rehearsal:
    policy = policy_without_weights(path, model(path, rank=RANK, dtype=dtype), gradient_checkpointing=recompute)
    return rehearse(policy, scorer_of(policy), PART, device=device)


def test_live_bytes_follow_tensors_as_they_come_and_go() -> None:
    with LiveBytes() as live:
        a = torch.empty(100, device="meta")  # 400 bytes
        b = a * 2
        view = b.view(10, 10)
        assert live.now == 800
        del b
        assert live.now == 800  # the view holds it
        del view
        a.add_(1)  # in place
        assert (live.now, live.peak) == (400, 800)
        del a
        assert live.now == 0


def test_what_autograd_keeps_counts_and_is_freed_by_the_backward_pass() -> None:
    weight = torch.empty(10, 10, device="meta", requires_grad=True)
    weight.grad = torch.empty_like(weight)
    with LiveBytes() as live:
        x = torch.empty(5, 10, device="meta")  # 200 bytes, kept for the weight's gradient
        y = (x @ weight).exp()  # 200 bytes, exp keeps its result and not what it was given
        del x
        assert live.now == 400
        y.sum().backward()
        del y
        assert live.now == 0


def one_layer(save: Save, dtype: str, *, recompute: bool = False) -> int:
    """Bytes kept of a layer; the first has inputs without gradients and keeps less."""
    three, two = (
        rehearsed(save(TINY, num_hidden_layers=layers), dtype, recompute=recompute).kept_bytes for layers in (3, 2)
    )
    return three - two


def test_a_layer_in_float32(save: Save) -> None:
    """For each token. Norms keep their input and one number, LoRA its input (q, k, v share one, gate and up another)
    and the output of A, attention what its kernel says, the MLP gate, silu(gate), up and their product."""
    norms = 2 * (4 * HIDDEN + 4)
    lora = 4 * (HIDDEN + QUERIES + HIDDEN) + 7 * 4 * RANK
    attention = 4 * 4 * QUERIES + 4 * HEADS  # all layers have one mask
    mlp = 4 * 4 * MLP
    assert one_layer(save, "float32") == TOKENS * (norms + lora + attention + mlp)


def test_a_layer_in_bfloat16_keeps_float32_copies_for_norms_and_for_every_adapter(save: Save) -> None:
    norms = 2 * (4 * HIDDEN + 4)
    lora = 4 * (3 * HIDDEN + QUERIES + 2 * HIDDEN + MLP) + 7 * 4 * RANK
    attention = 2 * 4 * QUERIES + 4 * HEADS
    mlp = 2 * 3 * MLP  # the product is kept as the copy above
    assert one_layer(save, "bfloat16") == TOKENS * (norms + lora + attention + mlp)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_a_recomputed_layer_keeps_its_input_alone(save: Save, dtype: str, size: int) -> None:
    assert one_layer(save, dtype, recompute=True) == TOKENS * HIDDEN * size
    whole, recomputed = (rehearsed(save(TINY), dtype, recompute=recompute) for recompute in (False, True))
    assert recomputed.passing_bytes > whole.passing_bytes  # a layer at a time comes back
    assert recomputed.peak_bytes < whole.peak_bytes


@pytest.mark.parametrize("recompute", [False, True])
def test_layers_that_repeat_are_not_run_one_by_one(
    save: Save, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same result, also where layers of two kinds take turns."""
    kinds = {
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "use_sliding_window": True,
        "sliding_window": 6,
    }
    qwen = TINY | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_hidden_layers": 6}
    for tree in (TINY | {"num_hidden_layers": 4}, qwen | kinds):
        path = save(tree)
        quick = rehearsed(path, "bfloat16", recompute=recompute)
        monkeypatch.setattr(rehearsal, "_period", lambda decoder: len(decoder.layers))
        assert rehearsed(path, "bfloat16", recompute=recompute) == quick
        monkeypatch.undo()


def test_long_groups_are_computed_one_completion_at_a_time_with_a_mask_on_the_cpu_alone(save: Save) -> None:
    path = save(TINY)
    policy = policy_without_weights(path, model(path, rank=RANK, dtype="float32"), gradient_checkpointing=False)
    part = unjudged_batch([([0] * 100, [[0] * 500, [0] * 300])])  # more than 768 tokens
    on_gpu, on_cpu = (rehearse(policy, scorer_of(policy), part, device=device) for device in ("cuda", "cpu"))
    # Two layers keep a mask of float32 for each completion: 500 x 600 and 300 x 400.
    assert on_cpu.kept_bytes - on_gpu.kept_bytes == 2 * 4 * (500 * 600 + 300 * 400)


def test_the_policy_is_the_learners_but_for_its_weights(tmp_path) -> None:
    path = save_tiny_llama(tmp_path)
    config = model(path, rank=RANK)
    real = build_policy(path, config, device="cpu", seed=0, gradient_checkpointing=True)
    ours = policy_without_weights(path, config, gradient_checkpointing=True)

    def described(policy):
        weights = {n: (p.shape, p.dtype, p.requires_grad) for n, p in policy.named_parameters()}
        modules = {
            n: (type(m), m.training, getattr(m, "gradient_checkpointing", None)) for n, m in policy.named_modules()
        }
        return weights, modules, policy.get_base_model().config._attn_implementation

    assert described(ours) == described(real)
    assert {p.device.type for p in ours.parameters()} == {"meta"}


def test_capped_scores_are_computed_the_plain_way_on_padded_rows(save: Save) -> None:
    """Gemma 2: the matrix of scores is kept, and the logits."""
    gemma = TINY | {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "head_dim": 8}
    path = save(gemma)
    policy = policy_without_weights(path, model(path, rank=RANK), gradient_checkpointing=False)
    assert isinstance(scorer_of(policy), PaddedScorer)
    assert policy.get_base_model().config._attn_implementation == "eager"
    assert rehearse(policy, scorer_of(policy), PART, device="cuda").kept_bytes > 0
    llama = policy_without_weights(save(TINY), model(path, rank=RANK), gradient_checkpointing=False)
    assert isinstance(scorer_of(llama), PackedScorer)
