"""A hook for MkDocs: pages may link to files of the repository that lie outside docs/.

Links in Markdown go from file to file, as code hosts follow them: `../RESULTS.md` in the guide,
`docs/guide.md` in the README. The root of the site is docs/, so this hook adds the Markdown files
of the repository's root as pages, copies every other file that a page links to, and rewrites the
links. The README becomes the home page. A link to a folder becomes plain text, because the site
has no folder listings.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {  # in the repository: on the site
    "README.md": "index.md",
    "RESULTS.md": "results.md",
    "results/minutes.md": "minutes.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
WIDE = ("results.md", "minutes.md")  # their tables need the room of the table of contents
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root and every file outside docs/ that a page links to."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for page in list(files.documentation_pages()):
        text = FENCE.sub("", Path(page.abs_src_path or "").read_text(encoding="utf-8"))
        for link in LINK.finditer(text):
            path = repository_path(page.src_uri, link[2])
            uri = site_path(path)
            if uri.startswith("files/") and (ROOT / path).is_file() and uri not in files.src_uris:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links between files of the repository for the site."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    folder = posixpath.dirname(page.file.src_uri) or "."

    def moved(link: re.Match[str]) -> str:
        path = repository_path(page.file.src_uri, link[2])
        if (ROOT / path).is_dir():
            return link[1]
        return f"[{link[1]}]({posixpath.relpath(site_path(path), folder)}{link[3] or ''})"

    pieces = re.split(f"({FENCE.pattern})", markdown, flags=FENCE.flags)
    pieces[::2] = [LINK.sub(moved, text) for text in pieces[::2]]  # the others are code
    return "".join(pieces)


def repository_path(uri: str, link: str) -> str:
    """Return where in the repository a link on a page of the site leads."""
    page = {on_site: name for name, on_site in PAGES.items()}.get(uri, f"docs/{uri}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(path: str) -> str:
    """Return where on the site a file of the repository is."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PAGES.get(path, f"files/{path}")
