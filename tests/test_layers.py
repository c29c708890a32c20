"""Imports go down only, and a framework is imported only by the modules named after it."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRAMEWORKS = ("torch", "mxnet", "tensorflow")
MAPPED = ("hooks", "suite")

# From the top down. A module imports what stands below it, and inside its own room.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("keras",),
    ("launch",),
    ("loop", "report", "analysis"),
    ("results", "doctor", "hooks", "suite"),
    ("collect",),
    ("facts",),
    ("errors",),
)
HEIGHT = {name: -depth for depth, names in enumerate(LAYERS) for name in names}


@dataclass(frozen=True)
class Import:
    line: int
    target: str  # dotted; "." in front: relative


def imports(source: str) -> Iterator[Import]:
    """Yield every import, nested ones and constant `import_module` calls included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (Import(node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = (name.value for name in node.args[:1] if isinstance(name, ast.Constant))
            yield from (Import(node.lineno, str(name)) for name in names)


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield every module of the package as `folder.name` below tbdprof, and its file."""
    for folder in ("tbdprof", *MAPPED):
        inside = (folder,) if folder in MAPPED else ()
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            if parts[0] in MAPPED and not inside:
                continue  # the symlinks: the same files again
            if parts[-1] == "__init__" and (inside or len(parts) > 1):
                parts = parts[:-1]
            yield ".".join((*inside, *parts)), path


def violations(root: Path) -> list[str]:
    found = []
    for module, path in modules(root):
        for item in imports(path.read_text()):
            reason = broken_rule(module, item.target)
            if reason:
                found.append(f"{path.relative_to(root)}:{item.line}: {reason}")
    return found


def broken_rule(module: str, target: str) -> str | None:
    head = target.split(".")[0]
    if head == "":
        return "relative import"
    if head in MAPPED:
        return f"imports {head}: it is tbdprof.{head}"
    if head in FRAMEWORKS:
        return None if is_named_for(module, (head,)) else f"imports {head}"
    if head == "tbdprof":
        return broken_direction(module, target.split(".")[1:])
    return None


def broken_direction(module: str, target: list[str]) -> str | None:
    own = module.split(".")[0]
    if own == "__init__":
        return None  # the public names come from everywhere
    if not target or target[0] not in HEIGHT:
        return f"imports the package root, or a module of no layer: {'.'.join(target) or 'tbdprof'}"
    if own not in HEIGHT:
        return f"{own} stands in no layer"
    if any(part.startswith("on_") for part in target) and not is_named_for(module, FRAMEWORKS):
        return f"imports {'.'.join(target)} past its loader"
    if own == target[0] or HEIGHT[target[0]] < HEIGHT[own]:
        return None
    return f"{own} imports {target[0]}, which is not below it"


def is_named_for(module: str, frameworks: Iterable[str]) -> bool:
    names = tuple(f"on_{framework}" for framework in frameworks)
    return any(part.startswith(names) for part in module.split("."))


def test_imports_go_down_only() -> None:
    assert violations(ROOT) == []


def test_every_source_file_is_looked_at_once() -> None:
    paths = [path.resolve() for _, path in modules(ROOT)]

    assert len(paths) == len(set(paths))
    assert {
        ROOT / "tbdprof/facts/records.py",
        ROOT / "hooks/__init__.py",
        ROOT / "suite/workload.py",
    } <= set(paths)


@pytest.mark.parametrize(
    ("file", "source", "reason"),
    [
        ("tbdprof/facts/records.py", "from tbdprof.analysis.summary import summarize", "facts imports analysis"),
        ("tbdprof/analysis/memory/breakdown.py", "import tbdprof.report.terminal", "analysis imports report"),
        (
            "tbdprof/analysis/memory/breakdown.py",
            "def f():\n    from tbdprof import report",
            "2: analysis imports report",
        ),
        ("tbdprof/loop/profiler.py", "from tbdprof import cli", "loop imports cli"),
        ("tbdprof/collect/host.py", "from tbdprof import analysis", "collect imports analysis"),
        ("hooks/on_torch.py", "from tbdprof.suite import find", "hooks imports suite"),
        ("hooks/__init__.py", "from tbdprof import Profiler", "imports the package root"),
        ("tbdprof/report/html.py", "import tbdprof", "imports the package root"),
        ("suite/resnet50/__init__.py", "import torch.nn as nn", "imports torch"),
        ("suite/resnet50/on_mxnet.py", "import torch", "imports torch"),
        (
            "tbdprof/cli/main.py",
            "import importlib\nimportlib.import_module('mxnet')",
            "2: imports mxnet",
        ),
        ("tbdprof/loop/profiler.py", "from tbdprof.hooks import on_torch", "past its loader"),
        ("tbdprof/loop/profiler.py", "import hooks", "it is tbdprof.hooks"),
        ("suite/__init__.py", "from suite.workload import Spec", "it is tbdprof.suite"),
        ("tbdprof/cli/main.py", "from . import commands", "relative import"),
        ("tbdprof/extra.py", "from tbdprof.errors import TbdprofError", "extra stands in no layer"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str, reason: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(source)

    (found,) = violations(tmp_path)

    assert reason in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("tbdprof/__init__.py", "from tbdprof.loop.profiler import Profiler"),
        ("tbdprof/cli/main.py", "from tbdprof import loop"),
        ("tbdprof/analysis/memory/breakdown.py", "from tbdprof.analysis import roles"),
        ("suite/resnet50/on_torch.py", "import torch\nfrom tbdprof.suite.workload import Config"),
        (
            "hooks/on_mxnet_memory.py",
            "from mxnet import nd\nfrom tbdprof.hooks.on_mxnet import hook",
        ),
    ],
)
def test_what_the_design_allows_is_not_reported(tmp_path: Path, file: str, source: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(source)

    assert violations(tmp_path) == []
