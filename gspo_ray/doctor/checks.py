"""All checks of one node, in the order in which they are made, each with its time limit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gspo_ray.config import RunConfig
from gspo_ray.doctor import gpu, machine, selftest, services, storage, versions
from gspo_ray.doctor.finding import Finding, Level
from gspo_ray.errors import UserError
from gspo_ray.models import cache_root

SHORT_S, IMPORTS_S, LONG_S = 60.0, 180.0, 600.0


@dataclass(frozen=True, slots=True)
class Place:
    """What the cluster knows of a node."""

    is_driver: bool = True
    """The run itself would be here: it alone writes to storage_path and to MLflow."""
    object_store_bytes: float | None = None
    """None: Ray does not run here."""
    ray_cpus: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    run: Callable[[], Finding]
    limit_s: float = SHORT_S

    def attempt(self) -> Finding:
        """Never raises: a check that fails by itself is a finding too."""
        try:
            return self.run()
        except UserError as error:  # its message tells the fix
            return Finding(self.name, Level.FAIL, " ".join(str(error).split()))
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            return Finding(self.name, Level.FAIL, f"the check itself failed: {text}", _OWN_FAULT)


_OWN_FAULT = "What it names is broken on this node, or the check is: gspo-ray doctor --bundle makes a report of it."


def checks(config: RunConfig, place: Place, *, quick: bool) -> list[Check]:
    """`quick` leaves out the engine. `config` has absolute paths."""
    model, cuda = config.model, config.cluster.device == "cuda"
    folders = {storage.RAY_TEMP: ray_temp(), "models": model_cache(), "storage_path": Path(config.storage_path)}
    if not place.is_driver:
        del folders["storage_path"]
    share = config.rollout.engine.gpu_memory_utilization
    found = [
        Check("versions", versions.check_versions),
        Check("torch companions", versions.check_companions, IMPORTS_S),
        Check("GPU driver", partial(gpu.check_driver, wanted=cuda), IMPORTS_S),
        Check("GPUs", partial(gpu.check_gpus, wanted=cuda, needed_share=share), IMPORTS_S),
        Check("NCCL", partial(gpu.check_nccl, wanted=cuda), IMPORTS_S),
        Check("memory", machine.check_memory),
        Check("CPUs", partial(machine.check_cpus, place.ray_cpus)),
        Check("/dev/shm", partial(machine.check_shm, place.object_store_bytes)),
        Check("open files", machine.check_open_files),
        Check("disk", partial(storage.check_disk, folders)),
        Check("adapter folder", partial(storage.check_adapter_folder, adapter_root())),
        Check("base model", partial(services.check_base_model, model.path, model.revision), LONG_S),
        Check("model hub", partial(services.check_hub, model.path, model.revision), IMPORTS_S),
        Check("adapted layers", partial(services.check_adapted_layers, config), IMPORTS_S),
        Check("verifier", partial(selftest.check_verifier, config.reward), IMPORTS_S),
    ]
    if place.is_driver:
        uri = services.mlflow_uri(config)
        found.append(Check("storage_path", partial(storage.check_storage_path, Path(config.storage_path))))
        found.append(Check("MLflow", partial(services.check_mlflow, uri), IMPORTS_S))
    if not quick:
        found.append(Check("engine", partial(selftest.check_engine, config.cluster.device, model.dtype), LONG_S))
    return found


def ray_temp() -> Path:
    return Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray"


def adapter_root() -> Path:
    """As an engine chooses it."""
    return machine.SHM if os.access(machine.SHM, os.W_OK) else Path(tempfile.gettempdir())


def model_cache() -> Path:
    """Of the hub where its variables are set, else this package's own: both are on the home disk by default."""
    for name, tail in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if folder := os.environ.get(name):
            return Path(folder).expanduser().absolute() / tail
    return cache_root()
