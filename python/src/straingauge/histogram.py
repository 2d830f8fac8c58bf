"""latency.hlog: HdrHistogram interval logs (format 1.3, V2 payloads), values in nanoseconds, one tag a kind of time.

The decoder is PyPI's `hdrhistogram`. It inflates whatever it is given, so each payload is measured first: bounded
inflation, straingauge's own range, and no more counts than that range has.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import zlib
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from hdrh.histogram import HdrHistogram

from .bounded import MAX_SERIES_BYTES, read_text
from .errors import RunError, printable

#: The largest value with a separate bucket: one hour.
MAX_NS = 3_600_000_000_000
SIGNIFICANT_FIGURES = 3
_MAX_ENCODED_CHARS = 4 << 20
_COMPRESSED_V2 = 0x1C849314
_PLAIN_V2 = 0x1C849313
_HEADER = struct.Struct(">IIIIQQd")
#: The largest size of a histogram of this range: a varint of nine bytes for each of its counts.
_COUNTS = int(HdrHistogram(1, 2 * (1 << (MAX_NS - 1).bit_length()), SIGNIFICANT_FIGURES).counts_len)
_MAX_PLAIN_BYTES = _HEADER.size + 9 * _COUNTS
_MAX_TOTAL = (1 << 63) - 1


#: The histograms that every point has, empty ones too.
TAGS = ("response", "service", "first-byte", "lag", "connection-wait", "connect", "unfinished-age")


class _BadPayload(ValueError):
    pass


def read_log(path: Path) -> "Dict[str, Any]":
    """The histograms of a log by tag, in the log's order; lines of one tag are added up.

    The values are `hdrh.histogram.HdrHistogram` of nanoseconds; every bucket's count is as it was written. A last line
    without its end is left out; `open_run` doubts the point for it.
    """
    text = read_text(path, MAX_SERIES_BYTES)
    found: Dict[str, Any] = {}
    for number, line in complete_lines(text):
        if not line or line.startswith("#") or line.startswith('"'):
            continue
        tag, encoded = _split(path, number, line)
        try:
            histogram = decode(encoded)
        except _BadPayload as error:
            raise RunError(path, f"its histogram is not readable: {error}", number) from None
        if tag in found:
            if found[tag].get_total_count() + histogram.get_total_count() > _MAX_TOTAL:
                raise RunError(path, "its histograms hold more values than 63 bits count", number)
            found[tag].add(histogram)
        else:
            found[tag] = histogram
    return found


def what_is_cut(path: Path) -> Optional[str]:
    """Why a finished point's log is incomplete; None where it is complete, or where `read_log` reports the error."""
    try:
        text = read_text(path, MAX_SERIES_BYTES)
    except RunError:
        return None
    if text and not text.endswith("\n"):
        return f"its line {text.count(chr(10)) + 1} ends in the middle"
    found = {line[4:].partition(",")[0] for _, line in complete_lines(text) if line.startswith("Tag=")}
    missing = [tag for tag in TAGS if tag not in found]
    return f"it has no histogram of {', '.join(missing)}" if missing else None


def complete_lines(text: str) -> "List[Tuple[int, str]]":
    """Lines with their numbers from 1, without a last one that has no end yet."""
    lines = text.split("\n")
    return [(number, line.rstrip("\r")) for number, line in enumerate(lines[:-1], 1)]


def _split(path: Path, number: int, line: str) -> Tuple[str, str]:
    tag = ""
    if line.startswith("Tag="):
        tag, comma, line = line[4:].partition(",")
        if not comma:
            raise RunError(path, "it is not a line of an HdrHistogram log", number)
        if len(tag) > 100 or not tag.isprintable():
            raise RunError(path, f"its tag {printable(tag, 20)} is not one that straingauge writes", number)
    fields = line.split(",")
    if len(fields) != 4:
        raise RunError(path, "it is not a line of an HdrHistogram log (tag, start, length, longest, histogram)", number)
    for one in fields[:3]:
        try:
            float(one)
        except ValueError:
            raise RunError(path, f"'{printable(one, 20)}' is not a number of seconds", number) from None
    return tag, fields[3]


def decode(encoded: str) -> Any:
    """One histogram from its base64 text."""
    if len(encoded) > _MAX_ENCODED_CHARS:
        raise _BadPayload(f"it has {len(encoded)} characters, more than the {_MAX_ENCODED_CHARS} that are read")
    try:
        raw = base64.b64decode(encoded.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _BadPayload("it is not base64") from None
    if len(raw) < 8:
        raise _BadPayload("it is too short")
    cookie, length = struct.unpack_from(">II", raw)
    if cookie != _COMPRESSED_V2:
        raise _BadPayload("it is not of HdrHistogram's V2 compressed format")
    if length != len(raw) - 8:
        raise _BadPayload(f"it says {length} bytes and has {len(raw) - 8}")
    _measure(_inflate(raw[8:]))
    try:
        return HdrHistogram.decode(encoded)
    except Exception as error:  # the library raises many kinds, all about this payload
        raise _BadPayload(printable(str(error)) or type(error).__name__) from None


def _inflate(compressed: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(compressed, _MAX_PLAIN_BYTES + 1)
    except zlib.error as error:
        raise _BadPayload(f"it cannot be inflated ({error})") from None
    if len(plain) > _MAX_PLAIN_BYTES or inflater.unconsumed_tail:
        raise _BadPayload("it inflates to more than a histogram has")
    if not inflater.eof:
        raise _BadPayload("it is cut short")
    if len(plain) < _HEADER.size:
        raise _BadPayload("it is too short")
    return plain


def _measure(plain: bytes) -> None:
    """Refuses a payload whose range is another than straingauge's, or whose counts would not fit that range."""
    cookie, length, offset, figures, lowest, highest, _ratio = _HEADER.unpack_from(plain)
    if cookie != _PLAIN_V2 or length != len(plain) - _HEADER.size or offset != 0:
        raise _BadPayload("its header is not one of HdrHistogram's V2 format")
    if figures != SIGNIFICANT_FIGURES or lowest != 1 or not 2 <= highest <= 2 * (1 << (MAX_NS - 1).bit_length()):
        raise _BadPayload("it has another range than straingauge writes")
    slots = int(HdrHistogram(lowest, highest, figures).counts_len)
    index = total = 0
    position = _HEADER.size
    while position < len(plain):
        count, position = _zigzag(plain, position)
        index += -count if count < 0 else 1
        total += max(count, 0)
        if index > slots or total > _MAX_TOTAL:
            raise _BadPayload("it holds more counts than its range has")


def _zigzag(data: bytes, position: int) -> Tuple[int, int]:
    """A ZigZag LEB128 number of HdrHistogram (the ninth byte holds eight bits), and the position after it."""
    value = 0
    for place in range(9):
        if position >= len(data):
            raise _BadPayload("its last count is cut short")
        byte = data[position]
        position += 1
        if place == 8:
            value |= byte << 56
            break
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return (value >> 1) ^ -(value & 1), position


def buckets(histogram: Any) -> "List[Tuple[int, int]]":
    """The recorded buckets of a histogram in order, as (upper end in nanoseconds, count)."""
    return [(int(step.value_iterated_to), int(step.count_added_in_this_iter_step))
            for step in histogram.get_recorded_iterator()]


def quantile_ns(histogram: Any, quantile: float) -> Optional[int]:
    """The value at a quantile between 0 and 1 in nanoseconds (its bucket's upper end, at 0 the lower); None when empty.

    The smallest bucket that at least this share of the values does not exceed, as straingauge quotes it. The library's
    own `get_value_at_percentile` rounds the rank instead, and may take the bucket before.
    """
    if not 0 <= quantile <= 1:
        raise ValueError(f"a quantile is between 0 and 1, as 0.99; this is {quantile}")
    rank = max(1, math.ceil(quantile * int(histogram.get_total_count())))
    seen = 0
    for value, count in buckets(histogram):
        seen += count
        if seen >= rank:
            return value if quantile > 0 else int(histogram.get_lowest_equivalent_value(value))
    return None
