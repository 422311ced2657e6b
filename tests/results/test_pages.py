"""The pages are those that the files make, and what they say about presets and models is so."""

import json
import re

import pytest

from tools.results.pages import FILLED, MINUTES, PLACE, mult_adds, pages, stored, write_pages
from tools.results.runs import Results

LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")


@pytest.fixture(scope="module")
def root(pytestconfig):
    return pytestconfig.rootpath


def test_the_pages_of_this_repository_are_up_to_date(root):
    for path, content in pages(root).items():
        assert path.read_text() == content, f"{path.name}: run python -m tools.results"


def test_every_page_of_the_list_has_a_place(root):
    for name in FILLED:
        assert PLACE.search((root / name).read_text()), name


@pytest.mark.parametrize("name", ["RESULTS.md", f"results/{MINUTES}"])
def test_links_lead_to_files(name, root):
    page = root / name
    for link in LINK.findall(page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def test_every_run_is_explained_on_the_page(root):
    page = (root / "RESULTS.md").read_text()
    for name in Results.read(root / "results").runs:
        row = re.sub(r"-seed\d$", "", name)
        assert any(text in page for text in (f"`{name}`", f"/{row}.json")), name


def test_stored_models_are_those_of_the_results_and_small(root):
    runs = Results.read(root / "results").runs
    sizes = {name: run["stored"]["bytes"] for name, run in runs.items() if "stored" in run}
    folders = (root / "results/models").iterdir()
    found = {f.name: sum(file.stat().st_size for file in f.iterdir()) for f in folders}
    assert found == sizes and max(found.values()) <= 8 * 2**20


def test_places_are_filled_once_and_the_rest_is_left_alone(make, tmp_path):
    (tmp_path / "results/ptb").mkdir(parents=True)
    (tmp_path / "results/other.json").write_text('{"what": "something else"}')
    readme = tmp_path / "README.md"
    text = "before\n<!-- {0} -->\nold\n<!-- end of {0} -->\nafter\n"
    readme.write_text(text.format("results") + text.format("cpu summary"))
    run = make(small=(80.5, 77.5, 6_150_000))
    (tmp_path / "results/ptb/ptb-paper.json").write_text(json.dumps(run))
    assert readme in write_pages(tmp_path) and write_pages(tmp_path) == []
    page = readme.read_text()
    assert page.startswith("before\n<!-- results -->\n") and page.endswith("\nafter\n")
    assert "old" not in page and "| 77.50 |" in page and page.count("Not measured yet.") == 1


def test_a_place_that_has_no_figures_is_an_error(tmp_path):
    (tmp_path / "README.md").write_text("<!-- nothing -->\n<!-- end of nothing -->")
    with pytest.raises(KeyError):
        pages(tmp_path)


def test_mult_adds_stand_beside_those_of_the_paper(make):
    run = make(small=(80.5, 77.5, 6_150_000))
    run["models"]["small"]["macs"] = 3_654_132
    sentence = mult_adds(Results({"ptb-paper": run}))
    assert re.findall(r"[\d.]+M?", sentence) == ["51.0M", "3.65M", "14.0", "3.65M", "14.0"]


def test_stored_models_are_listed(make):
    model = {"precision": "int8", "bytes": 6_400_000, "weights": 6_150_000}
    model |= {"valid_perplexity": 80.55, "test_perplexity": 77.56}
    table = stored(Results({"ptb-paper": make(stored=model, small=(80.5, 77.5, 6_150_000))}))
    assert "| int8 | 6.10 MiB | 6.15M | 80.55, 77.56 |" in table
