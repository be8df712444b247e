"""Every model family: what is packed, padded, adapted, refused; and numbers against one plain row at a time."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load
from transformers import AutoConfig

from gspo_ray.config import LoraConfig, ModelConfig
from gspo_ray.errors import ModelError
from gspo_ray.learner import attention, support
from gspo_ray.learner.model import build_policy
from gspo_ray.learner.scorer import PackedScorer, PaddedScorer, choose_scorer
from gspo_ray.learner.support import check_model, load_config, lora_targets
from gspo_ray.learner.weights import export_adapter
from tests.unit.factories import make_batch
from tests.unit.learner.families import FAMILIES, WINDOW, kind_of, randomise_adapter, save_tiny, without_kind
from tests.unit.learner.helpers import plain_logprobs, random_group

TEMPERATURE = 0.7
RANK, ALPHA = 4, 8.0


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made: dict[str, str] = {}

    def folder(name):
        if name not in made:
            made[name] = save_tiny(name, tmp_path_factory.mktemp(name))
        return made[name]

    return folder


def build(path, target_modules="all-linear"):
    lora = LoraConfig(rank=RANK, alpha=ALPHA, target_modules=target_modules)
    config = ModelConfig(path=path, dtype="float32", lora=lora)
    return build_policy(path, config, device="cpu", seed=0, gradient_checkpointing=False)


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


def skeleton(name):
    with torch.device("meta"):
        return FAMILIES[name].model()


def test_names_parts_of_names_and_patterns_choose_layers_as_in_peft():
    llama = skeleton("llama")
    layer = "model.layers.1.self_attn"
    assert lora_targets(llama, [f"{layer}.q_proj", "mlp.up_proj"]) == [
        "model.layers.0.mlp.up_proj",
        f"{layer}.q_proj",
        "model.layers.1.mlp.up_proj",
    ]
    assert lora_targets(llama, r"model\.layers\.1\.self_attn\.[qv]_proj") == [f"{layer}.q_proj", f"{layer}.v_proj"]
    # As it is written, a string is one pattern for whole names, so it fits none.
    with pytest.raises(ModelError, match=r"'q_proj', but no linear layer .* has that name \(a string is one pattern"):
        lora_targets(llama, "q_proj")
    with pytest.raises(ModelError, match=r"'\*_proj' is no pattern \(nothing to repeat"):
        lora_targets(llama, "*_proj")


def test_the_tower_for_pictures_is_never_adapted():
    gemma = skeleton("gemma3_multimodal")
    vision = [n for n, m in gemma.named_modules() if "vision" in n and n.endswith("q_proj")]
    assert vision
    assert lora_targets(gemma, ["q_proj"]) == [
        f"model.language_model.layers.{number}.self_attn.q_proj" for number in (0, 1)
    ]
    with pytest.raises(ModelError, match=r"'vision_tower\.\*', but no linear layer of the language model"):
        lora_targets(gemma, "vision_tower.*")


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("qwen3_moe", "gate_proj"),
        ("qwen3_moe", "down_proj"),
        ("qwen3_moe", "mlp.gate"),
        ("qwen3_moe", "experts"),
        ("qwen3_moe", "experts.gate_up_proj"),
        ("qwen2_moe", "shared_expert_gate"),
        ("qwen2_moe", "experts"),
    ],
)
def test_experts_and_routers_are_refused_by_name(name, item):
    with pytest.raises(ModelError) as caught:
        lora_targets(skeleton(name), ["q_proj", item])
    assert f"model.lora.target_modules has '{item}'" in str(caught.value)
    assert "experts of a mixture are one stacked weight" in str(caught.value)
    assert f"In a {name} model" in str(caught.value)
    assert ", ".join(sorted(FAMILIES[name].layers)) in str(caught.value)


def test_a_misspelt_layer_is_refused_although_another_one_fits():
    """PEFT adapts what it finds and says nothing of the rest."""
    with pytest.raises(ModelError, match="has 'v_prj', but no linear layer"):
        lora_targets(skeleton("llama"), ["q_proj", "v_prj"])


def test_a_pattern_that_fits_a_gate_is_refused():
    with pytest.raises(ModelError, match="experts of a mixture"):
        lora_targets(skeleton("qwen2_moe"), ".*mlp.*")


def test_a_family_that_is_not_in_the_table_gets_every_linear_layer_but_gates_and_what_peft_takes_for_experts(
    monkeypatch,
):
    monkeypatch.setattr(support, "LAYERS", {})
    kinds = {kind_of(name) for name in lora_targets(skeleton("phi3"), "all-linear")}
    assert kinds == {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}
    kinds = {kind_of(name) for name in lora_targets(skeleton("qwen2_moe"), "all-linear")}
    assert kinds == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_peft_adapting_something_else_stops_the_run(folders, monkeypatch):
    monkeypatch.setattr("gspo_ray.learner.model.lora_targets", lambda *_: ["q_proj", "gate_proj", "up_proj"])
    with pytest.raises(ModelError, match="PEFT does not adapt what"):
        build(folders("qwen3_moe"))


def check(path, **changes):
    settings = {"revision": None, "target_modules": "all-linear", "architecture": None, "device": "cuda"} | changes
    return check_model(path, settings.pop("revision"), settings.pop("target_modules"), **settings)


def test_a_model_is_checked_without_its_weights(folders, tmp_path):
    shutil.copy(f"{folders('qwen3_moe')}/config.json", tmp_path)
    assert check(str(tmp_path)) == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert check(str(tmp_path), target_modules=["layers.1.self_attn.q_proj"]) == ["q_proj"]
    with pytest.raises(ModelError, match="has 'up_proj'"):
        check(str(tmp_path), target_modules=["up_proj"])
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        check(str(tmp_path / "absent"))


def test_a_model_without_the_learners_attention_is_refused_by_name(tmp_path):
    from transformers import GptOssConfig

    GptOssConfig(num_hidden_layers=1, hidden_size=64, intermediate_size=64).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="GptOssForCausalLM does not support an attention implementation"):
        check(str(tmp_path))


@pytest.mark.parametrize("name", ["gemma3_multimodal", "qwen3_5_multimodal"])
def test_learner_and_engine_load_the_class_that_the_folder_names(folders, name):
    """transformers would load a Qwen 3.5 as its language model alone, whose layers have other names."""
    named = AutoConfig.from_pretrained(folders(name)).architectures
    assert [type(build(folders(name)).get_base_model()).__name__] == named
    check(folders(name))
    with pytest.raises(ModelError, match=r"as Gemma3ForCausalLM, the learner as .* Unset rollout\.engine\.arch"):
        check(folders(name), architecture="Gemma3ForCausalLM")


def test_another_class_in_the_folder_than_the_learners_is_refused_with_the_fix(folders, tmp_path):
    config = AutoConfig.from_pretrained(folders("qwen2"))
    config.architectures = ["Qwen2ForRewardModel"]
    config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"Set rollout\.engine\.architecture=Qwen2ForCausalLM\."):
        check(str(tmp_path))
    check(str(tmp_path), architecture="Qwen2ForCausalLM")
    check(str(tmp_path), architecture="TransformersForCausalLM")  # vLLM's wrapper has transformers' names


@pytest.mark.parametrize("name", FAMILIES)
def test_what_vllm_cannot_do_on_cpu_is_refused_there_alone(folders, name):
    check(folders(name), device="cuda")
    why = {"qwen3_moe": "Triton", "qwen2_moe": "Triton", "qwen3_5": "linear", "qwen3_5_multimodal": "linear"}.get(name)
    if why is None:
        check(folders(name), device="cpu")
    else:
        with pytest.raises(ModelError, match=f"vLLM on CPU cannot serve .* {name.removesuffix('_multimodal')}.*{why}"):
            check(folders(name), device="cpu")
