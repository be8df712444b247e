"""Raw files from the Hugging Face hub at one commit. Its cache keeps what was loaded: a second try goes on there."""

from __future__ import annotations

from pathlib import Path

from gspo_ray.errors import DataError
from gspo_ray.prepare.catalogue import Dataset, HubSource
from gspo_ray.prepare.records import Split


def hub_source(dataset: Dataset, split: Split) -> HubSource:
    """Raises DataError when no place on the hub is known for this split."""
    if dataset.hub is None or split not in dataset.hub.files:
        raise DataError(f"{dataset.name}: no place on the hub is known for its {split} rows. Name a file: --raw FILE")
    return dataset.hub


def download(hub: HubSource, split: Split, revision: str) -> Path:
    """The file of the split. Raises DataError in one line when there is no library, no way there, or no such file."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise DataError(
            "reading from the Hugging Face hub needs its library: pip install huggingface_hub. Or name a local copy: "
            "--raw FILE"
        ) from None
    pattern = hub.files[split]
    try:
        folder = snapshot_download(hub.repo, repo_type="dataset", revision=revision, allow_patterns=[pattern])
    except (OSError, ValueError) as error:  # its own errors derive from them
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(
            f"{hub.repo} at {revision[:12]} cannot be loaded from the Hugging Face hub: {reason.rstrip('.')}. The same "
            "command goes on where it stopped; or name a local copy: --raw FILE"
        ) from error
    files = sorted(Path(folder).glob(pattern))
    if len(files) != 1:
        raise DataError(
            f"{hub.repo} at {revision[:12]} has {len(files)} files {pattern}, not one. Name a local copy: --raw FILE"
        )
    return files[0]
