"""The colors of all pages. Dashboards and the website may use the same colors.

Colors of series have a contrast of at least 3:1 with both the light and the dark
background. Text colors have a contrast of at least 4.5:1 with their background.
"""

from __future__ import annotations

from typing import Final

SERIES: Final = (
    *("#2b7bba", "#d9730d", "#2f9155", "#cf453d", "#8a63c2"),
    *("#96704f", "#c2559d", "#74808c", "#8f8a1c", "#1793a5"),
)
"""Colors of categories, in the order in which plots use them."""

BLUE, ORANGE, GREEN, RED, *_ = SERIES
GRAY: Final = SERIES[7]

LOADS: Final = tuple(f"{BLUE}{alpha:02x}" for alpha in range(45, 256))
"""Colors of loads, from transparent (low) to opaque blue (high), on any background."""

_LIGHT: Final = {
    **{"bg": "#ffffff", "ink": "#16202a", "faint": "#5b6875", "line": "#dfe5ea"},
    **{"card": "#f6f8fa", "link": "#0b62a8", "good": "#1a7f4b", "bad": "#b3261e"},
    "warn": "#8a5a00",
}
_DARK: Final = {
    **{"bg": "#10161c", "ink": "#e7edf2", "faint": "#9fb0bf", "line": "#26323d"},
    **{"card": "#172029", "link": "#5aa9e6", "good": "#4cc38a", "bad": "#ff7a70"},
    "warn": "#ffc46b",
}


def variables() -> str:
    """Return the colors as CSS variables, for the light and the dark color scheme."""
    series = {f"series-{number}": color for number, color in enumerate(SERIES)}
    light, dark = (
        ";".join(f"--{name}:{color}" for name, color in colors.items())
        for colors in ({**_LIGHT, **series}, _DARK)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not(.print){{{dark}}}}}"
    )
