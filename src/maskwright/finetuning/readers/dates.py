"""Which cells are dates or times, as spreadsheets and databases write them."""

import re
from datetime import date, time

_TIME = r"(?:[01]?\d|2[0-4])[:.h][0-5]\d(?:[:.][0-5]\d(?:[.,]\d+)?)?(?: ?[ap]\.?m\.?)?(?: ?(?:z|utc|[+-]\d\d:?\d\d))?"
_YEAR, _DAY_OR_MONTH = r"(?:\d{4}|\d\d)", r"(?:0?[1-9]|[12]\d|3[01])"
# Year first (ISO 8601, Chinese), or last with day and month in either order (31.12.2025, 12/31/2025, 31-12-25).
_DATE = (
    rf"(?:\d{{4}}(?P<mark>[-/.])(?:0?[1-9]|1[0-2])(?P=mark){_DAY_OR_MONTH}"
    rf"|\d{{4}} ?年 ?(?:0?[1-9]|1[0-2]) ?月(?: ?{_DAY_OR_MONTH} ?[日号])?"
    rf"|{_DAY_OR_MONTH}(?P<sign>[-/.]) ?{_DAY_OR_MONTH}(?P=sign) ?{_YEAR})"
)
_MOMENT = re.compile(rf"{_DATE}(?:(?:,? |t){_TIME}(?: uhr)?)?|{_TIME.replace('[:.h]', ':', 1)}", re.IGNORECASE)


def is_date(value: object) -> bool:
    """Whether a cell is a date, a time or both.

    Example:
        >>> [is_date(text) for text in ("2025-12-31T23:59:00Z", "31.12.2025 8:05", "12/31/2025", "1.5", "2025")]
        [True, True, True, False, False]
    """
    return isinstance(value, date | time) or _MOMENT.fullmatch(str(value).strip()) is not None
