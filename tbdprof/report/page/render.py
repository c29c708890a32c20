"""The page as one text: templates filled with a summary and its pictures, and the charting library beside them.

Nothing on the page comes from the network. The page itself forbids it by its content security policy, which also lets
no script run but the three whose hashes it names. So a name that looks like markup would do nothing even if it were
not escaped.
"""

import base64
import hashlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tbdprof.errors import UnavailableError
from tbdprof.report.page.texts import embedded

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
LIBRARY = Path("package_data", "plotly.min.js")


class Scripts(NamedTuple):
    """The scripts of a page as they stand in it, and the policy that lets them run and nothing else."""

    library: str
    own: str
    theme: str
    policy: str


def fill(template: str, data: Any, **values: Any) -> str:
    """Return a filled template of this folder; `data` is what its scripts read.

    Raise UnavailableError where Jinja2 or Plotly is not installed.
    """
    from markupsafe import Markup

    environment, scripts = _environment(), _scripts()
    kept = {"scripts": scripts, "style": Markup(_read("style.css")), "data": Markup(embedded(data))}
    return environment.get_template(template).render(**kept, **values)


def refuse_without_libraries() -> None:
    """Raise UnavailableError where Jinja2 or Plotly is not installed."""
    _environment()
    _library()


def _environment() -> "Environment":
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise _lacking("Jinja2", error) from error
    loader = FileSystemLoader(TEMPLATES)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _lacking(name: str, why: object) -> UnavailableError:
    return UnavailableError(f"a page needs {name}, which cannot be imported ({why}): pip install 'tbdprof[page]'")


def _library() -> str:
    """Return Plotly's script, which its package for Python contains; the package itself is not imported."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise _lacking("Plotly", "it is not installed")
    path = Path(found.origin).parent / LIBRARY
    try:
        return _as_script(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _lacking("Plotly", f"{path} cannot be read") from error


def _as_script(source: str) -> str:
    """Return a script that may stand in an element: in its strings, the text that would end the element is escaped."""
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _scripts() -> Scripts:
    from markupsafe import Markup

    sources = [_library(), _as_script(_read("page.js")), _as_script(_read("theme.js"))]
    hashes = " ".join(f"'sha256-{_hash(source)}'" for source in sources)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
    library, own, theme = map(Markup, sources)
    return Scripts(library, own, theme, f"{policy}; form-action 'none'")


def _hash(source: str) -> str:
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
