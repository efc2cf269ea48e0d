"""Rows that have a figure to reach: what it is, what was reached, and whether that is shown."""
from . import stats
from .results import row

_WORDS = {"ok": "met", "FAIL": "NOT met", "unclear": "neither shown nor refuted", "info": ""}
_ORDER = ("FAIL", "unclear", "ok")


def ratio_text(value):
    """A ratio for people: small ones as one part in so many."""
    return f"{value:.4f}" if value >= 0.02 else f"1/{1 / value:.0f}" if value > 0 else "0"


def interval_text(reached, show=ratio_text):
    value, low, high = reached
    return show(value) if low == high else f"{show(value)} (95%: {show(low)}–{show(high)})"


def at_most(check, what, native, reached, bound, show=ratio_text, shim="", detail=""):
    """reached: (value, low, high), low == high == value where it has no interval; or a list of
    (label, (value, low, high)), all of which have to reach it. bound None: nothing to reach."""
    several = reached if isinstance(reached, list) else [("", reached)]
    if not several:
        raise ValueError("nothing was reached")
    verdicts = [stats.within(low, high, bound) if bound is not None else "info"
                for _, (_, low, high) in several]
    verdict = min(verdicts, key=_ORDER.index) if bound is not None else "info"
    text = ", ".join(f"{label}{': ' if label else ''}{interval_text(r, show)}" for label, r in several)
    if bound is not None:
        text = f"{text}; target ≤ {show(bound)}: {_WORDS[verdict]}"
    return row(check, what, native, f"{shim}{'; ' if shim else ''}{text}", verdict, detail)


def exactly(value):
    """A value without an interval, as reached."""
    return value, value, value


def failed(check, what, why):
    return row(check, what, "", "", "FAIL", why)
