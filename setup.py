"""Where the packages lie; everything else is said in pyproject.toml."""

from setuptools import find_packages, setup

MAPPED = ("hooks", "suite")  # folder of the repository -> tbdprof.<folder>


def mapped_packages(folder: str) -> list[str]:
    """Return the package names of a mapped folder."""
    inner = (f"tbdprof.{folder}.{name}" for name in find_packages(folder))
    return [f"tbdprof.{folder}", *inner]


setup(
    packages=sorted(
        {
            *find_packages(include=["tbdprof", "tbdprof.*"]),
            *(package for folder in MAPPED for package in mapped_packages(folder)),
        }
    ),
    package_dir={f"tbdprof.{folder}": folder for folder in MAPPED},
    package_data={"tbdprof": ["py.typed"], "tbdprof.launch": ["startup/*.py"]},
)
