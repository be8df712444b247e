"""An address where nobody listens is an error at once."""

import socket
import time

import pytest

from gspo_ray.actors.cluster import joined_cluster
from gspo_ray.errors import ResourceError


def test_nobody_there():
    with socket.socket() as taken:  # bound, so that nobody else gets the port, and not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(ResourceError, match=rf"nothing answers .*{address} .*refused.*ray start --head"):
            joined_cluster(address, say=lambda text: None).__enter__()
    assert time.monotonic() - started < 5
