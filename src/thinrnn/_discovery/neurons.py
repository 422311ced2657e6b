"""Neurons that can only go together, and why some have to stay."""

from collections import defaultdict
from collections.abc import Iterable

Element = tuple[str, str, int]  # (layer, space, channel)


class Neurons:
    """Joins elements that go together (a union-find) and remembers which have to stay."""

    def __init__(self) -> None:
        self._parent: dict[Element, Element] = {}
        self._stays: dict[Element, str] = {}

    def add(self, element: Element) -> None:
        """Make an element known; elements come back in the order in which they were added."""
        self._parent.setdefault(element, element)

    def join(self, a: Element, b: Element) -> None:
        """Let two elements go together."""
        a, b = self._root(a), self._root(b)
        if a != b:
            self._parent[b] = a

    def keep(self, elements: Iterable[Element], reason: str) -> None:
        """Let elements, and all that goes with them, stay; the first reason counts."""
        for element in elements:
            self._stays.setdefault(element, reason)

    def sets(self) -> list[tuple[list[Element], str]]:
        """Return what goes together, each with the reason why it has to stay, or an empty text."""
        members: dict[Element, list[Element]] = defaultdict(list)
        for element in self._parent:
            members[self._root(element)].append(element)
        reasons: dict[Element, str] = {}
        for element, reason in self._stays.items():
            reasons.setdefault(self._root(element), reason)
        return [(found, reasons.get(root, "")) for root, found in members.items()]

    def _root(self, element: Element) -> Element:
        self.add(element)
        while self._parent[element] != element:
            self._parent[element] = self._parent[self._parent[element]]
            element = self._parent[element]
        return element
