"""Words and sentences of each page of the documentation, held to limits.

    uv run python docs/words.py                # a line a page; exit status 1 above a limit
    uv run python docs/words.py --docstrings   # docstrings whose first words name no subject fail as well

How it counts:

- Pages are the README, the Markdown files below ``docs/``, and the text cells of the notebooks. Generated pages and
  copies of notebooks are not read.
- Words are what a reader reads as text: not the front matter, comments, code blocks, directive options or displayed
  formulas. A formula in a line and a piece of code between backticks are one word each; of a link its text counts.
- A table's row counts as text, unless half of its cells or more have no letters: then it is a row of numbers.
- Sentences end with ``.``, ``?`` or ``!`` before a space, or with the paragraph or list item. Headings and tables
  have none.
- A page is a proof, reference, benchmark data, or text: see `kind_of`. Proofs may be long; only text counts in the
  total.

A docstring names its subject early: see `has_subject`. The rule is a list of function words, not a grammar; it finds
most first lines that a reader has to decode, and passes some.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

# limits, in words
MOST_IN_ALL = 60_000
MOST_A_PAGE = 2_500  # but proofs
MOST_A_GUIDE = 1_200  # below how-to/
MOST_IN_README = 900
MOST_A_SENTENCE = 20  # on average over a page

# pages of which half or more is a proof
PROOFS = {"docs/explanation/network-privacy.md", "docs/explanation/posterior-mathematics.md"}
# pages of docs/benchmarks/ that are text; the others are tables made from data files
BENCHMARK_TEXT = {"docs/benchmarks/index.md", "docs/benchmarks/papers.md"}

ABBREVIATIONS = re.compile(
    r"\b(e\.g|i\.e|et al|vs|cf|Fig|Sec|Eq|Eqs|No|pp|p|approx|St|Dr)\.", re.IGNORECASE
)
END_OF_SENTENCE = re.compile(r"[.!?][\"'”’)*_]*\s+(?=[\"'“‘(*_`A-Z0-9])")


@dataclass(frozen=True)
class Page:
    name: str  # path below the root
    kind: str
    words: int
    sentences: int
    words_in_sentences: int

    @property
    def mean_sentence(self) -> float:
        """Mean number of words of a sentence."""
        return self.words_in_sentences / max(self.sentences, 1)

    def faults(self) -> list[str]:
        """Return the limits that the page exceeds."""
        most = None if self.kind in ("proof", "benchmark data") else MOST_A_PAGE
        if self.name.startswith("docs/how-to/"):
            most = MOST_A_GUIDE
        elif self.name == "README.md":
            most = MOST_IN_README
        found = []
        if most is not None and self.words > most:
            found.append(f"{self.words:,} words, at most {most:,} allowed")
        if self.kind != "benchmark data" and round(self.mean_sentence, 1) > MOST_A_SENTENCE:
            found.append(
                f"{self.mean_sentence:.1f} words a sentence, at most {MOST_A_SENTENCE} allowed"
            )
        return found


def kind_of(name: str) -> str:
    """Return the kind of a page: ``proof``, ``reference``, ``benchmark data`` or ``text``."""
    if name in PROOFS:
        return "proof"
    if name.startswith("docs/reference/"):
        return "reference"
    if name.startswith("docs/benchmarks/") and name not in BENCHMARK_TEXT:
        return "benchmark data"
    return "text"


def markdown_of(path: Path) -> str:
    """Return the Markdown of a page, or of the text cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = [
        cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
    ]
    return "\n\n".join("".join(cell) for cell in cells)


def lines_of_text(markdown: str) -> Iterator[str]:
    """Yield the lines that a reader reads as text, and an empty line in place of each block that is none."""
    text = re.sub(r"\A---\n.*?^---$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*\$\$.*?\$\$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    fence, after_directive = "", False
    for line in text.splitlines():
        stripped = line.strip()
        if opened := re.match(r"(`{3,}|~{3,})", stripped):
            if not fence:
                fence = opened[1]
            elif stripped.startswith(fence) and stripped.strip("`~") == "":
                fence = ""
            yield ""
        elif fence:
            continue
        elif stripped.startswith(":::"):
            # a directive: its argument is a title, its content text
            argument = stripped.lstrip(":").partition("}")[2].strip()
            is_grid = "{grid}" in stripped  # whose argument is a number of columns
            yield "" if is_grid else argument
            yield ""
            after_directive = True
        elif after_directive and re.match(r":[\w-]+:", stripped):
            continue
        else:
            after_directive = False
            yield line


def plain(text: str) -> str:
    """Return text without the marks of Markdown."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", text)  # pictures
    text = re.sub(r"\{[\w:-]+\}`[^`]*`", "role", text)
    text = re.sub(r"(`+)(?:(?!\1).)+\1", "code", text)
    text = re.sub(r"\$[^$\n]+\$", "formula", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"<[^>\n]+>|https?://\S+", " ", text)


def words_of(text: str) -> int:
    """Return the number of words: pieces between spaces that have a letter or a digit."""
    return sum(bool(re.search(r"\w", piece)) for piece in plain(text).split())


def is_of_numbers(row: str) -> bool:
    """Return True if half of a table row's cells or more have no letters."""
    cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
    cells = [cell for cell in cells if cell]
    return 2 * sum(not re.search(r"[A-Za-z]", cell) for cell in cells) >= len(cells)


def count(markdown: str, name: str = "") -> Page:
    """Count the words and sentences of a page."""
    words = sentences = in_sentences = 0
    paragraphs: list[str] = [""]
    for line in lines_of_text(markdown):
        stripped = line.strip()
        if stripped.startswith("|"):
            words += 0 if is_of_numbers(stripped) else words_of(stripped)
            paragraphs.append("")
        elif re.match(r"#+\s", stripped):
            words += words_of(stripped)
            paragraphs.append("")
        elif not stripped:
            paragraphs.append("")
        else:
            item = re.match(r"([-*+]|\d+[.)])\s+|:\s+|>\s*", stripped)
            if item:
                paragraphs.append("")
                stripped = stripped[item.end() :]
            paragraphs[-1] += " " + stripped
    for paragraph in paragraphs:
        text = ABBREVIATIONS.sub(lambda found: found[1], plain(paragraph)).strip()
        for sentence in END_OF_SENTENCE.split(text):
            if number := words_of(sentence):
                words, in_sentences, sentences = (
                    words + number,
                    in_sentences + number,
                    sentences + 1,
                )
    return Page(name, kind_of(name), words, sentences, in_sentences)


def pages(root: Path) -> list[Page]:
    """Count every page."""
    skipped = {"_build", "_templates", "generated", ".jupyter_cache", "jupyter_execute"}
    paths = [
        path
        for path in sorted((root / "docs").rglob("*.md"))
        if not skipped & set(path.relative_to(root).parts)
    ]
    paths = [root / "README.md", *paths, *sorted((root / "notebooks").glob("*.ipynb"))]
    return [
        count(markdown_of(path), path.relative_to(root).as_posix())
        for path in paths
        if path.exists()
    ]


# --- docstrings
def word_set(text: str) -> set[str]:
    return set(text.split())


OPENERS = word_set(
    """
    as how he it its nothing she so such that their them these they this those what whatever when where
    whether which who whoever whom whose why
    """
)  # a first word that leaves the reader looking for the subject
FUNCTION_WORDS = word_set(
    """
    a about above across after again against all almost alone along already also although always am an and
    another any are as at back be because been before being below beneath between both but by can could did do
    does done down each either else enough even ever every few first for from further given had has have
    having here how i if in inside instead into is it its itself just known last least less like made many may
    might more most much must near neither never no none nor not now of off often on once one ones only onto
    or other others otherwise our out over own per perhaps quite rather said same several shall should since
    so some still such taken than that the their them themselves then there these they this those though
    through thus to together told too toward towards under unless until up upon used very was we were what
    whatever when where whether which while who whom whose why will with within without would yet you your two
    three four five six seven eight nine ten
    """
)
VERBS = word_set(
    """
    accept add adds adjust allow answer apply ask assign avoid begin bring build call change charge check
    choose clip close code collect come compare compute convert copy cost count cut decide declare define
    describe divide draw drop end enter evaluate exclude execute expand fill find fit fold follow forget form
    format gather get give go group hand hold include initialize insert join keep label leave let limit list
    load look make map mark match mean measure merge move name need open order parse pass pick place plan
    point prepare print project protect put raise reach read record reduce refuse register release remove
    repeat replace report reset resolve restore return run save say scale see select send set shift show
    sample simulate solve sort split spend stand start state step stop store sum take tell test touch try turn
    update use validate walk warn weigh work write yield
    """
)  # as a first word; anywhere else most of these are nouns
FIRST_WORDS = 4  # in which a noun must appear: "Return the mean cost"


def has_subject(first_line: str) -> bool:
    """Return True if the first words of a docstring name what it is about.

    They do not where the line opens with a pronoun or a question word, or where its first four words hold nothing but
    function words, adverbs and an imperative such as "Return". A name between backticks, `True` and `None` are nouns.
    """
    words = re.findall(r"``?[^`]+``?|:\w+:`[^`]+`|[\w’'-]+", first_line)
    if not words:
        return False
    if words[0].lower() in OPENERS:
        return False
    for position, word in enumerate(words[:FIRST_WORDS]):
        plain_word = word.lower()
        if word.startswith(("`", ":")) or word in ("True", "False", "None"):
            return True
        if (
            plain_word in FUNCTION_WORDS
            or plain_word.endswith("ly")
            or re.fullmatch(r"[\d.]+", plain_word)
        ):
            continue
        if position == 0 and plain_word in VERBS and words[1:2] != ["of"]:
            continue
        return True
    return False


def docstrings(root: Path) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and first line of every docstring in the package."""
    for path in sorted((root / "bayesprivmrf").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None:
                    line = node.body[0].lineno
                    yield path.relative_to(root).as_posix(), line, text.strip().partition("\n")[0]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Count the words and sentences of the documentation."
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout, by default this one")
    parser.add_argument(
        "--docstrings", action="store_true", help="fail for docstrings without a subject"
    )
    asked = parser.parse_args(arguments)

    found, faults = pages(asked.root), []
    print(f"{'page':58}{'kind':16}{'words':>7}{'sentences':>11}{'mean':>7}")
    for page in found:
        print(
            f"{page.name:58}{page.kind:16}{page.words:7,}{page.sentences:11,}{page.mean_sentence:7.1f}"
        )
        faults += [f"{page.name}: {fault}" for fault in page.faults()]
    total = sum(page.words for page in found if page.kind == "text")
    print(f"{'in all, without proofs, reference and benchmark data':74}{total:7,}")
    if total > MOST_IN_ALL:
        faults.append(f"all pages: {total:,} words, at most {MOST_IN_ALL:,} allowed")

    lines = [*docstrings(asked.root)]
    without = [each for each in lines if not has_subject(each[2])]
    print(
        f"\n{len(without):,} of {len(lines):,} docstrings name no subject in their first {FIRST_WORDS} words"
    )
    for path, line, text in without:
        print(f"  {path}:{line}: {text}")
    if asked.docstrings:
        faults += [f"{path}:{line}: the docstring names no subject" for path, line, _ in without]

    if faults:
        print("\nabove the limits:", *faults, sep="\n  ", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
