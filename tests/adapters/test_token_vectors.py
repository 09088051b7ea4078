"""subtract_mean_vector: the mean over tokens leaves every row but those of zeros, in each precision and number of parts."""

from __future__ import annotations

import pytest
import torch

from tempplug.errors import DataError, NonFiniteError
from tempplug_adapters import token_vectors
from tempplug_adapters.token_vectors import subtract_mean_vector

TABLE = [[1.0, 2.0], [0.0, 0.0], [3.0, -2.0], [0.0, 5.0], [0.0, -0.0]]
# Row 2 twice, the zero row 1 twice, row 0 once: the mean is (7, -2) / 5. Row 3 does not occur, and row 4 is unused.
TOKENS = [2, 1, 0, 2, 1]
EXPECTED = [[-0.4, 2.4], [0.0, 0.0], [1.6, -1.6], [-1.4, 5.4], [0.0, 0.0]]


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_zeros_stay_zero_and_count_where_they_occur(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, at_once: int
) -> None:
    monkeypatch.setattr(token_vectors, "AT_ONCE", at_once)
    weight = torch.nn.Parameter(torch.tensor(TABLE, dtype=dtype))
    subtract_mean_vector(weight, torch.tensor(TOKENS))
    precision = {torch.float64: 1e-12, torch.float32: 1e-6}.get(dtype, 2e-2)
    expected = torch.tensor(EXPECTED, dtype=torch.float64)
    torch.testing.assert_close(weight.detach().double(), expected, rtol=0, atol=precision)
    assert not weight[[1, 4]].any()


def test_half_precision_adds_up_many_tokens_without_overflow() -> None:
    weight = torch.tensor([[60000.0], [1.0]], dtype=torch.float16)
    subtract_mean_vector(weight, torch.tensor([0] * 50 + [1] * 50))
    assert weight.tolist() == [[pytest.approx(30000, abs=32)], [pytest.approx(-30000, abs=32)]]


@pytest.mark.parametrize("tokens", [[], [1], [1, 4, 4]])
def test_tokens_without_vectors_have_no_mean(tokens: list[int]) -> None:
    weight = torch.tensor(TABLE)
    with pytest.raises(DataError, match=f"texts has {len(tokens)} tokens, none with a vector other than 0"):
        subtract_mean_vector(weight, torch.tensor(tokens, dtype=torch.long))
    assert torch.equal(weight, torch.tensor(TABLE))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_mean_that_is_not_finite_is_refused_before_it_spreads(value: float) -> None:
    weight = torch.tensor(TABLE)
    weight[2, 0] = value
    before = weight.clone()
    with pytest.raises(NonFiniteError, match="the vectors of the model must be finite"):
        subtract_mean_vector(weight, torch.tensor(TOKENS))
    assert torch.equal(weight.nan_to_num(7), before.nan_to_num(7))
