"""What recipe.json and vocabulary.json of a language model must hold."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from thinrnn._schema import Count, Schema
from thinrnn.lab.recipes.language_model.data import EOS, UNK, Splitting, Vocabulary

Size = Annotated[int, Field(ge=1, le=10**7)]


class LanguageModelArguments(Schema):
    """The arguments of the dense model; what is not there has its default."""

    vocabulary: Size
    cell: Literal["lstm", "gru", "rnn", "rhn"] = "lstm"
    depth: Annotated[int, Field(ge=1, le=1000)] = 10
    embedding: Size = 400
    hidden: Annotated[tuple[Size, ...], Field(min_length=1, max_length=1000)] = (400, 400)
    tied: bool = False
    rare: Count = 0
    rare_size: Size = 64
    locked: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.rare >= self.vocabulary:
            raise ValueError(f"rare is {self.rare}, but there are {self.vocabulary} words")
        if (self.tied or self.rare) and self.hidden[-1] != self.embedding:
            raise ValueError("a tied model's last hidden size is that of its embedding")
        return self


class LanguageModelFile(Schema):
    """recipe.json."""

    recipe: Literal["language_model"]
    model: LanguageModelArguments

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that the file gives."""
        return self.model.model_dump(exclude_unset=True)


class VocabularyFile(Schema):
    """vocabulary.json: the tokens, and how text is split into them."""

    level: Literal["word", "char"] = "word"
    lower: bool = False
    punctuation: bool = False
    tokens: list[str]

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        known = set(self.tokens)
        for needed in (EOS, UNK):
            if needed not in known:
                raise ValueError(f"tokens: {needed} is missing")
        if len(known) < len(self.tokens):
            raise ValueError("tokens: a token is there twice")
        return self

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(self.tokens), Splitting(self.level, self.lower, self.punctuation))
