"""Check the built site: links, pictures, output below code, stored notebooks, and what search must find.

    uv run --group docs python docs/check_site.py BUILT_SITE

Sphinx itself checks the links between sources with ``-W``. This script reads the pages as they are served: links,
anchors, pictures and redirects of the built HTML, and Sphinx's search index. It also compares the outputs that are
stored in ``notebooks/`` with those of the build, which are beside the site in ``jupyter_execute/``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import defaultdict
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FEWEST_PICTURES = 30
WITH_OUTPUT = ("tutorials", "how-to", "gallery.html")  # pages whose code shows what it gives

# what readers search for, and a page that must be among the results
SEARCHES = {
    "missing": "how-to/weights-missing-covariates",
    "weights": "how-to/weights-missing-covariates",
    "panel": "tutorials/05_panels_and_chains",
    "event log": "tutorials/06_event_logs",
    "posterior predictive": "tutorials/02_posterior",
    "noisy tables": "how-to/read-noisy-tables",
    "confidence interval": "how-to/conditional-probabilities",
    "p-value": "how-to/conditional-probabilities",
    "odds ratio": "how-to/conditional-probabilities",
    "risk difference": "how-to/conditional-probabilities",
    "subgroup": "how-to/many-areas",
    "by group": "how-to/many-areas",
}
# script of the site that sets the order of search results; without it the reference comes before the guides
SEARCH_ORDER = Path(__file__).parent / "_static" / "search_order.js"
# largest difference of two outputs of one cell: a unit of the third digit, to which tables are rounded
RELATIVE = 5e-3
ABSOLUTE = 1.5e-3


class PageParser(HTMLParser):
    """Links, anchors and pictures of a page, and its code cells: whether each has an output."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.pictures: list[str] = []
        self.cells: list[bool] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        classes = (found.get("class") or "").split()
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "img" and found.get("src"):
            self.pictures.append(found["src"])
        self.anchors.update(found[key] for key in ("id", "name") if found.get(key))
        if "cell" in classes:
            self.cells.append(False)
        if "cell_output" in classes and self.cells:
            self.cells[-1] = True


class Site:
    """A built site, and its faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    @cached_property
    def pages(self) -> dict[Path, PageParser]:
        """Every page that a reader sees; not the highlighted sources."""
        return {
            path: PageParser(path.read_text(encoding="utf-8"))
            for path in sorted(self.folder.rglob("*.html"))
            if not {"_static", "_sources", "_modules"} & set(path.relative_to(self.folder).parts)
        }

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def broken(self) -> list[str]:
        """Return the links, pictures and redirects that lead nowhere."""
        found = []
        for path, page in self.pages.items():
            moved = re.findall(
                r'http-equiv="refresh" content="0; url=([^"]+)"', path.read_text(encoding="utf-8")
            )
            for link in [*page.links, *page.pictures, *moved]:
                if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
                    continue
                address, _, anchor = link.partition("#")
                target = (
                    (path.parent / unquote(address.partition("?")[0])).resolve()
                    if address
                    else path
                )
                if not target.exists():
                    found.append(f"{self._name(path)}: {link} is not there")
                elif (
                    anchor
                    and target in self.pages
                    and unquote(anchor) not in self.pages[target].anchors
                ):
                    found.append(f"{self._name(path)}: {link} has no such anchor")
        return found

    def pictures(self) -> int:
        """Return the number of pictures of the pages' own, each page by itself."""
        return sum("_images/" in source for page in self.pages.values() for source in page.pictures)

    def without_output(self) -> list[str]:
        """Return pages whose code ends without output."""
        return [
            f"{self._name(path)}: its last code cell shows nothing"
            for path, page in self.pages.items()
            if self._name(path).startswith(WITH_OUTPUT) and page.cells and not page.cells[-1]
        ]

    def with_paths(self) -> list[str]:
        """Return pages whose output names a place on the machine that built them."""
        places = re.compile(r"site-packages|[/\\]ipykernel_\d")
        return [
            f"{self._name(path)}: an output names a folder of the machine"
            for path in self.pages
            if places.search(path.read_text(encoding="utf-8"))
        ]

    def not_found(self) -> list[str]:
        """Return what search does not find."""
        text = (self.folder / "searchindex.js").read_text(encoding="utf-8")
        index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
        pages_of = defaultdict(set)
        for terms in (index["terms"], index["titleterms"]):
            for term, places in terms.items():
                pages_of[term] |= {places} if isinstance(places, int) else set(places)
        found = []
        for query, page in SEARCHES.items():
            pages = set.intersection(*(pages_of[stem] for stem in stems_of(query)))
            if page not in {index["docnames"][number] for number in pages}:
                found.append(f"search for {query!r} does not find {page}")
        order = self.folder / "_static" / "language_data.js"
        if not order.exists() or SEARCH_ORDER.read_text() not in order.read_text(encoding="utf-8"):
            found.append("search does not list guides before the reference")
        return found


def old_outputs(executed: Path, stored: Path = NOTEBOOKS) -> list[str]:
    """Return a message for each cell whose stored output is not what execution gives.

    Words must be equal. Numbers may differ by a rounding error. They are not compared if the notebook names another
    kind of processor in its metadata (`processor`): its rounding errors move the chains of posteriors. Of pictures
    only the sizes are compared. Times and standard error are left out.
    """
    found = []
    for path in sorted(executed.glob("*.ipynb")):
        cells = _code_cells(stored / path.name)
        again = _code_cells(path)
        has_numbers = _made_here(stored / path.name)
        if len(cells) != len(again):
            found.append(f"{path.name}: its cells are not those of the site")
            continue
        found += [
            f"{path.name}: the output of code cell {place} is older than the site's; run the notebook and store it"
            for place, (old, new) in enumerate(zip(cells, again, strict=True), start=1)
            if not _is_alike(shown_text(old), shown_text(new), has_numbers)
        ]
    return found


def _code_cells(path: Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _made_here(path: Path) -> bool:
    """Return False if a notebook's outputs were made on another kind of processor, as its metadata say."""
    import llvmlite.binding

    metadata = json.loads(path.read_text(encoding="utf-8")).get("metadata", {})
    here = llvmlite.binding.get_host_cpu_name()
    return metadata.get("processor", here) == here


def shown_text(cell: dict) -> str:
    """Return the text that a cell shows, with the sizes of its pictures, and without lines that state a time."""
    parts = []
    for output in cell["outputs"]:
        if output.get("name") == "stderr":
            continue
        text = "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
        # a stream that reached the site in two pieces is executed as the whole, followed by its last piece
        is_repeated = output["output_type"] == "stream" and parts and parts[-1].endswith(text)
        if not is_repeated:
            parts.append(text)
    lines = "\n".join(parts).splitlines()
    return "\n".join(line for line in lines if line and not re.search(r"\bseconds?\b", line))


def _is_alike(old: str, new: str, has_numbers: bool) -> bool:
    """Return True if two texts have the same words, and numbers that differ by rounding errors if these count."""
    number = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
    if number.sub("#", old).split() != number.sub("#", new).split():
        return False
    if not has_numbers:
        return True
    pairs = [[float(text.replace(",", "")) for text in number.findall(one)] for one in (old, new)]
    return all(
        math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for a, b in zip(*pairs, strict=True)
    )


def stems_of(query: str) -> list[str]:
    """Return the forms of words that the search index holds, without the words that search leaves out."""
    from sphinx.search.en import SearchEnglish

    english = SearchEnglish({})
    # the site asks for no word of one or two letters
    words = [word for word in re.findall(r"\w+", query.lower()) if len(word) > 2]
    return [english.stem(word) for word in words if word not in english.stopwords]


def main(folder: Path) -> int:
    site = Site(folder)
    faults = [*site.broken(), *site.without_output(), *site.with_paths(), *site.not_found()]
    faults += old_outputs(folder.resolve().parent / "jupyter_execute" / "tutorials")
    if site.pictures() < FEWEST_PICTURES:
        faults.append(f"{site.pictures()} pictures, at least {FEWEST_PICTURES} wanted")
    print(
        f"{len(site.pages)} pages, {site.pictures()} pictures, {len(faults)} faults",
        *faults,
        sep="\n  ",
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
