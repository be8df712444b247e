"""The objective's own code as experiments that run in seconds on a CPU, golden values beside ours. No Ray, no model."""
