"""A text continued by a model, token by token."""

import torch
from torch import Tensor

from thinrnn.lab.recipes.language_model.corpus import encode_text
from thinrnn.lab.recipes.language_model.data import EOS, UNK
from thinrnn.lab.recipes.language_model.load import LoadedLanguageModel
from thinrnn.lab.run.errors import InputError


@torch.inference_mode()
def continue_text(
    loaded: LoadedLanguageModel,
    prompt: str,
    *,
    tokens: int = 60,
    temperature: float = 0.8,
    seed: int = 0,
) -> str:
    """Return the prompt with `tokens` more tokens; temperature 0 takes the likeliest each time."""
    vocabulary = loaded.vocabulary
    generator = torch.Generator().manual_seed(seed)
    start = torch.tensor([vocabulary.number(EOS)], dtype=torch.int32)
    given = torch.cat([start, encode_text(prompt, vocabulary)]).long()
    unknown = vocabulary.number(UNK)
    if prompt.strip() and bool((given[1:] == unknown).all()):
        raise InputError(
            f"no word of the prompt '{prompt}' is in the model's vocabulary: try another."
        )

    logits, state = loaded.model(given[:, None])  # (T, 1, V)
    found: list[int] = []
    for _ in range(tokens):
        number = _choose(logits[-1, 0], unknown, temperature, generator)
        found.append(number)
        logits, state = loaded.model(torch.tensor([[number]]), state)
    words = (vocabulary.tokens[number] for number in [*given[1:].tolist(), *found])
    return vocabulary.splitting.join(words)


def _choose(logits: Tensor, unknown: int, temperature: float, generator: torch.Generator) -> int:
    logits = logits.float().clone()
    logits[unknown] = -torch.inf  # a reader has no use for <unk>
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(0), 1, generator=generator))
