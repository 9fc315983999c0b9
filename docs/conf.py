"""Sphinx: MyST pages, and docstrings read as the plain text they are."""

import dataclasses
import inspect
import re
import sys
from pathlib import Path

import docutils.nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.logging import getLogger

import jbrl
from jbrl.environments.environment import ENVIRONMENTS

sys.path.append(str(Path(__file__).parent))
from tables import parameter_table, reference

project = "jbrl"
author = "The jbrl developers"
copyright = "2026, The jbrl developers"
release = version = jbrl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["math.css"]
html_title = f"jbrl {release}"

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"exclude-members": "model_config"}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"  # shapes and dtypes stand in the docstrings
python_maximum_signature_line_length = 90
napoleon_custom_sections = [("Class attributes", "params_style"), ("Fields", "params_style")]
napoleon_use_rtype = False
default_role = "code"  # docstrings write names in `single` backticks

logger = getLogger(__name__)
ABOVE = r"(?:^    # .+\n)*"
PARAMETERS = re.compile(r"^```\{parameters\} (\S+)(?: besides (\S+))?\n```$", re.MULTILINE)
COMMANDS = "```{commands}\n```"
FIELD = re.compile(rf"({ABOVE})^    (\w+): .*?(?:  # (?!noqa|type:)(.+))?$", re.MULTILINE)


def tabulated(name: str, other: str | None = None) -> str:
    """Return the parameters of an agent or an environment as a table in Markdown; of those that
    `other` has as well, only the ones with another default or meaning.
    """
    table = parameter_table(
        jbrl.AGENTS[name].agent if name in jbrl.AGENTS else ENVIRONMENTS[name].environment
    )
    header, rule, *rows = table.splitlines()
    known = tabulated(other).splitlines() if other else []
    rows = [row for row in rows if row not in known]
    return "\n".join([header, rule, *rows]) if rows else "No parameters."


def insert_tables(_app, _docname, content: list[str]) -> None:
    """Write the tables of parameters and the reference of the commands in their places."""
    page = PARAMETERS.sub(lambda match: tabulated(*match.groups()), content[0])
    content[0] = page.replace(COMMANDS, reference()) if COMMANDS in page else page


def fields_of(source: str) -> list[tuple[str, str]]:
    """Names of fields, and the comment behind or above each: those that have one."""
    found = []
    for above, name, behind in FIELD.findall(source):
        comment = " ".join(line.strip(" #") for line in above.splitlines()) or behind
        if comment:
            found.append((name, comment))
    return found


def show_fields(_app, what, _name, obj, _options, lines: list[str]) -> None:
    """List the fields of a record with the comments that stand on them: shapes, dtypes, units."""
    if (
        what == "class"
        and dataclasses.is_dataclass(obj)
        and (fields := fields_of(inspect.getsource(obj)))
    ):
        lines += ["", "Fields:", *(f"    {name}: {comment}" for name, comment in fields), ""]


def as_plain_text(_app, what, _name, _obj, _options, lines: list[str]) -> None:
    """Show indented lines (equations, examples) as they stand, and bars as bars: |Q| is no
    substitution.
    """
    shown, verbatim, previous = [], False, ""
    for line in lines:
        indented = line.startswith("    ")
        if line and not indented:
            verbatim = False
        elif indented and shown and not shown[-1] and previous and not previous.startswith(" "):
            shown += ["::", ""]
            verbatim = True
        shown.append(line if verbatim else line.replace("|", "\\|"))
        previous = line or previous
    # Napoleon reads what stands before a colon in the first line of a property as its type.
    lines[:] = ["..", "", *shown] if what == "property" else shown


def show_math(translator, node) -> None:
    """Formulas as MathML: no script, no network."""
    block = node.tagname == "math_block"
    try:
        formula = tex2mathml(node.astext(), as_block=block)
        translator.body.append(f'<div class="math">{formula}</div>' if block else formula)
    except MathError as error:
        logger.warning("%s: %s", error, node.astext(), location=node)
    raise docutils.nodes.SkipNode


def setup(app) -> None:
    app.connect("source-read", insert_tables)
    app.add_html_math_renderer("mathml", (show_math, None), (show_math, None))
    app.connect("autodoc-process-docstring", show_fields, priority=99)
    # before napoleon reads the sections
    app.connect("autodoc-process-docstring", as_plain_text, priority=100)
