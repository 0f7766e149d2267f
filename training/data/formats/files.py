"""What readers of files share: where a file comes from, whether it is whole, how archives are unpacked. No torch."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ELSEWHERE = "name the folder that holds it: --data-root DIR (root=..., or the variable LANDSCAPE_DATA)"
SEVERAL = 3  # names that a message lists


@dataclass(frozen=True)
class Published:
    """A file as its authors publish it.

    file: its name.
    url: where it is; empty where one has to ask or register.
    md5: its checksum; empty where none is published.
    bytes: its size; 0 where that is not known.
    """

    file: str
    url: str = ""
    md5: str = ""
    bytes: int = 0

    def describe(self) -> str:
        """Describe the file in a few words: name, size and address."""
        size = f"{self.bytes / 1e6:,.0f} MB" if self.bytes else ""
        about = ", ".join(part for part in (size, self.url) if part)
        return f"{self.file} ({about})" if about else self.file


def verify(path: Path, published: Published) -> None:
    """Raise ValueError unless a file has the published checksum; without a published one nothing is compared.

    path: of the file.
    published: what it should be.
    """
    if not published.md5:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != published.md5:
        size = path.stat().st_size
        cut = f", and {size:,} bytes instead of {published.bytes:,}" if published.bytes not in (0, size) else ""
        raise ValueError(
            f"{path} is not the published file: md5 {found} instead of {published.md5}{cut}. Download it again, or "
            "write data.verify = false if it was changed on purpose"
        )


def obtain(
    name: str, folder: Path, files: Sequence[str], published: Published, *, download: bool, check: bool = True
) -> None:
    """Make sure that an unpacked archive is there: unpack it where only the archive is, download it if asked to.

    name: of the data set, for messages.
    folder: what the archive unpacks to; the archive itself lies beside it.
    files: files or folders in it that are needed.
    published: the archive.
    download: whether it may be downloaded.
    check: whether its checksum is compared.
    """
    archive = folder.parent / published.file
    if not folder.is_dir():
        if not archive.is_file() and download and published.url:
            fetch(name, archive, published)
        if archive.is_file():
            if check:
                verify(archive, published)
            unpack(archive, folder)
    missing = [file for file in files if not (folder / file).exists()]
    if missing:
        offer = "add --download (download=True), or " if published.url else ""
        raise ValueError(
            f"{name}: no {list_some(missing)} in {folder}. Get {published.describe()}, put it or the folder that it "
            f"unpacks to into {folder.parent}; {offer}{ELSEWHERE}"
        )


def fetch(name: str, path: Path, published: Published) -> None:
    """Download a file and compare its checksum.

    name: of the data set, for messages.
    path: where the file goes.
    published: what is downloaded.
    """
    from training.models.torchvision_shim import utils  # here, for importing torchvision takes seconds

    try:
        utils.download_url(published.url, str(path.parent), path.name, published.md5 or None)
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name}: the download into {path.parent} failed ({reason}). Is there a network?") from error


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive; after an error or an interruption the folder is not there.

    archive: a .zip or a .tar, perhaps compressed.
    folder: where its content goes; a single folder of the same name in the archive is taken for it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(aside)
        else:
            with tarfile.open(archive) as packed_tar:
                packed_tar.extractall(aside, filter="data")  # nothing outside the folder, no devices
        found = list(aside.iterdir())
        whole = found[0] if [one.name for one in found] == [folder.name] and found[0].is_dir() else aside
        whole.chmod(0o755)  # a temporary folder is its owner's alone
        os.replace(whole, folder)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{archive} cannot be unpacked ({reason}): it is cut short or damaged. Get it again"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, or raise ValueError that names it.

    path: of the file.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8 ({error.reason} at byte {error.start})") from None


def list_some(names: Sequence[str]) -> str:
    """List a few names, and say how many more there are.

    >>> list_some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(names) - SEVERAL
    return ", ".join(names[:SEVERAL]) + (f" and {more:,} more" if more > 0 else "")


def require(name: str, folder: Path, files: Sequence[str], fetch: Callable[[], None] | None) -> None:
    """Make sure that all files are there, or raise ValueError that says how to get them.

    name: of the data set, for messages.
    folder: where the files should be.
    files: their names.
    fetch: downloads them; None if that was not asked for.
    """

    def list_missing() -> list[str]:
        return [file for file in files if not (folder / file).is_file()]

    if list_missing() and fetch is not None:
        try:
            fetch()
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{name}: the download into {folder} failed ({error}). Is there a network?") from error
    if missing := list_missing():
        raise ValueError(
            f"{name}: no {', '.join(missing)} in {folder}. Add --download (download=True) to fetch the data, "
            "or name the folder that holds it: --data-root DIR (root=..., or the variable LANDSCAPE_DATA)"
        )
