"""Counts against arithmetic by hand and against what is published about the models."""

import pytest

from gspo_ray.planning.policy import policy_without_weights
from gspo_ray.planning.shape import ModelShape, model_shape
from tests.unit.planning.conftest import MIXTURE, SIZES, Save, model

VOCABULARY, HEAD, KV = 151936, 128, 8


def shape_of(path: str, rank: int = 16) -> ModelShape:
    return model_shape(policy_without_weights(path, model(path, rank=rank), gradient_checkpointing=False))


@pytest.mark.parametrize(
    ("size", "total"),
    [  # of the weight files on Hugging Face
        ("0.6b", 596_049_920),
        ("4b", 4_022_468_096),
        ("8b", 8_190_735_360),
    ],
)
def test_dense_models(save: Save, size: str, total: int) -> None:
    hidden, mlp, layers, heads, tied = SIZES[size]
    shape = shape_of(save(size))
    # q, k, v, o, gate, up, down
    sides = [(hidden, heads * HEAD), (hidden, KV * HEAD), (hidden, KV * HEAD), (heads * HEAD, hidden)]
    sides += [(hidden, mlp), (hidden, mlp), (mlp, hidden)]
    linear = layers * sum(inputs * outputs for inputs, outputs in sides)
    norms = layers * (2 * hidden + 2 * HEAD)  # two of the layer, one of queries, one of keys
    assert shape.linear == linear
    assert shape.layers == linear + norms
    assert shape.largest_layer == (linear + norms) // layers
    assert shape.head == VOCABULARY * hidden
    assert shape.total == linear + norms + hidden + (1 if tied else 2) * VOCABULARY * hidden == total
    assert shape.lora == layers * sum(16 * (inputs + outputs) for inputs, outputs in sides)
    assert shape.pair_width == layers * heads * HEAD
    assert (shape.experts, shape.windows, shape.state_bytes) == (0, (), 0)


def test_the_cache_of_a_sequence(qwen3_4b: ModelShape) -> None:
    # keys and values x 36 layers x 8 heads x 128 x 2 bytes = 147,456 bytes a token
    assert qwen3_4b.kv_bytes(1, 2) == 2 * 36 * 8 * 128 * 2 == 147_456
    assert qwen3_4b.kv_bytes(1000, 2, tensor_parallel=4) == 1000 * 147_456 // 4
    assert qwen3_4b.kv_bytes(1000, 2, tensor_parallel=16) == 1000 * 147_456 // 8  # one head on each, every one twice


def test_a_mixture_has_most_weights_in_experts_and_trains_the_attention(save: Save) -> None:
    shape = shape_of(save(MIXTURE))
    # 48 layers x 128 experts x (gate, up, down) of 2048 x 768
    assert shape.experts == 48 * 128 * 3 * 2048 * 768
    assert shape.active_experts == 8 / 128
    assert shape.total == 30_532_122_624  # published: 30.5 B
    active = shape.linear + shape.experts // 16 + 2 * shape.head
    assert active == pytest.approx(3.3e9, rel=0.02)  # published: 3.3 B activated
    # q 2048 -> 4096, k and v 2048 -> 512, o 4096 -> 2048
    assert shape.lora == 48 * 16 * (2048 + 4096 + 2 * (2048 + 512) + 4096 + 2048)


def test_sliding_layers_keep_a_window(save: Save) -> None:
    path = save(
        "0.6b",
        use_sliding_window=True,
        sliding_window=100,
        max_window_layers=7,
        layer_types=["full_attention"] * 7 + ["sliding_attention"] * 21,
    )
    shape = shape_of(path)
    one = 2 * 8 * 128 * 2  # bytes a token and layer
    assert shape.kv_bytes(60, 2) == 60 * 28 * one
    assert shape.kv_bytes(1000, 2) == 1000 * 7 * one + 100 * 21 * one


def test_of_a_multimodal_model_the_text_part_is_trained_and_all_of_it_is_held(save: Save) -> None:
    from transformers import Qwen3_5Config

    small = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "vocab_size": 256, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "linear_conv_kernel_dim": 4}
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
    sizes = {"linear_key_head_dim": 16, "linear_value_head_dim": 8}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
    config = Qwen3_5Config(text_config=small | heads | linear | sizes, vision_config=vision).to_dict()
    path = save(config | {"architectures": ["Qwen3_5ForConditionalGeneration"]})
    policy = policy_without_weights(path, model(path), gradient_checkpointing=False)
    shape = model_shape(policy)
    assert not [name for name, p in policy.named_parameters() if p.requires_grad and "visual" in name]
    visual = sum(p.numel() for name, p in policy.named_parameters() if "visual" in name)
    embeddings_and_norm = (1 if shape.total < shape.layers + 2 * shape.head else 2) * shape.head + 64
    assert visual > 0
    assert shape.total == shape.layers + visual + embeddings_and_norm
    # Every fourth layer has pairs: 2 heads of 32, and one key-value head.
    assert (shape.pair_width, shape.kv_width) == (2 * 32, 2 * 1 * 32)
    # Three layers: 4 value heads, each 16 x 8, and 3 inputs of the convolution over queries, keys, values; float32
    assert shape.state_bytes == 3 * 4 * (4 * 16 * 8 + 3 * (2 * 2 * 16 + 4 * 8))
