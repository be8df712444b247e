from collections.abc import Iterator

import pytest
import ray


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A local cluster with two logical CPUs, whatever the machine has."""
    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()
