"""Which neurons of a BiDAF may go: the paper's six LSTMs, all recurrent layers, or everything."""

from dataclasses import replace

import torch
from torch import Tensor

import thinrnn
from thinrnn.lab.recipes.squad.model import SIX, BiDAF
from thinrnn.plan import Plan


def find_plan(model: BiDAF, select: str = "six") -> Plan:
    """Return the groups that may be pruned, found on the model itself."""
    glove, size = model.glove, model.glove.shape[1]
    model.glove = torch.randn(8, size, generator=torch.Generator().manual_seed(0)).to(glove)
    try:  # with few vectors: the model is copied many times
        plan = thinrnn.find_groups(model, probe(model))
        # as in all results: mult-adds of a token, every matrix once
        plan = replace(plan, applied=dict.fromkeys(plan.applied, 1.0))
        return selected(plan, model, select)
    finally:
        model.glove = glove


def selected(plan: Plan, model: BiDAF, select: str) -> Plan:
    """Return the part of a model's plan that is chosen: "six", "recurrent" or "all"."""
    six = [f"{name}.l0" for name in SIX]
    if select == "six":
        return plan.only(*six)
    # The similarity multiplies both sides by a plain parameter, forward neurons first.
    hidden = model.encoder.fwd.hidden_size
    plan = plan.using("encoder.fwd.l0", "attention.product", dim=0)
    plan = plan.using("encoder.bwd.l0", "attention.product", dim=0, at=(hidden,))
    return plan if select == "all" else plan.only("encoder.*", *six)


def probe(model: BiDAF) -> tuple[Tensor, ...]:
    """Return a small input with padding, known and unknown words, for `find_groups`."""
    device = model.words.weight.device
    generator = torch.Generator().manual_seed(0)

    def part(batch: int, tokens: int) -> tuple[Tensor, Tensor]:
        most = model.words.num_embeddings + len(model.glove)
        rows = torch.randint(1, most, (batch, tokens), generator=generator)
        rows[-1, -1] = 0
        letters = (batch, tokens, 16)
        spelled = torch.randint(0, model.characters.num_embeddings, letters, generator=generator)
        return rows.to(device), spelled.to(device)

    return *part(3, 7), *part(3, 4)
