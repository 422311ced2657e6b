"""Walking through what a model takes and returns."""

import torch
from torch import nn

from thinrnn._model.tree import tensors_in


class Shaped(nn.Module):
    """Looks for tensors beside sizes that are not known yet."""

    def forward(self, x):
        self.found = list(tensors_in((x.shape, {"x": x}, 3, "text")))
        return x * 2


def test_sizes_that_an_exporter_has_not_fixed_are_no_structure():
    """Behind such a size hang the exporter's own tables, with tensors of their own."""
    model = Shaped()
    sizes = ({0: torch.export.Dim("batch", min=2, max=100)},)
    torch.export.export(model, (torch.zeros(4, 3),), dynamic_shapes=sizes, strict=False)
    assert len(model.found) == 1
