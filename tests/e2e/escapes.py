"""Programs of tenants that get past the library in their container, and one that only tries.

`python3 -c CODE PROGRAM WORK`, where PROGRAM is tests/integration/gpu_shim/hostprogram.py and WORK
is what it shall do; STATIC is a program by itself.
"""

import subprocess
from pathlib import Path

from tests.support import fakecuda

#: Where the driver lies in a container.
DRIVER = "/usr/local/nvidia/lib64"

#: Drops everything from its environment that is not named: the library is there all the same.
CLEAN = """
import os, sys
python = [sys.executable, "-c", *sys.argv[1:]]
os.execve(python[0], python, {"FAKECUDA_STATE": os.environ["FAKECUDA_STATE"]})
"""

#: A copy of the image's own loader that looks elsewhere for what to load first.
LOADER = f"""
import glob, os, sys
with open(glob.glob("/lib*/ld-linux*.so.*")[0], "rb") as file:
    loader = file.read().replace(b"/etc/ld.so.preload", b"/nix/ld.so.preload")
with open("/tmp/loader", "wb") as file:
    file.write(loader)
os.chmod("/tmp/loader", 0o755)
python = [sys.executable, "-c", *sys.argv[1:]]
os.execv("/tmp/loader", ["/tmp/loader", "--library-path", {DRIVER!r}, *python])
"""

#: The driver's own library in a name space of its own, where nothing is loaded before it.
NAMESPACE = f"""
import ctypes, sys
libc = ctypes.CDLL(None)
libc.dlmopen.restype = libc.dlsym.restype = ctypes.c_void_p
libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
driver = libc.dlmopen(ctypes.c_long(-1), b"{DRIVER}/libcuda.so.1", 2)

class Driver:
    def __getattr__(self, name):
        return ctypes.CFUNCTYPE(ctypes.c_int)(libc.dlsym(driver, name.encode()))

program, work = sys.argv[1:]
names = {{"__name__": "program"}}
exec(program, names)
names["cuda"] = Driver()
exec(work, names)
"""

#: No loader, so nothing is loaded at all: it speaks to the card itself, as a program may to
#: /dev/nvidia0. Arguments: MiB, and the file to write the time of its first use to.
STATIC = """
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int n, char **words)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int status = n == 3 && fake_take(strtoull(words[1], NULL, 10) << 20) ? 0 : 2;
    FILE *file = fopen(words[2], "w");
    fprintf(file, "[%.3f, %d]", (double)now.tv_sec + (double)now.tv_nsec / 1e9, status);
    fclose(file);
    for (;;)
        pause();
}
"""


def build_static(folder: Path) -> Path:
    """Make the program of STATIC in a folder."""
    source, program = folder / "static.c", folder / "static"
    source.write_text(STATIC)
    flags = ["-static", "-O1", f"-I{fakecuda.HERE}", "-o", str(program)]
    files = [str(source), str(fakecuda.HERE / "device.c")]
    subprocess.run(["gcc", *flags, *files], check=True, timeout=60)
    return program
