"""A Griffe extension: doctests in docstrings become code blocks, wherever they are."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1.*\S.*)*", re.MULTILINE)


def fenced(doctest: re.Match[str]) -> str:
    indent = doctest[1]
    return f"{indent}```pycon\n{doctest[0]}\n{indent}```"


class FenceDoctests(griffe.Extension):
    """Markdown would read the lists that a doctest prints as links."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(fenced, obj.docstring.value)
