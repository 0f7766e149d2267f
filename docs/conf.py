"""How the documentation is built: `make docs`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import landscape  # noqa: E402

project = "fl-landscape"
version = release = landscape.__version__
copyright = "the authors of fl-landscape"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_gallery.gen_gallery",
    "building.mathml",
    "building.docstrings",
    "building.pages",
]
exclude_patterns = ["examples", "building", "findings/*/findings/[!f]*.md", "findings/*/runs"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions, which cannot be stored between builds

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autodoc_typehints_format = "short"
autodoc_preserve_defaults = True  # as the code writes them, not as Python shows the values
default_role = "code"
smartquotes = False  # texts of the code stay as they are
maximum_signature_line_length = 100

html_theme = "furo"
html_title = "fl-landscape"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"light_css_variables": {"font-stack": "system-ui, sans-serif"}, "top_of_page_buttons": []}
html_show_sourcelink = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",  # every example is run
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "run_stale_examples": os.environ.get("LANDSCAPE_EXAMPLES") != "changed",  # whoever writes docs need not wait
    "reset_modules": ("matplotlib",),
    "image_scrapers": ("building.pictures.save_reports", "matplotlib"),  # the second closes figures of pyplot
}
