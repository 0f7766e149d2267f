"""Formulas as MathML, which browsers draw themselves: no script, no download, in the colour of the text."""

from __future__ import annotations

from html import escape

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)


def convert(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """Convert a formula; what docutils does not know is a warning, with its place, and stays as it is written."""
    try:
        return latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        LOGGER.warning("%s", error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def write_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    writer.body.append(convert(node, as_block=False))
    raise nodes.SkipNode


def write_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula in a line of its own, which scrolls where the page is too narrow for it."""
    writer.body.append(f'<div class="math">{convert(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the renderer to Sphinx, as html_math_renderer = "mathml"."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
