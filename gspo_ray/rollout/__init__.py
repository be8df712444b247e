"""Sampling: the vLLM engine, its fake, and the sampler that spreads prompts over engines."""
