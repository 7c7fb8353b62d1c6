"""Compiles the Cython modules: every .pyx of our packages, with the files it depends on.

What else a module is made of, it says in a comment `# distutils: ...` at its top. Everything but
the modules is in pyproject.toml.
"""

from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

HEADERS = [*glob("gpu_shim/native/*.h"), *glob("gpu_shim/protocol/*.h")]

setup(
    ext_modules=cythonize(
        [
            Extension("*", ["extender/**/*.pyx"]),
            Extension(
                "*", ["gpu_shim/**/*.pyx"], include_dirs=["gpu_shim/native"], depends=HEADERS
            ),
        ]
    )
)
