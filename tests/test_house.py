"""Which room imports which, and that the house stays easy to find one's way in; ARCHITECTURE.md says the same."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRAMEWORKS = ("torch", "mxnet", "tensorflow")
MAPPED = ("hooks", "suite")

# From the top floor down. A module imports what lies on a floor below its own, and what is in its own room.
FLOORS = (
    ("__main__",),
    ("cli",),
    ("integrations", "keras", "sweep"),
    ("launch",),
    ("loop", "report", "analysis"),
    ("doctor",),
    ("results", "hooks", "suite"),
    ("collect",),
    ("facts",),
    ("errors",),
)
HEIGHT = {name: -depth for depth, names in enumerate(FLOORS) for name in names}
NAMED_BY_LIBRARY = {"integrations.gluon": "mxnet"}  # named after the user's library, and imports its framework
PUBLIC = {"__init__", "__main__", "errors", "keras"}  # the only modules that lie in no room
LONGEST_CHAIN = 10  # modules, each importing the next
MOST_MODULES = 15  # in a folder; about 12 are meant
LARGER = {"suite.faster_rcnn"}  # a network of three parts in three frameworks


@dataclass(frozen=True)
class Import:
    line: int
    target: str  # dotted; "." in front: relative


def imports(source: str, *, types: bool = True) -> Iterator[Import]:
    """Yield every import, nested ones and constant `import_module` calls included; without `types` what runs."""
    tree = ast.parse(source)
    skipped = (
        set() if types else {id(inner) for node in ast.walk(tree) if is_for_types(node) for inner in ast.walk(node)}
    )
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (Import(node.lineno, f"{origin}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = (name.value for name in node.args[:1] if isinstance(name, ast.Constant))
            yield from (Import(node.lineno, str(name)) for name in names)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


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
        may = is_named_for(module, (head,)) or NAMED_BY_LIBRARY.get(module) == head
        return None if may else f"imports {head}"
    if head == "tbdprof":
        return broken_direction(module, target.split(".")[1:])
    return None


def broken_direction(module: str, target: list[str]) -> str | None:
    own = module.split(".")[0]
    if own == "__init__":
        return None  # the public names come from everywhere
    if not target or target[0] not in HEIGHT:
        return f"imports the package root, or a module in no room: {'.'.join(target) or 'tbdprof'}"
    if own not in HEIGHT:
        return f"{own} is no room"
    if any(part.startswith("on_") for part in target) and not is_named_for(module, FRAMEWORKS):
        return f"imports {'.'.join(target)} past its loader"
    if own == target[0] or HEIGHT[target[0]] < HEIGHT[own]:
        return None
    return f"{own} imports {target[0]}, which is not below it"


def is_named_for(module: str, frameworks: Iterable[str]) -> bool:
    names = tuple(f"on_{framework}" for framework in frameworks)
    return any(part.startswith(names) for part in module.split("."))


def graph(root: Path) -> dict[str, set[str]]:
    """Return what each module imports when it runs, lazily or not, of the project's own."""
    paths = dict(modules(root))

    def owner(target: str) -> str:
        while target and target not in paths:
            target = target.rpartition(".")[0]
        return target

    def imported(path: Path) -> set[str]:
        found = (item.target for item in imports(path.read_text(), types=False))
        return {owner(target.removeprefix("tbdprof.")) for target in found if target.startswith("tbdprof.")}

    return {name: imported(path) - {name, ""} for name, path in paths.items()}


def longest_chain(edges: Mapping[str, set[str]]) -> list[str]:
    """Return the longest chain of imports; raises ValueError, naming it, where there is a circle."""
    known: dict[str, list[str]] = {}

    def below(name: str, above: tuple[str, ...]) -> list[str]:
        if name in above:
            raise ValueError(f"circle: {' > '.join((*above[above.index(name) :], name))}")
        if name not in known:
            known[name] = [
                name,
                *max((below(each, (*above, name)) for each in sorted(edges[name])), key=len, default=[]),
            ]
        return known[name]

    return max((below(name, ()) for name in sorted(edges)), key=len)


def reached(edges: Mapping[str, set[str]], start: str) -> set[str]:
    """Return all that a module imports, directly or not."""
    found: set[str] = set()
    rest = [start]
    while rest:
        for name in edges[rest.pop()] - found:
            found.add(name)
            rest.append(name)
    return found


@pytest.fixture(scope="module")
def edges() -> dict[str, set[str]]:
    return graph(ROOT)


def test_imports_go_down_only() -> None:
    assert violations(ROOT) == []


def test_no_chain_of_imports_is_long_and_none_is_a_circle(edges: dict[str, set[str]]) -> None:
    chain = longest_chain(edges)

    assert len(chain) <= LONGEST_CHAIN, " > ".join(chain)


def test_every_module_lies_in_a_room_but_the_public_ones() -> None:
    assert {path.stem for path in (ROOT / "tbdprof").glob("*.py")} == PUBLIC


def test_no_folder_is_crowded() -> None:
    found = {name: path.parent for name, path in modules(ROOT)}
    folders = {folder: len(list(folder.glob("*.py"))) - 1 for folder in set(found.values())}
    crowded = {
        ".".join(folder.relative_to(ROOT).parts): count for folder, count in folders.items() if count > MOST_MODULES
    }

    assert crowded.keys() <= LARGER, crowded


@pytest.mark.parametrize(("framework", "most"), [("torch", 22), ("mxnet", 17), ("tensorflow", 27)])
def test_a_memory_window_reaches_little_and_counts_no_flops(
    edges: dict[str, set[str]], framework: str, most: int
) -> None:
    hook = f"hooks.on_{framework}"

    found = {name for name in reached(edges, f"{hook}.memory.window") if name.startswith(hook)}

    assert not [name for name in found if name.startswith(f"{hook}.flops")]
    assert len(found) <= most, sorted(found)


def test_the_rooms_are_those_of_the_architectures_table() -> None:
    table = re.findall(r"^\| (\d+) \| `(\w+)/?` \| (.+?) \|", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)

    rooms = [(str(len(FLOORS) - floor), name) for floor, names in enumerate(FLOORS) for name in names]
    assert [(floor, name) for floor, name, _ in table] == rooms
    for _, name, says in table:
        folder = ROOT / name if name in MAPPED else ROOT / "tbdprof" / name
        source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        assert (ast.get_docstring(ast.parse(source.read_text())) or "").partition("\n")[0] == says


PLACES = ("", *(f"hooks.on_{name}." for name in FRAMEWORKS), "analysis.memory.", "analysis.kernels.")


def test_what_the_architecture_names_is_there() -> None:
    named = set(re.findall(r"`((?:\w+\.)+\w+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    sources = {module: path.read_text() for module, path in modules(ROOT)}

    def is_there(name: str) -> bool:
        module, _, member = name.rpartition(".")
        owner, _, method = module.rpartition(".")
        return (
            name in sources
            or re.search(rf"^(?:class|def) {member}\b", sources.get(module, ""), re.MULTILINE) is not None
            or (f"class {method}" in sources.get(owner, "") and f"def {member}(" in sources[owner])
        )

    named = {name.removeprefix("tbdprof.") for name in named} - {"window.py", "table.py", "hooks", "suite"}
    assert len(named) > 15
    assert [name for name in sorted(named) if not any(is_there(place + name) for place in PLACES)] == []


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
        ("tbdprof/analysis/memory/breakdown.py", "import tbdprof.launch.request", "analysis imports launch"),
        (
            "tbdprof/analysis/memory/breakdown.py",
            "def f():\n    from tbdprof import report",
            "2: analysis imports report",
        ),
        ("tbdprof/report/terminal.py", "from tbdprof.analysis.summary import summarize", "report imports analysis"),
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
        ("tbdprof/integrations/gluon.py", "import torch", "imports torch"),
        ("tbdprof/integrations/lightning.py", "import mxnet", "imports mxnet"),
        ("tbdprof/loop/profiler.py", "from tbdprof.hooks import on_torch", "past its loader"),
        ("tbdprof/loop/profiler.py", "import hooks", "it is tbdprof.hooks"),
        ("suite/__init__.py", "from suite.workload import Spec", "it is tbdprof.suite"),
        ("tbdprof/cli/main.py", "from . import commands", "relative import"),
        ("tbdprof/extra.py", "from tbdprof.errors import TbdprofError", "extra is no room"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, source: str, reason: str) -> None:
    plant(tmp_path, file, source)

    (found,) = violations(tmp_path)

    assert reason in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("tbdprof/__init__.py", "from tbdprof.launch.own_loop import Profiler"),
        ("tbdprof/cli/main.py", "from tbdprof import loop"),
        ("tbdprof/analysis/memory/breakdown.py", "from tbdprof.analysis import roles"),
        ("suite/resnet50/on_torch.py", "import torch\nfrom tbdprof.suite.workload import Config"),
        (
            "hooks/on_mxnet_memory.py",
            "from mxnet import nd\nfrom tbdprof.hooks.on_mxnet import hook",
        ),
    ],
)
def test_what_the_architecture_allows_is_not_reported(tmp_path: Path, file: str, source: str) -> None:
    plant(tmp_path, file, source)

    assert violations(tmp_path) == []


def test_a_planted_circle_is_found_though_one_import_is_lazy(tmp_path: Path) -> None:
    plant(tmp_path, "tbdprof/loop/plan.py", "from tbdprof.loop.steady import settled")
    plant(tmp_path, "tbdprof/loop/steady.py", "def settled():\n    from tbdprof.loop import plan")

    with pytest.raises(ValueError, match=r"circle: loop\.plan > loop\.steady > loop\.plan"):
        longest_chain(graph(tmp_path))


def test_a_chain_is_as_long_as_its_modules(tmp_path: Path) -> None:
    plant(tmp_path, "tbdprof/loop/plan.py", "from tbdprof.facts.windows import CLEAN\nfrom tbdprof.loop import steady")
    plant(tmp_path, "tbdprof/loop/steady.py", "if TYPE_CHECKING:\n    from tbdprof.loop import plan")
    plant(tmp_path, "tbdprof/facts/windows.py", "from tbdprof import errors")
    plant(tmp_path, "tbdprof/errors.py", "")

    assert longest_chain(graph(tmp_path)) == ["loop.plan", "facts.windows", "errors"]


def plant(root: Path, file: str, source: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
