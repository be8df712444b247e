"""Base weights that do not fit one GPU, spread over the ranks with FSDP2 (`fully_shard`). The adapter stays whole."""

from __future__ import annotations

from peft import PeftModel
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from gspo_ray.algo.batch import TrainBatch, unjudged_batch
from gspo_ray.errors import ModelError

# What a rank sends through the model when only the others have rows left.
IDLE: TrainBatch = unjudged_batch([([0], [[0]])])


def shard_base(model: PeftModel, *, device: str, num_ranks: int) -> None:
    """From a model on the CPU, the same on every rank, to decoder layers of which each rank holds a part on `device`.

    A layer's weights are whole on a rank only while it is computed, so every rank must go through the model equally
    often, forward and backward. Embeddings and head stay whole: log-probs are computed from the head's weight itself.
    Adapter weights stay plain tensors, equal on all ranks.
    Raises ModelError for a model whose decoder has no list of layers.
    """
    decoder = model.get_base_model().get_decoder()
    if (layers := getattr(decoder, "layers", None)) is None:
        raise ModelError(f"learner.shard_base: {type(decoder).__name__} has no list of layers to shard")
    mesh = init_device_mesh(device, (num_ranks,))
    adapter = {parameter for parameter in model.parameters() if parameter.requires_grad}
    sharded = {parameter for parameter in layers.parameters() if not parameter.requires_grad}
    for layer in layers:
        fully_shard(layer, mesh=mesh, ignored_params=adapter)
    # The decoder as a whole, so that a layer's weights travel while the one before it is computed.
    fully_shard(decoder, mesh=mesh, ignored_params=set(decoder.parameters()) - sharded)
    model.to(device)
