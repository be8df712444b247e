"""A Llama small enough for milliseconds, and learners on it."""

import pytest
import torch

from gspo_ray.config import AlgoConfig, LearnerConfig, LoraConfig, ModelConfig
from gspo_ray.learner.distributed import ALONE
from gspo_ray.learner.learner import LoraLearner
from tests.unit.learner.families import save_tiny
from tests.unit.learner.pair import Pair

VOCABULARY = 64


@pytest.fixture(scope="session", autouse=True)
def _few_threads():
    """Kernels this small gain nothing from threads, and the machine may be busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def save_tiny_llama(folder, **config):
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                vocab_size=VOCABULARY,
                max_position_embeddings=512,
                tie_word_embeddings=True,
                initializer_range=0.2,  # far from uniform, so that every gradient is felt
                **config,
            )
        )
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory):
    return save_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def tiny_llama_with_dropout(tmp_path_factory):
    return save_tiny_llama(tmp_path_factory.mktemp("tiny-llama-dropout"), attention_dropout=0.5)


def build_learner(
    path,
    *,
    seed=0,
    rank=4,
    alpha=8.0,
    target_modules="all-linear",
    dtype="float32",
    temperature=1.0,
    algo=None,
    max_tokens=100,
    total_steps=100,
    ranks=ALONE,
    **learner,
):
    """adam_eps = 1 makes the first update g / (|g| + 1): comparable to rounding, unlike Adam's near-sign."""
    settings = {"lr_schedule": "constant", "learning_rate": 1.0, "adam_eps": 1.0, "max_grad_norm": None} | learner
    return LoraLearner(
        path,
        model=ModelConfig(
            path=path, dtype=dtype, lora=LoraConfig(rank=rank, alpha=alpha, target_modules=target_modules)
        ),
        algo=algo or AlgoConfig(),
        learner=LearnerConfig(**settings),
        temperature=temperature,
        max_tokens=max_tokens,
        total_steps=total_steps,
        device="cpu",
        seed=seed,
        ranks=ranks,
    )


@pytest.fixture(scope="session")
def make_learner(tiny_llama):
    def make(path=tiny_llama, **settings):
        return build_learner(path, **settings)

    return make


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Folder of a tiny model by its family's name, made once."""
    made: dict[str, str] = {}

    def folder(name):
        if name not in made:
            made[name] = save_tiny(name, tmp_path_factory.mktemp(name))
        return made[name]

    return folder


@pytest.fixture(scope="session")
def pair():
    pair = Pair()
    yield pair
    pair.close()
