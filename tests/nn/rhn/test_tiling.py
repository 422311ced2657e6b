"""How the programs of the highway kernels share out their work."""

import pytest

from thinrnn.nn._rhn import tiling

H200 = 132  # programs that run at once


@pytest.mark.parametrize(
    ("width", "batch", "best"),
    [(832, 20, (16, 16)), (416, 20, (8, 16)), (832, 64, (32, 16)), (416, 64, (16, 16))],
)
def test_sizes_on_a_large_gpu(width, batch, best):
    """Those that were measured as best for a batch of 20; others fill the GPU as well."""
    assert tiling.choose(width, batch, H200) == best


@pytest.mark.parametrize("room", [16, 60, 108, H200])
@pytest.mark.parametrize("batch", [1, 20, 64, 200])
def test_there_is_room_for_what_is_chosen(batch, room):
    for width in range(32, 2080, 32):
        sizes = tiling.choose(width, batch, room)
        if sizes is not None:
            neurons, rows = sizes
            slices, each = tiling.sliced(batch, rows)
            assert width % neurons == 0 and width // neurons * slices <= room
            assert each <= rows and (slices - 1) * each < batch <= slices * each


@pytest.mark.parametrize(
    ("width", "batch", "room"), [(832, 20, 0), (832, 20, 25), (832, 500, H200), (2048, 1, H200)]
)
def test_nothing_is_chosen_where_nothing_fits(width, batch, room):
    assert tiling.choose(width, batch, room) is None
