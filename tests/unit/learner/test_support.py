"""Which layers are adapted, and which models and layers are refused, by name."""

import shutil

import pytest
import torch
from transformers import AutoConfig

from gspo_ray.errors import ModelError
from gspo_ray.learner import support
from gspo_ray.learner.support import check_model, lora_targets
from tests.unit.learner.families import FAMILIES, build, kind_of


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
