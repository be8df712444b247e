"""One update: what moves, what must not, and that no way of cutting the batch is felt."""

import math
from dataclasses import replace

import pytest
import torch

from gspo_ray.learner.attention import NAME as PACKED_ATTENTION
from tests.unit.factories import make_batch
from tests.unit.learner.helpers import (
    distance,
    gradients_of_next_update,
    merged_model,
    plain_logprobs,
    random_batch,
    random_group,
    tensors,
)


def lora_b_norms(learner):
    return {n: float(t.norm()) for n, t in tensors(learner.export_adapter()).items() if "lora_B" in n}


@pytest.mark.parametrize("checkpointing", [False, True])
def test_after_one_update_every_lora_b_has_moved(make_learner, checkpointing):
    # A26: with frozen embeddings, reentrant checkpointing gives no gradient at all and says nothing.
    learner = make_learner(gradient_checkpointing=checkpointing)
    assert set(lora_b_norms(learner).values()) == {0.0}
    assert learner.step(random_batch(), step=1).updated
    norms = lora_b_norms(learner)
    assert len(norms) == 2 * 7  # layers x (q, k, v, o, gate, up, down)
    assert min(norms.values()) > 0


def test_checkpointing_changes_neither_gradient_nor_adapter(make_learner):
    plain, checkpointed = make_learner(), make_learner(gradient_checkpointing=True)
    plain_grads, checkpointed_grads = gradients_of_next_update(plain), gradients_of_next_update(checkpointed)
    for step in (1, 2):
        plain.step(random_batch(), step=step)
        checkpointed.step(random_batch(), step=step)
        for name, grad in plain_grads.items():
            torch.testing.assert_close(checkpointed_grads[name], grad, rtol=1e-5, atol=1e-7)
    assert distance(plain.export_adapter(), checkpointed.export_adapter()) < 1e-6


def test_checkpointing_does_not_switch_dropout_on(make_learner, tiny_llama_with_dropout):
    # The layers must be in train mode to checkpoint; attention_dropout = 0.5 would then draw another function
    # for the old log-probs, for the new ones and for the probe.
    plain = make_learner(tiny_llama_with_dropout)
    checkpointed = make_learner(tiny_llama_with_dropout, gradient_checkpointing=True)
    ids = list(range(1, 30))
    assert checkpointed.score(ids, num_prompt=5) == checkpointed.score(ids, num_prompt=5)
    plain.step(random_batch(), step=1)
    checkpointed.step(random_batch(), step=1)
    assert distance(plain.export_adapter(), checkpointed.export_adapter()) < 1e-6


def test_checkpointing_is_really_on(make_learner):
    """Every decoder layer runs again in the backward pass."""
    learner = make_learner(gradient_checkpointing=True)
    layer = learner._model.base_model.model.model.layers[1].mlp
    calls = []
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    learner.step(random_batch(1), step=1)
    assert len(calls) == 2


def test_the_gradient_is_that_of_the_paper_computed_sequence_by_sequence(make_learner):
    """No padding, no micro-batch, no head trick: autograd over eq. 5 written out, on the same policy."""
    learner = make_learner(temperature=0.7)
    learner.step(random_batch(), step=1)  # away from B = 0, where lora_A has no gradient
    batch = random_batch(2)
    with torch.no_grad():
        old = learner.fill_old_logprobs(batch).old_logprobs_BT
    assert old is not None
    noise = 2e-4 * torch.randn(old.shape, generator=torch.Generator().manual_seed(1))
    batch = replace(batch, old_logprobs_BT=old + noise)
    model, total = learner._model, 0.0
    model.get_base_model().set_attn_implementation("sdpa")  # for plain rows
    for row in range(batch.num_sequences):
        m, n = int(batch.prompt_lens_B[row]), int(batch.completion_lens_B[row])
        ids = batch.token_ids_BL[row : row + 1, : m + n]
        table = torch.log_softmax(model(input_ids=ids).logits[0].double() / 0.7, -1)
        new = torch.stack([table[p - 1, ids[0, p]] for p in range(m, m + n)])
        s = (new - (old + noise)[row, :n].double()).mean().exp()
        a = float(batch.advantages_B[row])
        total = total - torch.minimum(s * a, s.clamp(1 - 3e-4, 1 + 4e-4) * a) / batch.num_sequences
    assert isinstance(total, torch.Tensor)
    wanted = torch.autograd.grad(total, list(learner._trainable.values()))
    grads = gradients_of_next_update(learner)
    model.get_base_model().set_attn_implementation(PACKED_ATTENTION)
    stats = learner.step(batch, step=2)
    assert stats.loss == pytest.approx(total.item(), abs=1e-6)
    for (name, grad), expected in zip(grads.items(), wanted, strict=True):
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-6, msg=name)
    norm = math.sqrt(sum(float(g.double().pow(2).sum()) for g in wanted))
    assert stats.grad_norm == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("budget", [1, 20, 45])
def test_micro_batches_change_memory_and_never_the_adapter(make_learner, budget):
    # A7: 1.000, not divided a second time by the number of micro-batches
    whole, cut = make_learner(micro_batch_tokens=10**6), make_learner(micro_batch_tokens=budget)
    for step in (1, 2):
        one, many = whole.step(random_batch(), step=step), cut.step(random_batch(), step=step)
        assert many.grad_norm == pytest.approx(one.grad_norm, rel=1e-5)
        assert many.loss == pytest.approx(one.loss, abs=1e-6)
        assert many.tokens == one.tokens
    assert distance(whole.export_adapter(), cut.export_adapter()) < 1e-6


def test_degenerate_groups_are_felt_in_the_divisor_and_nowhere_else(make_learner):
    signal = random_group(1)
    flat = random_group(2, (1.0, 1.0, 1.0), lens=(20, 1, 3))
    mixed, alone = make_batch([signal, flat]), make_batch([signal])
    one, other = make_learner(), make_learner()
    stats = one.step(mixed, step=1)
    other.step(replace(alone, num_sequences=6, num_tokens=39), step=1)  # 15 + 24 tokens
    assert one.export_adapter().payload == other.export_adapter().payload
    assert {s.row for s in stats.sequences} == {0, 1, 2}
    # 3 sequences instead of 6 in the divisor: exactly twice the gradient
    assert make_learner().step(alone, step=1).grad_norm == pytest.approx(2 * stats.grad_norm, rel=1e-6)


def test_a_batch_without_signal_changes_nothing_at_all(make_learner):
    learner = make_learner()
    learner.step(random_batch(), step=1)
    before = learner.export_state()
    stats = learner.step(make_batch([random_group(1, (1.0,) * 3), random_group(2, (0.0,) * 3)]), step=2)
    after = learner.export_state()
    assert not stats.updated
    assert (stats.loss, stats.grad_norm, stats.tokens, stats.num_sequences) == (0.0, 0.0, 0, 6)
    assert stats.sequences == ()
    assert after.adapter == before.adapter  # bytes and version: still that of step 1
    assert after.adapter.version.step == 1
    assert after.optimizer == before.optimizer


def test_an_update_of_a_minibatch_equals_that_of_a_batch_made_of_its_groups(make_learner):
    # A8: four updates of 8 from a batch of 32 are normalised by 8 each
    groups = [random_group(seed) for seed in range(4)]
    one, other = make_learner(), make_learner()
    batch = one.fill_old_logprobs(make_batch(groups))
    first = one.step(batch.split(2)[0], step=1)
    assert first.num_sequences == 6
    alone = other.step(make_batch(groups[:2]), step=1)
    assert first.grad_norm == pytest.approx(alone.grad_norm, rel=1e-6)
    assert distance(one.export_adapter(), other.export_adapter()) < 1e-7


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("budget", [30, 10**6])
def test_the_first_ratio_is_one_to_the_last_bit_and_the_second_is_not(make_learner, checkpointing, budget):
    # A23: a ratio of exp(lp - lp.detach()) would stay 1 for ever
    learner = make_learner(gradient_checkpointing=checkpointing, micro_batch_tokens=budget)
    learner.step(random_batch(), step=1)  # somewhere else than B = 0
    filled = [learner.fill_old_logprobs(part) for part in random_batch(4).split(2)]
    first, second = [learner.step(part, step=2) for part in filled]
    assert [s.log_ratio for s in first.sequences] == [0.0] * 6
    assert not any(s.clipped_tokens for s in first.sequences)
    assert all(abs(s.log_ratio) > 1e-4 for s in second.sequences)
    assert any(s.clipped_tokens for s in second.sequences)
    # The gap to the sampler is measured at the sampling weights in both, hence known in both.
    assert all(s.mismatch is not None for s in second.sequences)


def test_one_update_a_batch_needs_no_old_logprobs(make_learner):
    learner = make_learner()
    learner.step(random_batch(), step=1)
    stats = learner.step(random_batch(), step=2)
    assert [s.log_ratio for s in stats.sequences] == [0.0] * 9
    filled = make_learner()
    filled.step(random_batch(), step=1)
    filled.step(filled.fill_old_logprobs(random_batch()), step=2)
    assert filled.export_adapter().payload == learner.export_adapter().payload


def test_old_logprobs_are_those_of_a_plain_forward_pass_in_every_row(make_learner, tiny_llama):
    learner = make_learner(micro_batch_tokens=30, temperature=0.6)
    learner.step(random_batch(), step=1)
    groups = [random_group(s, prompt_len=3 + 2 * s) for s in range(4)]
    groups[1] = random_group(1, (1.0, 1.0, 1.0), prompt_len=5)
    batch = make_batch(groups)
    old = learner.fill_old_logprobs(batch).old_logprobs_BT
    assert old is not None
    model = merged_model(tiny_llama, learner.export_adapter(), scale=8 / 4)
    for row in range(12):
        m, n = int(batch.prompt_lens_B[row]), int(batch.completion_lens_B[row])
        ids = batch.token_ids_BL[row, : m + n].tolist()
        wanted = [0.0] * n if row in (3, 4, 5) else plain_logprobs(model, ids, m, temperature=0.6)
        assert old[row, :n].tolist() == pytest.approx(wanted, abs=2e-5)


def test_padding_is_not_felt(make_learner):
    # A25: alone, or beside a sequence ten times as long
    learner = make_learner()
    learner.step(random_batch(), step=1)
    short = random_group(1, (1.0, 0.0), lens=(4, 6))
    long = random_group(2, (1.0, 0.0), prompt_len=40, lens=(100, 60))
    alone = learner.fill_old_logprobs(make_batch([short])).old_logprobs_BT
    together = learner.fill_old_logprobs(make_batch([long, short])).old_logprobs_BT
    assert alone is not None
    assert together is not None
    torch.testing.assert_close(together[2:, :6], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("max_grad_norm", [1.0, None])
def test_a_gradient_that_is_not_finite_is_refused_by_name(make_learner, bad, max_grad_norm):
    # A31: clip / NaN would write NaN into every weight
    learner, clean = (make_learner(max_grad_norm=max_grad_norm) for _ in range(2))
    for each in (learner, clean):
        each.step(random_batch(), step=1)
    before = learner.export_state()
    name, parameter = next((n, p) for n, p in learner._trainable.items() if "layers.1.mlp.up_proj.lora_B" in n)
    hook = parameter.register_hook(lambda grad: torch.full_like(grad, bad))
    stats = learner.step(random_batch(), step=2)
    hook.remove()
    assert not stats.updated
    assert stats.nonfinite == (name,)
    assert len(stats.sequences) == 9
    assert learner.export_state() == before  # adapter, version and both moments of AdamW
    learner.step(random_batch(), step=3)
    clean.step(random_batch(), step=3)
    assert learner.export_adapter() == clean.export_adapter()


def test_the_gradient_is_clipped_by_its_norm_and_logged_before(make_learner):
    free, bound = make_learner(), make_learner(max_grad_norm=1e-3)
    norm = free.step(random_batch(), step=1).grad_norm
    grads = gradients_of_next_update(bound)
    assert bound.step(random_batch(), step=1).grad_norm == norm > 1e-3
    clipped = math.sqrt(sum(float(g.double().pow(2).sum()) for g in grads.values()))
    # clip_grad_norm_ divides by norm + 1e-6
    assert clipped == pytest.approx(1e-3 * norm / (norm + 1e-6), rel=1e-4)


def test_only_lora_weights_are_trained_and_the_base_stays(make_learner):
    learner = make_learner()
    assert all("lora_" in name for name in learner._trainable)
    base = {n: p.clone() for n, p in learner._model.named_parameters() if not p.requires_grad}
    learner.step(random_batch(), step=1)
    assert all(torch.equal(p, base[n]) for n, p in learner._model.named_parameters() if n in base)


def test_a_bfloat16_base_has_a_float32_adapter_and_float32_logprobs(make_learner):
    learner = make_learner(dtype="bfloat16")
    assert {p.dtype for p in learner._trainable.values()} == {torch.float32}
    assert {p.dtype for p in learner._model.parameters() if not p.requires_grad} == {torch.bfloat16}
    filled = learner.fill_old_logprobs(random_batch()).old_logprobs_BT
    assert filled is not None
    assert filled.dtype == torch.float32
    assert learner.step(random_batch(), step=1).updated
    assert {t.dtype for t in tensors(learner.export_adapter()).values()} == {torch.float32}


def test_score_is_a_plain_log_softmax_at_temperature_one(make_learner, tiny_llama):
    learner = make_learner(temperature=0.5)  # not felt here
    learner.step(random_batch(), step=1)
    ids = [5, 9, 3, 60, 1, 17, 22, 4]
    model = merged_model(tiny_llama, learner.export_adapter(), scale=2)
    for num_prompt in (1, 3, 7):
        wanted = plain_logprobs(model, ids, num_prompt)
        assert learner.score(ids, num_prompt=num_prompt) == pytest.approx(wanted, abs=1e-5)
