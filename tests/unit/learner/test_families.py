"""Every model family: what is packed, padded and adapted; and numbers against one plain row at a time."""

import json

import pytest
import torch
from safetensors.torch import load

from gspo_ray.learner import attention
from gspo_ray.learner.scorer import PackedScorer, PaddedScorer, choose_scorer
from gspo_ray.learner.support import load_config
from gspo_ray.learner.weights import export_adapter
from tests.unit.factories import make_batch
from tests.unit.learner.families import (
    ALPHA,
    FAMILIES,
    RANK,
    WINDOW,
    build,
    kind_of,
    randomise_adapter,
    save_tiny,
    without_kind,
)
from tests.unit.learner.helpers import plain_logprobs, random_group

TEMPERATURE = 0.7


@pytest.fixture(scope="module", params=FAMILIES)
def learned(request, folders):
    """Folder, policy with a large adapter, its B by name, the scorer that the learner would take, and why."""
    path = folders(request.param)
    policy = build(path)
    adapter_B = randomise_adapter(policy)
    scorer, why = choose_scorer(policy, "cpu")
    return request.param, path, policy, adapter_B, scorer, why


def batch():
    """Ragged groups with sequences of up to 22 tokens, far beyond the window."""
    sizes = ((4, 11, 2), (1, 1), (7, 3))
    return make_batch(
        [
            random_group(i, (1.0,) + (0.0,) * (len(lens) - 1), prompt_len=5 + 3 * i, lens=lens)
            for i, lens in enumerate(sizes)
        ]
    )


def test_the_batch_reaches_beyond_every_window():
    assert int((batch().prompt_lens_B + batch().completion_lens_B).max()) > 2 * WINDOW


def test_how_rows_are_computed(learned):
    name, _, _, _, scorer, why = learned
    reason = FAMILIES[name].padded_because
    assert isinstance(scorer, PackedScorer if reason is None else PaddedScorer), why
    assert reason is None or f"({reason})" in why.replace("this model does not take packed rows: ", "")


def test_all_linear_adapts_the_layers_that_the_engine_serves(learned):
    name, _, policy, adapter_B, _, _ = learned
    assert {kind_of(parameter) for parameter in adapter_B} == set(FAMILIES[name].layers)
    trainable = {parameter for parameter, p in policy.named_parameters() if p.requires_grad}
    assert {p.replace("lora_A", "lora_B") for p in trainable} == set(adapter_B)
    assert not any("vision" in parameter for parameter in adapter_B)
    config = json.loads(export_adapter(policy, step=1).peft_config)
    assert not config["target_parameters"]
    assert not config["rank_pattern"]


def test_logprobs_are_those_of_each_row_alone_in_a_merged_model(learned):
    """The reference has the adapter added to its weights by hand, and the most literal attention there is."""
    name, path, policy, _, scorer, _ = learned
    rows = batch()
    with torch.no_grad():
        got = scorer.logprobs(rows, TEMPERATURE)
    merged = (
        FAMILIES[name]
        .model_class()
        .from_pretrained(path, config=load_config(path, None), dtype=torch.float32, attn_implementation="eager")
    )
    weights = load(export_adapter(policy, step=1).payload)
    for lora_A in [n for n in weights if n.endswith("lora_A.weight")]:
        layer = merged.get_submodule(lora_A.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        update = weights[lora_A.replace("lora_A", "lora_B")].double() @ weights[lora_A].double()
        layer.weight.data += (ALPHA / RANK * update).float()
    for row in range(len(rows.group_B)):
        m, n = int(rows.prompt_lens_B[row]), int(rows.completion_lens_B[row])
        wanted = plain_logprobs(merged, rows.token_ids_BL[row, : m + n].tolist(), m, TEMPERATURE)
        assert got[row, :n].tolist() == pytest.approx(wanted, abs=1e-4)


def test_gradients_are_those_of_each_row_alone(learned):
    _, _, policy, _, scorer, _ = learned
    rows, base = batch(), policy.get_base_model()
    weights = torch.randn(rows.sampler_logprobs_BT.shape, generator=torch.Generator().manual_seed(1))
    weights *= torch.arange(weights.shape[1]) < rows.completion_lens_B[:, None]
    trainable = [p for p in policy.parameters() if p.requires_grad]
    got = torch.autograd.grad((scorer.logprobs(rows, TEMPERATURE) * weights).sum(), trainable)

    implementation = base.config._attn_implementation
    base.set_attn_implementation("eager")
    loss = torch.zeros(())
    for row in range(len(rows.group_B)):
        m, n = int(rows.prompt_lens_B[row]), int(rows.completion_lens_B[row])
        ids = rows.token_ids_BL[row, : m + n]
        table = torch.log_softmax(policy(input_ids=ids[None]).logits[0] / TEMPERATURE, -1)
        loss = loss + (table[torch.arange(m - 1, m + n - 1), ids[m:]] * weights[row, :n]).sum()
    wanted = torch.autograd.grad(loss, trainable)
    base.set_attn_implementation(implementation)

    norm = torch.cat([g.flatten() for g in wanted]).norm()
    for left, right in zip(got, wanted, strict=True):
        assert float(right.norm()) > 0
        assert float((left - right).norm() / norm) < 1e-5


def test_every_kind_of_layer_matters(learned):
    name, _, _, adapter_B, scorer, _ = learned
    rows = batch()
    real = torch.arange(rows.sampler_logprobs_BT.shape[1]) < rows.completion_lens_B[:, None]
    with torch.no_grad():
        whole = scorer.logprobs(rows, TEMPERATURE)
        for kind in FAMILIES[name].layers:
            with without_kind(adapter_B, kind):
                assert float((scorer.logprobs(rows, TEMPERATURE) - whole)[real].abs().max()) > 0.05, kind
        assert torch.equal(scorer.logprobs(rows, TEMPERATURE)[real], whole[real])


@pytest.mark.parametrize("name", ["mistral", "gemma3", "cohere2", "gemma3_multimodal"])
def test_a_window_that_is_not_obeyed_is_found_though_no_sequence_of_the_check_reaches_it(
    name, tmp_path, monkeypatch, folders
):
    """As when a layer keeps its window from the attention function: 400 tokens, and the check has rows of 20."""
    settings = FAMILIES[name].settings
    if "text_config" in settings:
        monkeypatch.setitem(settings, "text_config", settings["text_config"] | {"sliding_window": 400})
    else:
        monkeypatch.setitem(settings, "sliding_window", 400)
    policy = build(save_tiny(name, tmp_path))
    owners = [policy.config.get_text_config(), *(m for m in policy.modules() if hasattr(m, "sliding_window"))]
    windows = [owner.sliding_window for owner in owners]
    assert isinstance(choose_scorer(policy, "cpu")[0], PackedScorer)
    assert (401 if name == "cohere2" else 400) in windows
    assert [owner.sliding_window for owner in owners] == windows  # as they were

    from transformers import AttentionInterface

    def all_around(*args, sliding_window=None, **kwargs):
        return attention.packed_attention(*args, **kwargs)

    policy.get_base_model().set_attn_implementation("sdpa")  # as before the choice
    monkeypatch.setitem(AttentionInterface._global_mapping, attention.NAME, all_around)
    scorer, why = choose_scorer(policy, "cpu")
    assert isinstance(scorer, PaddedScorer)
    assert "would change log-probs by up to" in why


@pytest.mark.parametrize("key", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_one_cap_is_enough_for_padded_rows(key, tmp_path, monkeypatch):
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        monkeypatch.setitem(FAMILIES["gemma2"].settings, cap, 2.0 if cap == key else None)
    policy = build(save_tiny("gemma2", tmp_path))
    scorer, why = choose_scorer(policy, "cpu")
    assert isinstance(scorer, PaddedScorer)
    assert f"its {key} is not applied there" in why
    # sdpa would leave out the cap of the scores.
    assert policy.get_base_model().config._attn_implementation == ("eager" if key.startswith("attn") else "sdpa")
