"""Words that a shell offers after TAB: recipes, methods, studies, figures, artefacts. Imports no torch: TAB is fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

METHOD = "algorithm.name="  # the setting that --set offers values of


def _select(names: Iterable[str], begun: str) -> list[str]:
    return sorted(name for name in names if name.startswith(begun))


def _list_files(package: str | None, folder: str, pattern: str) -> list[str]:
    """List the names of a package's modules, which are also the names of what they define."""
    return [path.stem for path in (Path(package or "").parent / folder).glob(pattern)]


def offer(*words: str) -> Callable[[str], list[str]]:
    """Make a completion of a few fixed words."""
    return lambda incomplete: _select(words, incomplete)


def complete_width(incomplete: str) -> list[str]:
    """Columns of papers."""
    from landscape.plotting.style import WIDTHS

    return _select(WIDTHS, incomplete)


def complete_recipe(incomplete: str) -> list[str]:
    """Recipes that ship with the package, and TOML files of the current folder."""
    import training

    own = [path.name for path in Path().glob("*.toml")]
    return _select([*_list_files(training.__file__, "recipes", "*.toml"), *own], incomplete)


def complete_setting(incomplete: str) -> list[str]:
    """Dotted settings of a recipe; after algorithm.name= the methods."""
    from reports.names import METHODS
    from training.recipe_tables import RecipeTables

    if incomplete.startswith(METHOD):
        return _select((f"{METHOD}{name}" for name in METHODS), incomplete)
    keys = []
    for table, field in RecipeTables.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        if table == "adopted":
            continue  # only stored recipes have it
        keys += [f"{table}="] if inner is None else [f"{table}.{name}=" for name in inner]
    return _select(keys, incomplete)


def complete_study(incomplete: str) -> list[str]:
    """Studies."""
    import analysis

    return _select(_list_files(analysis.__file__, "studies", "[!_]*.py"), incomplete)


def complete_figure(incomplete: str) -> list[str]:
    """Figures of reports."""
    from reports.catalog import FIGURES

    return _select(FIGURES, incomplete)


def complete_artefact(incomplete: str) -> list[str]:
    """Papers, and their tables and figures."""
    from reports.reproduction import PAPERS

    artefacts = [f"{paper.key}/{one.name}" for paper in PAPERS.values() for one in paper.artefacts]
    return _select(["all", *PAPERS, *artefacts], incomplete)


def complete_tracker(incomplete: str) -> list[str]:
    """Trackers of metrics, figures and tables."""
    from training.tracking.catalog import TRACKERS

    return _select(TRACKERS, incomplete)


def complete_run(incomplete: str) -> list[str]:
    """List runs in the folder typed so far, or in runs/; other folders end with a slash, so that one can type on."""
    from training.storage.run_directory import has_recipe, runs_in

    begun = Path(incomplete)
    here = begun if incomplete.endswith("/") else begun.parent
    found = {str(run) for folder in (here, Path("runs")) for run in runs_in(folder, depth=1)}
    if incomplete and here.is_dir():
        found |= {f"{one}/" for one in here.iterdir() if one.is_dir() and not has_recipe(one)}
    return _select(found, incomplete)
