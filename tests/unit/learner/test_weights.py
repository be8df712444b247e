"""Adapters as bytes: a round trip to the last bit, PEFT reads them as they are, damage is refused."""

import json
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from gspo_ray.errors import CheckpointError, LearnerError, ModelError
from gspo_ray.learner.weights import export_adapter, import_adapter
from tests.unit.learner.helpers import merged_model, plain_logprobs, random_batch, tensors

PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
IDS = [5, 9, 3, 60, 1, 17, 22, 4, 33, 8]


def write_peft_directory(adapter, folder):
    (folder / "adapter_model.safetensors").write_bytes(adapter.payload)
    (folder / "adapter_config.json").write_text(adapter.peft_config, encoding="utf-8")
    return folder


def test_export_and_import_is_the_identity(make_learner):
    learner = make_learner()
    learner.step(random_batch(), step=1)
    adapter = learner.export_adapter()
    other = make_learner(seed=5)
    assert other.export_adapter().version.sha256 != adapter.version.sha256
    import_adapter(other._model, adapter)
    assert export_adapter(other._model, step=1) == adapter
    assert other.score(IDS, num_prompt=2) == learner.score(IDS, num_prompt=2)


def test_exporting_twice_gives_the_same_bytes(make_learner):
    learner = make_learner()
    assert learner.export_adapter() == learner.export_adapter()
    assert make_learner().export_adapter() == learner.export_adapter()


def test_export_takes_a_copy_that_later_updates_do_not_change(make_learner):
    learner = make_learner()
    adapter = learner.export_adapter()
    before = {name: tensor.clone() for name, tensor in tensors(adapter).items()}
    learner.step(random_batch(), step=1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(adapter).items())


@pytest.mark.parametrize(
    "target_modules", ["all-linear", ["q_proj", "up_proj"], r".*\.(q_proj|down_proj)"], ids=["all", "list", "pattern"]
)
def test_peft_loads_the_exported_directory_and_computes_the_same(make_learner, tiny_llama, tmp_path, target_modules):
    learner = make_learner(target_modules=target_modules)
    learner.step(random_batch(), step=1)
    folder = write_peft_directory(learner.export_adapter(), tmp_path)
    base = AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32)
    without = plain_logprobs(base, IDS, 2)
    loaded = PeftModel.from_pretrained(base, folder).eval()
    assert plain_logprobs(loaded, IDS, 2) == pytest.approx(learner.score(IDS, num_prompt=2), abs=1e-5)
    assert plain_logprobs(loaded, IDS, 2) != pytest.approx(without, abs=1e-3)


def test_every_tensor_lands_in_the_projection_that_it_is_named_after(make_learner, tiny_llama):
    # B46: gate and up have one shape, so a swap passes every shape check. Each lora_B is a constant of its own.
    learner = make_learner(rank=2, alpha=6.0)
    parameters = [p for name, p in learner._trainable.items() if "lora_B" in name]
    assert len(parameters) == 14
    for number, parameter in enumerate(parameters):
        parameter.data.fill_(0.02 * (number + 1))
    # B47: the scale is alpha / rank = 3
    merged = merged_model(tiny_llama, learner.export_adapter(), scale=3.0)
    assert learner.score(IDS, num_prompt=1) == pytest.approx(plain_logprobs(merged, IDS, 1), abs=1e-4)


def test_the_peft_config_says_what_is_true_and_is_the_same_in_every_process(make_learner):
    learner = make_learner(rank=4, alpha=8.0)
    config = json.loads(learner.export_adapter().peft_config)
    assert (config["r"], config["lora_alpha"], config["peft_type"], config["task_type"]) == (
        4,
        8.0,
        "LORA",
        "CAUSAL_LM",
    )
    assert config["inference_mode"] is True
    assert config["modules_to_save"] is None
    assert config["use_dora"] is False
    assert config["use_rslora"] is False
    # A set in PEFT, whose order changes with the hash seed
    assert config["target_modules"] == sorted(config["target_modules"])
    assert {name.rsplit(".", 1)[-1] for name in config["target_modules"]} == PROJECTIONS
    assert learner._model.peft_config["default"].inference_mode is False  # left as it was


def test_names_are_those_of_a_peft_directory(make_learner):
    names = tensors(make_learner().export_adapter())
    # B44, B53: no ".default." and no other prefix, or vLLM refuses or ignores them
    assert all(name.startswith("base_model.model.model.layers.") for name in names)
    assert all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in names)
    assert len(names) == 2 * 7 * 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_never_leaves(make_learner, bad):
    # A31: vLLM takes a NaN adapter without a word and emits token 0
    learner = make_learner()
    next(p for name, p in learner._trainable.items() if "layers.0.self_attn.q_proj.lora_A" in name).data[0, 0] = bad
    with pytest.raises(LearnerError, match=r"1 tensors.*layers\.0\.self_attn\.q_proj\.lora_A"):
        learner.export_adapter()
    with pytest.raises(LearnerError, match="not finite"):
        learner.export_state()


@pytest.mark.parametrize("damage", ["flipped", "shortened", "other sha"])
def test_damaged_bytes_are_refused_and_change_nothing(make_learner, damage):
    learner = make_learner()
    learner.step(random_batch(), step=3)
    good = learner.export_adapter()
    flipped = bytearray(good.payload)
    flipped[-1] ^= 1
    bad = {
        "flipped": replace(good, payload=bytes(flipped)),
        "shortened": replace(good, payload=good.payload[:-8]),
        "other sha": replace(good, version=replace(good.version, sha256="0" * 64)),
    }[damage]
    other = make_learner()
    before = other.export_adapter()
    with pytest.raises(CheckpointError, match="step 3 is damaged"):
        import_adapter(other._model, bad)
    assert other.export_adapter() == before


@pytest.mark.parametrize("settings", [{"rank": 8}, {"target_modules": ["q_proj"]}], ids=["rank", "layers"])
def test_an_adapter_of_another_shape_is_refused(make_learner, settings):
    with pytest.raises(CheckpointError, match="does not fit"):
        import_adapter(make_learner()._model, make_learner(**settings).export_adapter())


def test_export_asks_nobody_outside(make_learner, monkeypatch):
    """PEFT's default looks up the base model's config, on the Hugging Face hub too, at every export."""
    learner = make_learner()
    learner._model.peft_config["default"].base_model_name_or_path = "some-org/some-model"

    def refuse(*args, **kwargs):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("peft.utils.save_and_load.check_file_exists_on_hf_hub", refuse)
    import_adapter(learner._model, learner.export_adapter())


def test_a_model_that_cannot_be_loaded_is_the_users_error(make_learner, tmp_path):
    with pytest.raises(ModelError, match="cannot be loaded"):
        make_learner(str(tmp_path))


def test_target_modules_that_fit_nothing_are_the_users_error(make_learner):
    with pytest.raises(ModelError, match="target_modules"):
        make_learner(target_modules=["no_such_projection"])
