"""llama.cpp's server tests, laid out in a folder with everything they would download."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from tests.upstream.models import DOWNLOADS, write_models

HERE = Path(__file__).resolve().parent
WANTED = ("tools/server/tests", "models/templates")
"""What the tests need of llama.cpp's source."""
PACKAGE = "llama-cpp-python"


class SourceMissing(Exception):
    """llama.cpp's tests cannot be had; the message says what to do."""


def lay_out(folder: Path, source: Path | None, cache: Path) -> Path:
    """The folder the tests are run in."""
    root = folder / "llama.cpp"
    source = source or find_sdist(cache)
    if source.is_dir():
        copy_folder(source, root)
    else:
        unpack(source, root)
    tests = root / "tools/server/tests"
    models = folder / "models"
    write_models(models)
    (tests / "tmp").mkdir(exist_ok=True)
    for name, file in DOWNLOADS.items():
        shutil.copy(models / file, tests / "tmp" / name)
    shutil.copy(HERE / "plugin.py", tests / "upstream_plugin.py")
    if not (tests / "wget.py").exists():
        (tests / "wget.py").write_text('"""Imported by utils.py; all downloads lie in tmp/ already."""\n')
    shim = folder / "llama-server"
    shim.write_text(f"#!{sys.executable}\n" + (HERE / "shim.py").read_text())
    shim.chmod(0o755)
    return tests


def copy_folder(source: Path, root: Path) -> None:
    for wanted in WANTED:
        if not (source / wanted).is_dir():
            raise SourceMissing(f"{source} has no {wanted}: --source takes an unpacked llama.cpp or a {PACKAGE} sdist")
        shutil.copytree(source / wanted, root / wanted, ignore=shutil.ignore_patterns("tmp", "__pycache__"))


def unpack(sdist: Path, root: Path) -> None:
    """The wanted folders of an sdist of llama-cpp-python, which holds llama.cpp in vendor/."""
    n_files = 0
    with tarfile.open(sdist) as archive:
        for member in archive:
            inside = PurePosixPath(*PurePosixPath(member.name).parts[3:])
            if not member.isfile() or not any(inside.is_relative_to(wanted) for wanted in WANTED):
                continue
            data = archive.extractfile(member)
            assert data is not None
            file = root / inside
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data.read())
            n_files += 1
    if not n_files:
        raise SourceMissing(f"{sdist} holds no vendor/llama.cpp/{WANTED[0]}: is it a sdist of {PACKAGE}?")


def find_sdist(cache: Path) -> Path:
    """The sdist of the installed version: in the cache folder, or downloaded to there by pip."""
    wanted = version(PACKAGE)
    name = f"{PACKAGE.replace('-', '_')}-{wanted}.tar.gz"
    if not (cache / name).exists():
        download(f"{PACKAGE}=={wanted}", cache)
    if not (cache / name).exists():
        raise SourceMissing(f"pip downloaded no {name} to {cache}; give the source with --source")
    return cache / name


def download(requirement: str, folder: Path) -> None:
    """pip prepares the metadata of what it downloads, which takes a moment and compiles nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", PACKAGE]
    done = subprocess.run([*pip, "--dest", str(folder), requirement], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
        raise SourceMissing(f"pip could not download the sdist of {requirement} ({last}); give it with --source")
