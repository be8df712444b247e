"""The paper: advantages, batches, log-probs, losses. Torch only; runs in a bare notebook."""
