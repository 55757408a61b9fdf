"""Records whose fields are declared by annotations, as in frozen dataclasses.

Commands use frozen records at every start. Importing `dataclasses` would take longer
than the command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**kwargs):
        return lambda cls: cls


REQUIRED = object()


class Field:
    """The declaration of a field in a class body. The default REQUIRED means no
    default.

    A subclass of `Field` may add facts about the field.
    """

    default: Any


@dataclass_transform(frozen_default=True)
class FrozenRecord:
    """A record whose fields cannot be changed.

    Two records of one class are equal if their fields are equal.

    A value in the class body is the default of its field. A default that is a dict is
    copied for each record.
    """

    _names = tuple[str, ...]()  # not annotated, since only fields are annotated
    _defaults = dict[str, object]()  # noqa: RUF012  (each subclass has its own)

    def __init_subclass__(cls) -> None:
        cls._names = tuple(cls.__annotations__)
        given = {name: vars(cls)[name] for name in cls._names if name in vars(cls)}
        values = {
            name: value.default if isinstance(value, Field) else value
            for name, value in given.items()
        }
        cls._defaults = {name: value for name, value in values.items() if value is not REQUIRED}

    def __init__(self, *values: Any, **named: Any) -> None:
        names = self._names
        if not named and len(values) == len(names):
            self.__dict__.update(zip(names, values, strict=True))
            return
        given = dict(zip(names, values, strict=False)) | named
        defaults = {
            name: value.copy() if isinstance(value, dict) else value
            for name, value in self._defaults.items()
        }
        whole = defaults | given
        if len(values) + len(named) != len(given) or whole.keys() != set(names):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(names)}.")
        self.__dict__.update(whole)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return cls._names

    def replace(self, **changes: Any) -> Self:
        """Return a record of the same class with other values in some fields."""
        return type(self)(**{**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, in the order of their declaration."""
        return {name: self.__dict__[name] for name in self._names}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"the field {name} of a {type(self).__name__} cannot be changed.")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.as_dict().values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"{type(self).__name__}({fields})"
