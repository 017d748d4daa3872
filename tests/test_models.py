"""The shared models: pinned shapes, equal at every call, really learning, leaving the random state alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from labkit import models  # noqa: E402

# Parameters by hand, so that a changed width, depth or bias is noticed.
PARAMETERS = {
    "mlp": 8 * (512 * 512 + 512 + 2 * 512),
    "convnet": 9 * (3 * 32 + 32 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 128 * 128)
    + 2 * (32 + 32 + 64 + 64 + 128 + 128)
    + 128 * 10
    + 10,
    "conv_silu": 9 * 32 + 5 * 9 * 32 * 32 + 6 * 32 + 6 * 64,
    # A layer: attention in and out, two feed-forward products, two norms.
    "encoder": 3 * (256 * 768 + 768 + 256 * 256 + 256 + 256 * 1024 + 1024 + 1024 * 256 + 256 + 4 * 256),
    "lstm": 2 * (64 * 256 + 256) + 64 * 64 + 64,
    "gpt": 256 * 192 + 32 * 192 + 4 * (12 * 192 * 192 + 13 * 192) + 2 * 192 + 192 * 256,
}
SHAPES = {
    "mlp": (512, 512),
    "convnet": (32, 3, 32, 32),
    "conv_silu": (16, 1, 32, 32),
    "encoder": (8, 128, 256),
    "lstm": (16, 32, 64),
    "gpt": (64, 32),
}


def test_the_six_families_are_pinned():
    assert list(models.FAMILIES) == list(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_shape_and_size(name):
    family = models.FAMILIES[name]("cpu")
    assert family.name == name
    assert tuple(family.inputs[0].shape) == SHAPES[name]
    assert family.parameters == PARAMETERS[name]
    assert "0x" not in repr(family)


@pytest.mark.parametrize("name", PARAMETERS)
def test_equal_at_every_call_and_random_state_untouched(name):
    before = torch.get_rng_state()
    one, two = models.FAMILIES[name]("cpu"), models.FAMILIES[name]("cpu")
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.inputs, two.inputs, strict=True))
    states = one.model.state_dict(), two.model.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_the_loss_falls(name):
    torch.manual_seed(0)
    family = models.FAMILIES[name]("cpu")
    step = models.training_step(family.model, family.inputs, family.loss)
    losses = [step().item() for _ in range(30)]
    assert losses[-1] < 0.9 * losses[0]


def test_lstm_equals_the_library_cell():
    family = models.lstm("cpu")
    ours, x = family.model, family.inputs[0]
    library = torch.nn.LSTM(64, 64, batch_first=True)

    def reordered(linear):  # ours: enter, keep, leave, new; torch: enter, keep, new, leave
        weight = [linear.weight.chunk(4)[i] for i in (0, 1, 3, 2)]
        bias = [linear.bias.chunk(4)[i] for i in (0, 1, 3, 2)]
        return torch.cat(weight), torch.cat(bias)

    with torch.no_grad():
        library.weight_ih_l0[:], library.bias_ih_l0[:] = reordered(ours.from_input)
        library.weight_hh_l0[:], library.bias_hh_l0[:] = reordered(ours.from_state)
        torch.testing.assert_close(ours(x), ours.head(library(x)[0]))


def test_gpt_attention_equals_the_library_and_sees_only_the_past():
    block = models.gpt("cpu").model.blocks[0]
    x = torch.randn(2, 32, 192)
    q, k, v = (part.view(2, 32, 6, 32).transpose(1, 2) for part in block.qkv(x).chunk(3, dim=-1))
    library = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(block.attention(x), block.out(library.transpose(1, 2).reshape(2, 32, 192)))
    changed = x.clone()
    changed[:, 20:] += 1
    torch.testing.assert_close(block.attention(x)[:, :20], block.attention(changed)[:, :20])
    torch.testing.assert_close(models.parts.gelu(x), torch.nn.functional.gelu(x, approximate="tanh"))


def test_training_step_is_what_one_would_write():
    torch.manual_seed(0)
    family, twin = models.lstm("cpu"), models.lstm("cpu")
    step = models.training_step(family.model, family.inputs, family.loss)
    optimizer = torch.optim.AdamW(twin.model.parameters(), lr=1e-3)
    for _ in range(3):
        found = step()
        optimizer.zero_grad()
        expected = twin.loss(twin.model(*twin.inputs))
        expected.backward()
        optimizer.step()
        assert found == expected
    assert all(torch.equal(a, b) for a, b in zip(family.model.parameters(), twin.model.parameters(), strict=True))


def test_conv_stack_is_for_inference():
    family = models.conv_stack("cpu")
    assert family.loss is None
    assert not family.model.training
    assert tuple(family.model(*family.inputs).shape) == (8, 32, 64, 64)
