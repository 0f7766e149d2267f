"""Pages that are made from the code when the documentation is built: methods, studies, figures, lists and the API.

They are written into docs/generated, which is not committed. Each entry of PAGES is one page.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from sphinx.application import Sphinx

from analysis.catalog import STUDIES
from analysis.command import spell_papers
from reports.catalog import FIGURES
from reports.figure_type import TOPICS
from reports.names import METHODS as PRINTED
from training.config import Recipe
from training.console.formulas import collect_formulas
from training.console.listings import ALGORITHM_NOTES, make_listing
from training.console.tables import show_value, to_records
from training.methods.catalog import ALGORITHMS, list_settings, read_settings
from training.methods.method import Method
from training.settings import describe, fields
from training.storage import toml

FOLDER = "generated"
PICTURES = Path(__file__).parents[2] / "reports" / "gallery"  # of the demo, by the names of figures
WIDE = 1300  # pixels: the labels of a picture of that width are too small on a phone
PARTS = (  # of a method's formulas, and when they are computed
    ("sent", "Before local training"),
    ("step", "Every local step"),
    ("client", "After local training"),
    ("server", "The server, after the round"),
)
STEP = r"""
A round sends $\hat w^t$ to the participants, $\hat w^t = w^t$ unless a method says otherwise. A client starts there and
takes local steps; $L$ is the loss of a mini-batch, $\eta$ the rate `local.lr`, $\lambda$ is `local.weight_decay`:

$$g = \nabla L(w) \qquad \tilde g = \nabla L(w + e) \qquad w \leftarrow w - \eta\, (u + \lambda\, w)$$

$e$ is the method's perturbation and $u$ its direction, from $\tilde g$ on the same mini-batch; $g$ is only computed
where it is used. With `local.clip`, $u$ is cut to that length first; with `local.momentum` $= r$ the bracket gives way
to $v \leftarrow r\, v + u + \lambda\, w$. Then, with $w_k$ for where client $k$ ended:

$$D_k = w_k - \hat w^t \qquad D = \sum_k p_k\, D_k \qquad G = - \sum_k p_k \frac{D_k}{\eta\, a_k}$$

Sums run over the $S$ participants of the round, out of $N$ clients. $p_k$ is the client's share of their examples, or
$1/S$ (`rounds.aggregation`). $a_k$ is its number of steps $K$, or
$\left( K - r (1 - r^K) / (1 - r) \right) / (1 - r)$ with momentum. All vectors that a method keeps begin as zero.
"""


def write_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table.

    titles: of the columns. rows: their cells; a pipe in one is escaped.
    """
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in line) + " |" for line in lines
    )


def quote(text: str) -> str:
    """Write a text as code, or nothing for nothing."""
    return f"`{text}`" if text else ""


def write_records(records: Sequence[Mapping[str, Any]]) -> str:
    """Write a listing of the console as a table; settings of an entry stand below it."""
    titles = list(dict.fromkeys(key for record in records for key in record if key != "settings" or _is_text(record)))
    rows: list[list[str]] = []
    for record in records:
        entries = [record, *([] if _is_text(record) else record.get("settings", []))]
        rows += [[_write_cell(title, one.get(title, "")) for title in titles] for one in entries]
    return write_table(titles, rows)


def _is_text(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("settings", ""), str)


def _write_cell(title: str, text: str) -> str:
    return quote(text) if title in ("name", "setting", "settings", "default") and text != "-" else _plain(text)


def _plain(text: str) -> str:
    """Escape what Markdown would take for markup."""
    for sign in "*_<$":
        text = text.replace(sign, f"\\{sign}")
    return text


def write_methods() -> str:
    """Write the page of methods: every one with its formulas as implemented, its settings and its paper."""
    parts = ["# Methods and their formulas", f"{len(ALGORITHMS)} methods, each as the code computes it.", STEP]
    return "\n\n".join([*parts, *(write_method(name, method) for name, method in ALGORITHMS.items())])


def write_method(name: str, method: Method) -> str:
    """Write the section of one method."""
    printed = PRINTED.get(name, name)
    found = collect_formulas(method)
    lines = [f"({name})=\n\n## {printed}", f"`{name}` · {_plain(method.paper)}"]
    for part, title in PARTS:
        formulas = getattr(found, part)
        if formulas:
            lines += [f"**{title}**", *(f"$${one}$$" for one in formulas)]
    values = read_settings(method)
    about = {one.name: one for rule in method.slots.values() for one in describe(type(rule))}
    rows = [
        (quote(key), quote(show_value(values[key])), _plain(about[key].allowed), _plain(about[key].description))
        for key in list_settings(method)
    ]
    down, up = method.traffic
    cost = f"Vectors down/up: {down}/{up}. Gradients per step: {method.gradients_per_step}."
    table = [write_table(("setting", "default", "allowed", "what it is"), rows)] if rows else []
    return "\n\n".join([*lines, *([found.note] if found.note else []), *table, cost])


def write_algorithms() -> str:
    """Write the table of all methods at a glance."""
    records = [
        {**record, "name": f"[{record['name']}](methods.md#{record['name']})"}
        for record in to_records(make_listing("algorithms"))
    ]
    titles = list(records[0])
    rows = [
        [one.get(key, "") if key == "name" else _write_cell(key, one.get(key, "")) for key in titles] for one in records
    ]
    return "\n\n".join(["# Methods at a glance", write_table(titles, rows), *map(_plain, ALGORITHM_NOTES)])


def write_listing(kind: str, title: str, text: str) -> Callable[[], str]:
    """Make the writer of a page that holds one listing of `landscape list`."""
    return lambda: "\n\n".join([f"# {title}", text, write_records(to_records(make_listing(kind)))])


def write_studies() -> str:
    """Write the page of studies: what each measures, and every setting."""
    parts = [
        "# Studies and their settings",
        "`landscape analyze RUN --study NAME --set NAME.SETTING=VALUE`, or "
        '`analysis.analyze(run, "NAME", SETTING=VALUE)`.',
    ]
    for study in STUDIES.values():
        rows = [
            (
                quote(about.name),
                quote("none" if about.default is None else toml.show(about.default)),
                _plain(about.allowed),
                _plain(about.description),
            )
            for about in describe(study.settings)
        ]
        drawn = ", ".join(f"[{one.name}](figures.md#{one.name})" for one in FIGURES.values() if study.name in one.needs)
        parts += [
            f"({study.name}-study)=\n\n## `{study.name}`",
            _plain(study.about[0].upper() + study.about[1:].rstrip(".")) + ".",
        ]
        parts += [f"In the papers: {_plain(spell_papers(study.papers))}."] if study.papers else []
        parts += [f"Figures: {drawn}."] if drawn else []
        parts.append(write_table(("setting", "default", "allowed", "what it means"), rows))
    return "\n\n".join(parts)


def write_figures() -> str:
    """Write the page of figures: what each shows, how to read it, and what it needs."""
    parts = [
        "# How to read every figure",
        'Every figure is drawn by `landscape report`, or alone by `reports.figure("NAME", runs)`. '
        "The sentence on how to read it stands below it on the page of a report too.",
    ]
    for topic, question in TOPICS.items():
        parts.append(f"## {question}")
        for figure in FIGURES.values():
            if figure.topic == topic:
                needs = ", ".join(f"[{name}](studies.md#{name}-study)" for name in figure.needs) or "the run's metrics"
                parts += [f"({figure.name})=\n\n### {_plain(figure.title)}", _plain(figure.reading)]
                if (PICTURES / f"{figure.name}.png").exists():
                    parts.append(write_picture(figure.title, PICTURES / f"{figure.name}.png"))
                parts.append(f"`{figure.name}` · from {needs}" + _write_wants(figure.wants))
    return "\n\n".join(parts)


def write_recipe_settings() -> str:
    """Write the page of all settings of a recipe, table by table, and of the recipes that ship."""
    parts = ["# Recipes", RECIPES, write_records(to_records(make_listing("recipes"))), "## Every setting"]
    plain: list[Sequence[str]] = []
    for name, field in fields(Recipe).items():
        kind = _find_table(field.annotation)
        if kind is None:
            plain.append((quote(name), _default(field.get_default()), _plain(field.description or "")))
            continue
        rows = [(quote(f"{name}.{one.name}"), _default(one.default), _plain(one.description)) for one in describe(kind)]
        if rows:
            parts += [
                f"### [{name}]",
                _plain(inspect.getdoc(kind) or ""),
                write_table(("setting", "default", "what it is"), rows),
            ]
    return "\n\n".join([*parts, "### At the top", write_table(("setting", "default", "what it is"), plain)])


def write_picture(title: str, path: Path) -> str:
    """Write a picture of several panels so that it scrolls on a phone, any other so that it shrinks.

    title: read out in place of the picture. path: of the PNG file, in the folder of pictures.
    """
    address = f"../../reports/gallery/{path.name}"
    if Image.open(path).width < WIDE:
        return f"![{title}]({address})"
    return f"```{{figure}} {address}\n:alt: {title}\n:figclass: wide\n```"


def _write_wants(wants: str) -> str:
    """Say what a figure needs beyond the defaults of its studies: an option, or words."""
    if not wants:
        return ""
    return f" · needs {quote(wants) if wants.startswith('--') else _plain(wants)}"


RECIPES = """A recipe is a TOML file with the settings of a run. Write only what differs from the defaults; a stored run
spells out all of them. `landscape new recipe` writes a commented file to start from. A table `[sweep]` names settings
with several values: one run for every combination. The settings of `[algorithm]`, `[data]`, `[partition]` and `[model]`
depend on the name given there."""


def _find_table(annotation: Any) -> Any:
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next((kind for kind in kinds if fields(kind)), None)


def _default(value: object) -> str:
    known = isinstance(value, (bool, int, float, str, tuple)) and value != ()
    return quote(show_value(value)) if known else ""


def write_api(package: str) -> Callable[[], str]:
    """Make the writer of a page with every public name of a package."""

    def write() -> str:
        module = importlib.import_module(package)
        lines = [f"# {package}", inspect.getdoc(module).partition("\n")[0], "```{eval-rst}"]  # type: ignore[union-attr]
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                lines += [
                    f".. automodule:: {thing.__name__}\n   :members:\n   :undoc-members:\n   :member-order: bysource\n"
                ]
            elif inspect.isclass(thing):
                lines += [f".. autoclass:: {package}.{name}\n   :members:\n   :member-order: bysource\n"]
            else:
                lines += [f".. autofunction:: {package}.{name}\n"]
        return "\n".join([*lines, "```"])

    return write


PAGES: dict[str, Callable[[], str]] = {
    "algorithms": write_algorithms,
    "methods": write_methods,
    "studies": write_studies,
    "figures": write_figures,
    "recipes": write_recipe_settings,
    "datasets": write_listing("datasets", "Data sets", "What `[data] name = ...` of a recipe can name."),
    "partitions": write_listing("partitions", "Partitions", "What `[partition] name = ...` of a recipe can name."),
    "models": write_listing("models", "Models", "What `[model] name = ...` of a recipe can name."),
    "api_landscape": write_api("landscape"),
    "api_training": write_api("training"),
    "api_analysis": write_api("analysis"),
    "api_reports": write_api("reports"),
}


def write_pages(app: Sphinx) -> None:
    """Write every page whose text has changed."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        path, text = folder / f"{name}.md", write() + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def add_title(app: Sphinx, name: str, text: list[str]) -> None:
    """Give the table of verdicts of a scale, which `landscape reproduce findings` writes, a title."""
    if name.startswith("findings/") and not text[0].startswith("#"):
        text[0] = f"# Verdicts at scale {name.split('/')[1]}\n\n{text[0]}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before Sphinx looks for documents."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", add_title)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
