"""Published files: found in a given folder, in ``UNLAZY_DATA`` or in the cache, or downloaded once.

A folder is laid out as ``mnist/...``, ``cifar-10/...``, ``uci/...``, or contains the files directly. The cache is
``UNLAZY_CACHE``, or the user's cache folder. A file is used only if its SHA-256 is the published one.
"""

import contextlib
import functools
import itertools
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unlazy._errors import UserError
from unlazy._files import CACHE, cache, sha256
from unlazy._terminal import DownloadBar

DATA = "UNLAZY_DATA"


@dataclass(frozen=True)
class Published:
    """A file that a data set is read from."""

    url: str | None  # where it is published; None if it is not published in this form
    sha256: str | None  # None if it is not checked
    file: str  # its path in a data folder

    @property
    def name(self) -> str:
        """File name without its folder."""
        return Path(self.file).name


def find(*sources: Published, folder: str | None = None) -> Path | None:
    """Return the first of the files that is in ``folder`` or in ``UNLAZY_DATA``, after a check of its SHA-256."""
    for place, source in itertools.product(_folders(folder), sources):
        for path in (place / source.file, place / source.name):
            if not os.path.isfile(path):
                continue
            if source.sha256 is not None and (found := _digest(path)) != source.sha256:
                raise UserError(
                    f"The file {path} ({path.stat().st_size} bytes) has SHA-256 {found}, but {source.sha256} was "
                    "expected: it is damaged, cut short or another version. Remove it, then copy it again or let it be "
                    "downloaded."
                )
            return path
    return None


def fetch(*sources: Published, folder: str | None = None) -> Path:
    """Find one of the files on this machine, or download the first that is published."""
    found = find(*sources, folder=folder)
    if found is not None:
        return found
    published = next((source for source in sources if source.url is not None), None)
    if published is None:
        names = " or ".join(source.file for source in sources)
        raise UserError(f"There is no {names} in folder or {DATA}, and it is not published: name its folder there.")
    cached = cache() / published.file
    if not (os.path.isfile(cached) and _digest(cached) == published.sha256):
        _download(published, cached, folder)
    return cached


def local(*sources: Published, folder: str | None = None) -> list[Path]:
    """Return the file that `fetch` would use without a download, or nothing if it would have to download."""
    found = find(*sources, folder=folder)
    cached = (cache() / source.file for source in sources)
    return [found] if found else [path for path in cached if os.path.isfile(path)][:1]


def at_hand(*sources: Published, folder: str | None = None) -> bool:
    """Return whether one of the files is on this machine, so that it need not be downloaded.

    Parameters
    ----------
    *sources
        Files, any one of which is sufficient, such as ``unlazy.data.tabular.PLANT.sources``.
    folder
        Folder to search besides ``UNLAZY_DATA`` and the cache.
    """
    return bool(local(*sources, folder=folder))


_ERRORS = (OSError, EOFError, ValueError, KeyError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise a `UserError` in place of the exceptions that the standard readers raise on a damaged file."""
    try:
        yield
    except UserError:
        raise
    except _ERRORS as error:
        raise UserError(
            f"The file {path} cannot be read ({type(error).__name__}: {error}): it is damaged or cut short. "
            "Remove it, then copy it again or let it be downloaded."
        ) from error


def _folders(folder: str | None) -> list[Path]:
    named = {"folder": folder, f"the environment variable {DATA}": os.environ.get(DATA)}
    places = {what: Path(name).expanduser() for what, name in named.items() if name}
    for what, place in places.items():
        if not os.path.isdir(place):
            raise UserError(
                f"There is no folder '{named[what]}', which {what} names: correct the name, or leave it out."
            )
    return list(places.values())


def stamp(path: Path) -> tuple[str, int, int]:
    """Return what distinguishes one state of a file from another: path, size and time of change."""
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def _digest(path: Path) -> str:
    try:
        return _sha256(*stamp(path))
    except OSError as error:
        raise UserError(f"The file {path} cannot be read ({error.strerror}): check its permissions.") from error


@functools.lru_cache(maxsize=64)
def _sha256(path: str, size: int, changed: int) -> str:
    return sha256(path)


def _download(source: Published, path: Path, folder: str | None) -> None:
    """Download a published file: it is written under a temporary name and moved into place once it is right."""
    import pooch.core
    import requests

    downloader = pooch.HTTPDownloader(
        progressbar=cast(Any, DownloadBar(source.name) if sys.stderr.isatty() else False),
        chunk_size=1 << 16,
        headers={"Accept-Encoding": "identity"},  # the checksum is of the file as stored, not as a server may repack it
        timeout=30,
    )
    elsewhere = f"put the right file into a folder as {source.file} and name that folder in the environment variable"
    try:
        # Not `pooch.retrieve`, which does the same and logs it.
        pooch.core.stream_download(source.url or "", path, f"sha256:{source.sha256}", cast(Any, downloader))
    except requests.RequestException as error:
        searched = [str(place) for place in (*_folders(folder), path.parent)]
        raise UserError(
            f"Could not download {source.name} from {source.url} ({_reason(error)}), and it is not in "
            f"{' or '.join(searched)}. Try again with a network, or {elsewhere} {DATA}."
        ) from error
    except OSError as error:
        raise UserError(
            f"Could not write {source.name} to the cache {path.parent} ({error.strerror or error}): make room there, "
            f"or name a folder that you can write to in the environment variable {CACHE}."
        ) from error
    except ValueError as error:  # Pooch raises it only for a wrong checksum
        seen = str(error).partition(" but got ")[2][:64]
        raise UserError(
            f"What {source.url} sent for {source.name} has SHA-256 {seen}, but {source.sha256} was expected; it was "
            f"discarded. Try again, or {elsewhere} {DATA}."
        ) from error


def _reason(error: Exception) -> str:
    """Say in a few words why a request failed; the chained exception has the details."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the transfer broke off"
    if isinstance(error, requests.Timeout):
        return "the server did not answer in time"
    return "no connection" if isinstance(error, requests.ConnectionError) else type(error).__name__
