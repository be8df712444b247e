"""Seeds as a pure function of (run seed, what it is for): nothing ever reads a global random state."""

import hashlib


def derive_seed(seed: int, *path: int | str) -> int:
    """A 31-bit seed for `path` below the run's `seed`, e.g. derive_seed(0, "rollout", step, problem).

    31 bits, because the engine adds the sample index to it and some generators take no more than 32.
    """
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 33
