"""A line of text becomes methods, or an error that says what to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lengthwise.errors import BadInput
from lengthwise.methods.spec import Spec, methods_of, parse_spec, short_name
from lengthwise.methods.temperature.aligned import Alignment, Calibrated
from lengthwise.methods.temperature.constant import Constant
from lengthwise.methods.temperature.infoscale import InfoScale
from lengthwise.methods.temperature.llama4 import Llama4
from lengthwise.methods.temperature.log import Log
from lengthwise.methods.temperature.log_length import LogLength
from lengthwise.methods.temperature.yarn_factor import YarnFactor

FACTS = {"train_length": 512, "key_size": 64}


def saved(path: Path) -> Alignment:
    alignment = Alignment("pmax", "model", 64, 0.1, (Calibrated(128, 0.8, 0.1, 1),), {"family": "t5"})
    alignment.save(path)
    return alignment


def test_a_spec_is_read_into_names_options_and_what_of_a_prompt_is_read() -> None:
    spec = parse_spec(" yarn:factor=8, base = 10 + @a=b.json ")
    assert spec.text == "yarn:factor=8, base = 10 + @a=b.json"
    assert [(term.name, term.options) for term in spec.terms] == [
        ("yarn", ("factor=8", "base = 10")),
        ("aligned", ("path=a=b.json",)),
    ]
    assert spec.reads == "whole"
    assert parse_spec("none") == Spec("none", ())
    assert parse_spec("truncate") == Spec("truncate", (), "end")
    assert parse_spec(" hedge ") == parse_spec("hedge + none") == Spec("hedge+none", (), "both")
    hedged = parse_spec("hedge+log")
    assert (hedged.text, hedged.names, hedged.reads) == ("hedge+log", ("log",), "both")


@pytest.mark.parametrize(
    ("text", "names", "options"),
    [
        ("mine.py:Mine", ["mine.py:Mine"], [()]),
        ("mine.py:Mine:a=1, b=2+log", ["mine.py:Mine", "log"], [("a=1", "b=2"), ()]),
        ("log + ./c++/a:b.py:Mine : a=1 + window", ["log", "./c++/a:b.py:Mine", "window"], [(), ("a=1",), ()]),
        ("hedge+/a b/m.py:Mine+x.py:Other", ["/a b/m.py:Mine", "x.py:Other"], [(), ()]),
        ("clex:weights=/a/b.py:C", ["clex"], [("weights=/a/b.py:C",)]),
    ],
)
def test_the_path_of_a_file_may_hold_what_else_divides_a_spec(text: str, names: list[str], options: list[tuple[str]]) -> None:
    spec = parse_spec(text)
    assert (list(spec.names), [term.options for term in spec.terms]) == (names, options)
    assert all(parse_spec(term.text).terms == (term,) for term in spec.terms)
    assert spec.terms[0].with_option("a", 3).name == names[0]


def test_a_file_without_a_class_says_what_to_write() -> None:
    with pytest.raises(BadInput, match=r"'mine.py' is a file; say which class of it is the method: mine.py:CLASS"):
        methods_of("mine.py", FACTS)


def test_an_alignment_without_its_sign_says_what_to_write() -> None:
    with pytest.raises(BadInput, match=r"'runs/recipe.json' is a file; an alignment or a recipe is written @runs/recipe.json"):
        methods_of("log+runs/recipe.json", FACTS)


def test_a_parsed_spec_serves_as_its_text_does() -> None:
    assert methods_of(parse_spec("log+constant:tau=2"), FACTS) == methods_of("log+constant:tau=2", FACTS)


def test_an_option_is_set_in_the_place_of_the_old_one() -> None:
    (term,) = parse_spec("clex:weights = old,steps=4").terms
    assert term.with_option("weights", "new").text == "clex:steps=4,weights=new"


def test_files_are_called_without_their_folders() -> None:
    assert short_name("yarn:factor=2+@runs/a/alignment.json") == "yarn:factor=2+@alignment.json"
    assert short_name("./a+b/m.py:Mine:x=1+log") == "m.py:Mine:x=1+log"


def test_none_is_no_method() -> None:
    assert methods_of("none", FACTS) == []
    assert methods_of(" none ", {}) == []


def test_a_name_takes_the_facts_of_the_model_that_it_needs() -> None:
    assert methods_of("log_length", FACTS) == [LogLength()]
    assert methods_of("log", FACTS) == [Log(train_length=512)]
    assert methods_of("infoscale", FACTS) == [InfoScale(train_length=512, key_size=64)]


def test_what_the_spec_says_goes_before_the_facts() -> None:
    assert methods_of("infoscale:train_length=64", FACTS) == [InfoScale(train_length=64, key_size=64)]


def test_options_have_the_types_of_the_method() -> None:
    (method,) = methods_of("llama4:beta=2,floor_length=16", FACTS)
    assert method == Llama4(beta=2.0, floor_length=16)
    assert isinstance(method, Llama4)
    assert type(method.beta) is float
    assert type(method.floor_length) is int


def test_an_option_that_may_be_absent_is_a_number_when_given() -> None:
    assert methods_of("yarn_factor:factor=4", FACTS) == [YarnFactor(train_length=512, factor=4.0)]
    assert methods_of("yarn_factor", FACTS) == [YarnFactor(train_length=512, factor=None)]


def test_spaces_around_options_do_not_matter() -> None:
    assert methods_of(" log:train_length = 64 , clamp = false ", FACTS) == [Log(64, clamp=False)]


@pytest.mark.parametrize(("text", "clamp"), [("true", True), ("True", True), ("false", False), ("FALSE", False)])
def test_booleans_are_true_or_false(text: str, clamp: bool) -> None:
    assert methods_of(f"log:clamp={text}", FACTS) == [Log(512, clamp=clamp)]


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_boolean_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=f"method 'log': clamp={text} is not true or false"):
        methods_of(f"log:clamp={text}", FACTS)


def test_methods_joined_by_plus_keep_their_order() -> None:
    assert methods_of("constant:tau=0.5 + log", FACTS) == [Constant(0.5), Log(512)]


@pytest.mark.parametrize("spec", ["none+log", "log + none", "log+none+constant:tau=0.5", "none+none"])
def test_the_plain_model_is_no_part_of_a_sum(spec: str) -> None:
    with pytest.raises(BadInput, match=r"^'.*': none is the plain model and cannot be joined with a method; leave none out$"):
        methods_of(spec, FACTS)


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^method 'constant' is given tau twice$"):
        methods_of("constant:tau=.5,tau=.6", FACTS)


def test_an_alignment_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tau.json"
    alignment = saved(path)
    assert methods_of(f"@{path}", FACTS) == [alignment]
    assert methods_of(f"aligned:path={path}", FACTS) == [alignment]
    assert methods_of(f"log+@{path}", FACTS) == [Log(512), alignment]


def test_a_missing_alignment_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no alignment file .*gone\.json"):
        methods_of(f"@{tmp_path}/gone.json", FACTS)


def test_an_unknown_name_comes_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"no method 'infoscal' in 'log\+infoscal'; did you mean 'infoscale'\?"):
        methods_of("log+infoscal", FACTS)


def test_truncate_joins_no_method() -> None:
    with pytest.raises(BadInput, match=r"'log\+truncate': truncate is a baseline of its own \(for evaluate and reach\)"):
        methods_of("log+truncate", FACTS)


@pytest.mark.parametrize("spec", ["truncate", "hedge+log", "truncate:x=1", "log+hedge:x=1"])
def test_what_evaluate_and_reach_alone_know_is_said(spec: str) -> None:
    with pytest.raises(BadInput, match=f"'{re.escape(spec)}': truncate and hedge are for evaluate and reach"):
        methods_of(spec, FACTS)


@pytest.mark.parametrize("spec", ["zzz", "", "log+", "none:tau=1"])
def test_an_unknown_name_with_no_neighbour_points_to_the_list(spec: str) -> None:
    with pytest.raises(BadInput, match=r"no method '.*' in '.*'; `lengthwise methods` lists them"):
        methods_of(spec, FACTS)


@pytest.mark.parametrize("pair", ["colour=red", "clamp", "=3"])
def test_an_unknown_option_comes_with_the_known_ones(pair: str) -> None:
    with pytest.raises(BadInput, match=f"method 'log' has no option '{pair}'; its options are: train_length, clamp"):
        methods_of(f"log:{pair}", FACTS)


def test_a_method_without_options_says_so() -> None:
    with pytest.raises(BadInput, match="method 'log_length' has no option 's=1'; its options are: none"):
        methods_of("log_length:s=1", FACTS)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("log:train_length=many", "train_length=many is not a whole number"),
        ("log:train_length=1.5", r"train_length=1\.5 is not a whole number"),
        ("constant:tau=hot", "tau=hot is not a number"),
        ("yarn_factor:factor=", "factor= is not a number"),
    ],
)
def test_a_bad_number_is_named(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        methods_of(spec, FACTS)


def test_a_number_outside_its_range_is_refused_by_the_method() -> None:
    with pytest.raises(BadInput, match=r"constant needs tau > 0, not -1\.0"):
        methods_of("constant:tau=-1", FACTS)


@pytest.mark.parametrize(
    ("spec", "missing"),
    [("constant", "tau"), ("proposition1", "p_max"), ("proposition1:p_max=0.2", "sigma_train"), ("aligned", "path")],
)
def test_a_missing_argument_is_named_with_what_to_write(spec: str, missing: str) -> None:
    name = spec.partition(":")[0]
    with pytest.raises(BadInput, match=f"method '{name}' needs {missing}; write {name}:{missing}=\\.\\.\\."):
        methods_of(spec, FACTS)


def test_a_missing_fact_is_named_too() -> None:
    with pytest.raises(BadInput, match="method 'log' needs train_length; write log:train_length="):
        methods_of("log", {})
