"""What recipe.json and vocabulary.json of a reader must hold."""

from typing import Annotated, Any, Literal

from pydantic import Field

from thinrnn._schema import Schema
from thinrnn.lab.recipes.squad.vocabulary import SquadVocabulary

Size = Annotated[int, Field(ge=1, le=10**7)]


class ReaderArguments(Schema):
    """The arguments of the dense model; what is not there has its default."""

    rows: Size
    characters: Size
    vector: Size = 100
    character: Size = 8
    filters: Size = 100
    width: Size = 5
    hidden: Size | tuple[Size, Size] = 100
    six: tuple[Size, Size, Size, Size, Size, Size] = (100,) * 6


class ReaderFile(Schema):
    """recipe.json."""

    recipe: Literal["squad"]
    model: ReaderArguments

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that the file gives."""
        return self.model.model_dump(exclude_unset=True)


class ReaderVocabularyFile(Schema):
    """vocabulary.json: the words with trained rows, and the characters."""

    words: list[str]
    characters: list[str]
    word_length: Annotated[int, Field(ge=1, le=1000)] = 16

    def vocabulary(self) -> SquadVocabulary:
        return SquadVocabulary(tuple(self.words), tuple(self.characters), self.word_length)
