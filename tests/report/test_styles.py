"""What a method looks like."""

from __future__ import annotations

from lengthwise.report.styles import method_styles


def test_the_plain_model_and_truncation_have_colours_of_their_own():
    styles = method_styles(["log", "none", "truncate", "infoscale"])
    assert {spec: style.colour for spec, style in styles.items()} == {
        "log": "c0",
        "none": "none",
        "truncate": "truncate",
        "infoscale": "c1",
    }


def test_no_two_methods_look_the_same():
    styles = method_styles([f"constant:tau=0.{k}" for k in range(1, 10)] + ["none", "truncate"])
    assert len({(style.colour, style.marker, style.dashed) for style in styles.values()}) == 11


def test_an_alignment_goes_by_its_file_name():
    styles = method_styles(["yarn_factor+@runs/a/pmax.json", "@runs/b/head.json"])
    assert [style.name for style in styles.values()] == ["yarn_factor+@pmax.json", "@head.json"]


def test_two_files_of_the_same_name_keep_their_folders():
    styles = method_styles(["@a/x.json", "@b/x.json", "@b/y.json"])
    assert [style.name for style in styles.values()] == ["@a/x.json", "@b/x.json", "@y.json"]
