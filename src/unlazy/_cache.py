"""The folder in which downloads and listings are kept."""

import os
from pathlib import Path

VARIABLE = "UNLAZY_CACHE"


def cache() -> Path:
    """Give the folder that the environment variable ``UNLAZY_CACHE`` names, or the user's cache folder."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("unlazy"))
