"""The same eight sequences on one and on two ranks: gradients are summed, divisors are global."""

import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from gspo_ray.algo.losses import Objective, policy_loss
from tests.unit.algo.cases import AGGREGATIONS, VARIANTS, random_batch

SHARES = ([0, 1, 2], [3, 4, 5, 6, 7])  # uneven on purpose
OBJECTIVES = [Objective(variant=v, aggregation=a, kl_coef=0.01) for v in VARIANTS for a in AGGREGATIONS]
FEATURES, VOCABULARY = 6, 11


def gradients(rows: list[int]) -> torch.Tensor:
    """[objective, parameters] of a small softmax policy for the given rows of the batch, float32."""
    batch = random_batch(1, (5, 2, 7, 1, 3, 9, 4, 6), spread=2e-3, dtype=torch.float32)
    divisor, mine = batch.divisor(), batch.rows(rows)
    generator = torch.Generator().manual_seed(7)
    inputs_BTF = torch.randn(8, 9, FEATURES, generator=generator)[rows]
    tokens_BT = torch.randint(0, VOCABULARY, (8, 9), generator=generator)[rows]
    theta_FV = (0.1 * torch.randn(FEATURES, VOCABULARY, generator=generator)).requires_grad_(True)
    result = []
    for objective in OBJECTIVES:
        logprobs_BT = (inputs_BTF @ theta_FV).log_softmax(-1).gather(-1, tokens_BT[..., None])[..., 0]
        # Near enough to the current policy that some ratios are cut and some are not.
        old_BT = logprobs_BT.detach() + (mine.old_BT - mine.logprobs_BT)
        loss, _ = policy_loss(
            logprobs_BT,
            old_BT,
            mine.mask_BT,
            mine.advantages_B,
            objective=objective,
            divisor=divisor,
            reference_logprobs_BT=old_BT + 0.1,
        )
        result.append(torch.autograd.grad(loss, theta_FV)[0].flatten())
    return torch.stack(result)


def work(rank: int, folder: str) -> None:
    """One rank: its rows, then the sum over all ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=len(SHARES))
    summed = gradients(SHARES[rank])
    dist.all_reduce(summed, op=dist.ReduceOp.SUM)
    if rank == 0:
        torch.save(summed, f"{folder}/summed.pt")
    dist.destroy_process_group()


@pytest.mark.timeout(120)
def test_two_ranks_with_three_and_five_sequences_give_the_gradient_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", next(name for _, name in socket.if_nameindex() if name.startswith("lo")))
    mp.spawn(work, args=(str(tmp_path),), nprocs=len(SHARES))
    summed, alone = torch.load(tmp_path / "summed.pt"), gradients(list(range(8)))
    torch.testing.assert_close(summed, alone, rtol=0, atol=1e-6)
    assert float(alone.norm(dim=-1).min()) > 1e-2  # 1e-6 is small against every one of them
