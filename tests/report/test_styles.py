"""What a method looks like."""

from __future__ import annotations

from lengthwise.report.styles import method_styles


def test_the_plain_model_and_truncation_have_colours_of_their_own():
    looks = method_styles(["log", "none", "truncate", "infoscale"])
    assert {spec: look.colour for spec, look in looks.items()} == {
        "log": "c0",
        "none": "none",
        "truncate": "truncate",
        "infoscale": "c1",
    }


def test_no_two_methods_look_the_same():
    looks = method_styles([f"constant:tau=0.{k}" for k in range(1, 10)] + ["none", "truncate"])
    assert len({(look.colour, look.marker, look.dashed) for look in looks.values()}) == 11


def test_an_alignment_goes_by_its_file_name():
    looks = method_styles(["yarn_factor+@runs/a/pmax.json", "@runs/b/head.json"])
    assert [look.name for look in looks.values()] == ["yarn_factor+@pmax.json", "@head.json"]


def test_two_files_of_the_same_name_keep_their_folders():
    looks = method_styles(["@a/x.json", "@b/x.json", "@b/y.json"])
    assert [look.name for look in looks.values()] == ["@a/x.json", "@b/x.json", "@y.json"]
