"""Columns of a run, and data frames made of them. Every column of numbers names its unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .errors import MissingLibraryError
from .model import OUTCOMES, Doubt, Figure, Point

if TYPE_CHECKING:
    from typing_extensions import Literal, TypeAlias

    #: The data frame libraries.
    Library: TypeAlias = Literal["pandas", "polars"]
    Kind: TypeAlias = Literal["u64", "f64", "str"]
else:
    Library = str
    Kind = str


@dataclass(frozen=True)
class Column:
    """A named column; None is a missing value, and so is NaN."""

    name: str
    kind: Kind
    values: Sequence[Any]


#: How a unit is written in a name, where that is not the unit itself.
_UNIT_WORDS = {"1/s": "per_sec", "bytes/s": "bytes_per_sec", "CPUs": "cpus"}


def column_name(name: str, unit: str) -> str:
    """A figure's name with its unit: `client.lag_p99_us` has it, `tcp.accept_queue_max` becomes ..._connections."""
    word = _UNIT_WORDS.get(unit, unit)
    has_it = word in name.split(".")[-1].split("_") or name.endswith(word) or f"_{word}_" in name
    return name if has_it or not word else f"{name}_{word}"


def points(of: Sequence[Point]) -> List[Column]:
    """One row a point."""
    columns = [
        _of(of, "index", "u64", lambda point: point.index),
        _of(of, "sweep", "str", lambda point: point.sweep),
        _of(of, "repeat", "u64", lambda point: point.repeat),
        _of(of, "connections", "u64", lambda point: point.connections),
        _of(of, "offered_per_sec", "f64", lambda point: point.offered_per_sec),
        _of(of, "axis", "str", lambda point: point.axis),
        _of(of, "axis_value", "f64", lambda point: point.axis_value),
        _of(of, "started_unix_ms", "u64", lambda point: point.started_unix_ms),
        _of(of, "warmup_ns", "u64", lambda point: point.warmup_ns),
        _of(of, "duration_ns", "u64", lambda point: point.duration_ns),
        _of(of, "doubts_count", "u64", lambda point: len(point.doubts)),
    ]
    columns += [_of(of, f"outcome.{name}_count", "u64", lambda point, name=name: point.outcomes[name]) for name in OUTCOMES]
    columns += _figure_columns(of, "", lambda point: point.figures)
    columns += _figure_columns(of, "state.", lambda point: point.connection_states)
    return columns


def _of(of: Sequence[Point], name: str, kind: Kind, pick: Callable[..., Any]) -> Column:
    return Column(name, kind, [pick(point) for point in of])


def _figure_columns(
    of: Sequence[Point], prefix: str, pick: Callable[[Point], Mapping[str, Figure]]
) -> List[Column]:
    """A column for each name and unit; two points that give one figure different units never share a column."""
    found: "Dict[Tuple[str, str], List[Optional[float]]]" = {}
    for row, point in enumerate(of):
        for name, figure in pick(point).items():
            found.setdefault((name, figure.unit), [None] * len(of))[row] = figure.value
    names: Dict[str, int] = {}
    columns = []
    for (name, unit), values in sorted(found.items()):
        column = prefix + column_name(name, unit)
        names[column] = names.get(column, 0) + 1
        columns.append(Column(column if names[column] == 1 else f"{column} [{unit}]", "f64", values))
    return columns


def figures(of: Sequence[Point]) -> List[Column]:
    """One row a figure."""
    rows = [(point, name, figure) for point in of for name, figure in point.figures.items()]
    rows += [(point, f"state.{name}", figure) for point in of for name, figure in point.connection_states.items()]
    return [
        Column("index", "u64", [point.index for point, _, _ in rows]),
        Column("sweep", "str", [point.sweep for point, _, _ in rows]),
        Column("repeat", "u64", [point.repeat for point, _, _ in rows]),
        Column("connections", "u64", [point.connections for point, _, _ in rows]),
        Column("offered_per_sec", "f64", [point.offered_per_sec for point, _, _ in rows]),
        Column("axis", "str", [point.axis for point, _, _ in rows]),
        Column("axis_value", "f64", [point.axis_value for point, _, _ in rows]),
        Column("name", "str", [name for _, name, _ in rows]),
        Column("value", "f64", [figure.value for _, _, figure in rows]),
        Column("unit", "str", [figure.unit for _, _, figure in rows]),
        Column("n", "u64", [figure.n for _, _, figure in rows]),
        Column("origin", "str", [figure.origin for _, _, figure in rows]),
        Column("not_measured", "str", [figure.not_measured for _, _, figure in rows]),
    ]


def doubts(of: "Sequence[Tuple[int | None, Doubt]]") -> List[Column]:
    """One row a doubt."""
    return [
        Column("index", "u64", [index for index, _ in of]),
        Column("kind", "str", [doubt.kind for _, doubt in of]),
        Column("severity", "str", [doubt.severity for _, doubt in of]),
        Column("what", "str", [doubt.what for _, doubt in of]),
        Column("remedy", "str", [doubt.remedy for _, doubt in of]),
    ]


def buckets(of: Sequence[Tuple[int, int]]) -> List[Column]:
    """One row a recorded bucket."""
    total = sum(count for _, count in of)
    shares, seen = [], 0
    for _, count in of:
        seen += count
        shares.append(seen / total)
    return [
        Column("value_ns", "u64", [value for value, _ in of]),
        Column("count", "u64", [count for _, count in of]),
        Column("cumulative_ratio", "f64", shares),
    ]


def build(columns: Sequence[Column], library: Library) -> Any:
    """A data frame of the chosen library."""
    if library == "pandas":
        return _pandas(columns)
    if library == "polars":
        return _polars(columns)
    raise ValueError(f"there are frames of 'pandas' and 'polars', not of {library!r}")


def _pandas(columns: Sequence[Column]) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingLibraryError("pandas", "pandas") from error
    # The nullable integers: a missing count must not turn its column into rounded floats.
    types = {"u64": "UInt64", "f64": "float64", "str": "string"}
    return pandas.DataFrame({one.name: pandas.Series(list(one.values), dtype=types[one.kind]) for one in columns})


def _polars(columns: Sequence[Column]) -> Any:
    try:
        import polars
    except ImportError as error:
        raise MissingLibraryError("polars", "polars") from error
    types: Dict[str, Any] = {"u64": polars.UInt64, "f64": polars.Float64, "str": polars.String}
    # NaN is a value in polars, unlike in pandas.
    return polars.DataFrame([
        polars.Series(one.name, [None if value != value else value for value in one.values], dtype=types[one.kind]) for one in columns])
