"""Batches for the tiny model, and independent ways to the numbers that the learner reports."""

import random

import torch
from safetensors.torch import load
from transformers import AutoModelForCausalLM

from tests.unit.factories import make_batch, make_group
from tests.unit.learner.conftest import VOCABULARY


def tokens(rng, count):
    return tuple(rng.randrange(1, VOCABULARY) for _ in range(count))


def random_group(seed, rewards=(1.0, 0.0, 0.0), *, prompt_len=5, lens=(4, 9, 2)):
    rng = random.Random(seed)
    completions = [tokens(rng, n) for n, _ in zip(lens, rewards, strict=True)]
    return make_group(rewards, completions, problem_id=f"p{seed}", prompt_ids=tokens(rng, prompt_len))


def random_batch(num_groups=3):
    """Ragged prompts and completions, every group with a signal."""
    return make_batch([random_group(seed, prompt_len=3 + 2 * seed) for seed in range(num_groups)])


def tensors(adapter):
    return load(adapter.payload)


def distance(left, right):
    """Largest difference between two adapters."""
    a, b = tensors(left), tensors(right)
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def gradients_of_next_update(learner):
    """Filled at the learner's next update: gradient by parameter name, before clipping has changed a thing."""
    grads = {}

    def keep(*_):
        grads.update({name: p.grad.clone() for name, p in learner._trainable.items()})

    learner._optimizer.register_step_pre_hook(keep)
    return grads


def merged_model(path, adapter, *, scale):
    """The base model with scale * B A added to its weights by hand, from nothing but the exported bytes."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    weights = tensors(adapter)
    for name in [n for n in weights if n.endswith("lora_A.weight")]:
        module = model.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        update = weights[name.replace("lora_A", "lora_B")].double() @ weights[name].double()
        module.weight.data += (scale * update).float()
    return model


def plain_logprobs(model, token_ids, num_prompt, temperature=1.0):
    """One sequence, no padding, log_softmax in float64."""
    ids = torch.tensor([list(token_ids)])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0].double() / temperature
    table = torch.log_softmax(logits, -1)
    return [float(table[p - 1, token_ids[p]]) for p in range(num_prompt, len(token_ids))]


def uneven():
    """One sequence has more tokens than all others together."""
    return make_batch([random_group(1, (1.0, 0.0), lens=(90, 5)), random_group(2), random_group(3)])
