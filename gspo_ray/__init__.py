"""gspo_ray: a Ray service that trains LoRA adapters with Group Sequence Policy Optimization."""

__version__ = "0.1.0"
