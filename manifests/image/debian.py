"""The lowest layer: the few Debian packages that Python needs, unpacked and not installed.

No shell, no package manager, no set-up scripts: mmdebstrap fetches and unpacks them with the
machine's own package sources and keys, and what a running Python never opens is left out.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

SUITE: Final = "bookworm"
#: libstdc++ is for packages with compiled parts in C++.
PACKAGES: Final = ("libpython3.11-stdlib", "libstdc++6", "python3.11-minimal")
TIMEOUT_S: Final = 900.0
#: Below these nothing is kept, except the licences.
DROPPED: Final = (
    "boot", "dev", "home", "media", "mnt", "opt", "srv", "sys", "proc", "tmp", "root", "run",
    "etc/alternatives", "etc/apt", "etc/cron.daily", "etc/dpkg", "etc/logrotate.d",
    "lib/systemd", "sbin", "bin",
    "usr/bin/dpkg", "usr/bin/update-alternatives", "usr/games", "usr/include",
    "usr/lib/dpkg", "usr/lib/python3.11/lib2to3", "usr/lib/python3.11/pydoc_data",
    "usr/lib/python3.11/distutils/command", "usr/lib/mime", "usr/lib/systemd", "usr/sbin",
    "usr/share/bash-completion", "usr/share/binfmts", "usr/share/bug", "usr/share/doc",
    "usr/share/dpkg", "usr/share/info", "usr/share/lintian", "usr/share/locale",
    "usr/share/man", "usr/share/pixmaps", "usr/share/polkit-1", "usr/share/zsh",
    "usr/src", "var/cache", "var/lib/apt", "var/log",
)  # fmt: skip
DROPPED_PARTS: Final = ("/gconv/", "/perl-base/", "/perl5/")
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEFAULT_SOURCES: Final = "http://deb.debian.org/debian"


class ImageError(Exception):
    """The image cannot be made here; the message says what to do."""


def write_root_files(target: Path, architecture: str) -> Path:
    """Write the unpacked packages as a tar file; ImageError when this machine cannot."""
    if shutil.which("mmdebstrap") is None:
        raise ImageError(
            "no program mmdebstrap, which makes the image's file system; on Debian or Ubuntu: "
            "apt-get install mmdebstrap; elsewhere: docker build -f Containerfile ."
        )
    command = ["mmdebstrap", "--quiet", "--variant=extract", f"--architectures={architecture}"]
    command += [f"--include={','.join(PACKAGES)}", SUITE, str(target), *_sources()]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"mmdebstrap did not end in {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        hint = "" if os.geteuid() == 0 else "; without root it needs user namespaces"
        raise ImageError(f"mmdebstrap failed{hint}:\n{done.stderr.strip()[-1500:]}")
    return target


def is_kept(member: tarfile.TarInfo) -> bool:
    """Whether a member of the unpacked packages goes into the image; cleans its name."""
    name = member.name.removeprefix("./").rstrip("/")
    if name in ("", ".") or member.ischr() or member.isblk():
        return False
    member.name = name
    if name.endswith("/copyright") and not member.isdir():
        return True
    if any(part in f"/{name}/" for part in DROPPED_PARTS):
        return False
    return not any(name == each or name.startswith((f"{each}/", f"{each}-")) for each in DROPPED)


def _sources() -> list[str]:
    """The machine's own package sources if it is the same Debian, else Debian's."""
    try:
        is_same = f"VERSION_CODENAME={SUITE}" in Path("/etc/os-release").read_text()
    except OSError:
        is_same = False
    if is_same:
        return []
    return [f"deb [signed-by={KEYRING}] {DEFAULT_SOURCES} {SUITE} main"]
