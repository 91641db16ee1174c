"""What the documentation site holds besides docs/: README, methods, the Python reference, experiments and notebooks.

A hook of mkdocs. Pages are taken from where they live in the repository, their links are turned into links of the site (or into
links to the source where the site has no such page), and two pages are written from the code itself: every method from its
file's docstring, and the public names of the package.
"""

from __future__ import annotations

import ast
import base64
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import lengthwise
from lengthwise.methods.registry import METHODS, source_of
from scripts.generated_tables import paper_link

ROOT = Path(__file__).parents[1]
SOURCE = "https://github.com/lengthwise/lengthwise/blob/main"
OUTSIDE_DOCS = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(\))")
COMMENT = re.compile(r"<!--=.*?-->|<!--(?:files|/?generated).*?-->\n?", re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that do not live in docs/."""
    for path, uri in OUTSIDE_DOCS.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    for path in sorted((ROOT / "experiments").rglob("*")):
        if path.suffix in (".md", ".svg", ".png", ".csv"):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    # In the place of the repository's own page, which has no formulas
    files.remove(files.src_uris["methods.md"])
    files.append(File.generated(config, "methods.md", content=methods_page()))
    files.append(File.generated(config, "api.md", content=python_page()))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page, pictures = notebook_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links of the site, and drop the marks of checked numbers."""
    uris = {file.src_uri for file in files}
    here = repository_path(page.file.src_uri)
    return LINK.sub(
        lambda link: f"{link[1]}{site_link(here, link[2], uris)}{link[3] or ''}{link[4]}", COMMENT.sub("", markdown)
    )


def repository_path(uri: str) -> str:
    """Where a page of the site lives in the repository."""
    for path, page in OUTSIDE_DOCS.items():
        if page == uri:
            return path
    if uri.startswith("notebooks/"):
        return str(Path(uri).with_suffix(".ipynb"))
    return uri if uri.startswith("experiments/") else f"docs/{uri}"


def site_link(here: str, link: str, uris: set[str]) -> str:
    """A link in the file `here` of the repository, as the site has it; to the source where the site has no such page."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(here), link))
    uri = OUTSIDE_DOCS.get(target) or re.sub(r"\.ipynb$", ".md", target.removeprefix("docs/"))
    if uri not in uris:
        return f"{SOURCE}/{target}" if (ROOT / target).exists() else link
    own = OUTSIDE_DOCS.get(here) or here.removeprefix("docs/")
    return posixpath.relpath(uri, posixpath.dirname(own) or ".")


def methods_page() -> str:
    """Every method: what it does, its formula and remarks, its paper and its file."""
    parts = [
        "# Methods",
        "Written `NAME[:key=value,...]` on the command line and in Python, joined by `+`. g is the factor of all ",
    ]
    parts[1] += "logits of a row, n the number of keys it sees; the [equation](equations.md) has the rest."
    for name in METHODS:
        source = source_of(name)
        what = source.summary.partition(": ")[2]
        text = str(ast.get_docstring(ast.parse((ROOT / "src" / source.file).read_text()))).partition("\n")[2]
        text = re.sub(r"^(?:Paper|Code):.*\n?", "", text, flags=re.MULTILINE).strip("\n")
        text = re.sub(r"(?<=\S) {12,}(?=\S)", " " * 6, text)
        links = [*map(paper_link, source.papers), *(f"[its authors' code]({address})" for address in source.code)]
        links.append(f"[{source.file}]({SOURCE}/src/{source.file})")
        parts += [f"## `{name}`", f"{what[:1].upper()}{what[1:]}", text, " · ".join(links)]
    return "\n\n".join(parts)


def python_page() -> str:
    """The public names of the package, functions first."""
    names = sorted(
        (name for name in lengthwise.__all__ if not name.startswith("_")), key=lambda name: (name[0].isupper(), name)
    )
    parts = ["# Python", "`import lengthwise as lw` gives these names; importing changes nothing in torch or transformers."]
    for name in names:
        home = getattr(lengthwise, name)
        parts.append(f"::: {home.__module__}.{home.__qualname__}")
    return "\n\n".join(parts)


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown with its outputs, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for kind, content in _outputs(cell["outputs"]):
            if kind == "text":
                parts.append(f"```text\n{content}\n```")
            else:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(content)
                parts.append(f"![A figure of the notebook]({name})")
    parts.append(f"[The notebook itself]({SOURCE}/notebooks/{path.name})")
    return "\n\n".join(parts), pictures


def _outputs(outputs: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for output in outputs:
        data = output.get("data", {})
        if output.get("name") == "stderr":
            continue
        if "image/png" in data:
            yield "picture", data["image/png"]
        elif text := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
            yield "text", text
