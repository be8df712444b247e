"""The policy being trained: base model + LoRA, the optimizer step, adapters as bytes."""
