"""What a user gets from an index besides code: type marks, a citation of this version, links that agree."""

import tomllib
from pathlib import Path

import yaml

import lengthwise

ROOT = Path(__file__).parents[1]


def test_type_checkers_are_told_that_the_package_is_typed():
    assert (Path(lengthwise.__file__).parent / "py.typed").is_file()


def test_the_citation_is_of_this_version_and_names_the_three_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == lengthwise.__version__
    assert [paper["url"].rsplit("/")[-1] for paper in citation["references"]] == ["2311.00684", "2506.11769", "2501.08570"]
    assert citation["repository-code"] == _project()["urls"]["Source"]


def test_a_source_archive_holds_the_package_without_experiments_tests_and_benchmarks():
    sdist = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    assert all((ROOT / path.lstrip("/")).exists() for path in sdist["include"])
    assert not {"/experiments", "/tests", "/benchmarks", "/docs"} & set(sdist["include"])


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
