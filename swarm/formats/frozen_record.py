"""Records whose fields are their annotations, as frozen dataclasses have them.

For what a command needs at every start: to import `dataclasses` would take longer than all that such a command does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, dataclass_transform
else:

    def dataclass_transform(**kwargs):
        return lambda cls: cls


@dataclass_transform(frozen_default=True)
class PlainRecord:
    """Equal to another of its class with equal fields; its fields cannot be assigned to."""

    def __init__(self, *values: Any, **named: Any) -> None:
        names = self.field_names()
        if not named and len(values) == len(names):
            self.__dict__.update(zip(names, values, strict=True))
            return
        given = dict(zip(names, values, strict=False)) | named
        if len(values) + len(named) != len(names) or given.keys() != set(names):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(names)}.")
        self.__dict__.update(given)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(cls.__annotations__)

    def as_dict(self) -> dict[str, Any]:
        """The fields in their order."""
        return {name: self.__dict__[name] for name in self.__annotations__}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"the field {name} of a {type(self).__name__} cannot be changed.")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.as_dict().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"
