"""A method of a user's own that cannot work is refused in one line, before any model."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.errors import BadInput
from lengthwise.methods.dry_run import check_functions
from lengthwise.methods.spec import check_spec, methods_of
from tests.helpers.own_code import METHOD
from tests.models.test_extend import METHODS

FACTS = {"train_length": 64, "key_size": 16, "rotary_size": 16, "layers": 2, "heads": 4, "key_heads": 2}


def refusal(folder: Path, body: str, options: str = "") -> str:
    """What is said against a class with these lines in it."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "mine.py").write_text(f"import torch; from lengthwise.attention import Part\nclass Mine:\n{lines}")
    with pytest.raises(BadInput) as error:
        methods_of(f"{folder}/mine.py:Mine{options}", FACTS)
    assert "\n" not in str(error.value)
    return str(error.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("inverse_temperature(self, n, layer): return n", "must return [1, 1, 6] (or [1, 4, 6], one g a head) in float32"),
        ("inverse_temperature(self, n, layer): return 2.0", "not a float"),
        ("inverse_temperature(self, n, layer): return n.float()[..., :3]", "not [1, 1, 3] in float32"),
        ("inverse_temperature(self, n): return n", "inverse_temperature does not work: "),
        ("inverse_temperature(self, n, layer): return n / self.x", "mine.py, line 3, in inverse_temperature: AttributeError"),
        ("inverse_temperature(self, n, layer): return -n.float()", "must return numbers from 0 on, not [-1.0, -2.0, "),
        ("inverse_temperature(self, n, layer): return n / (n - 1)", "must return numbers from 0 on, not [inf, 2.0, "),
        ("frequencies(self, own, length): return own / 0", "must return finite numbers"),
        ("adaptive_sharpness(self, h, layer): return h.sum(-1)", "must return [1, 4, 6] in float32, not [1, 4]"),
        ("similarity(self, q, k): return q, k", "must return queries, keys and a factor, not a tuple"),
        ("similarity(self, q, k): return q, k[..., :2], 1.0", "not [1, 4, 6, 2] in float32"),
        ("similarity(self, q, k): return q, k, q", "a number as its factor, not [1, 4, 6, 8]"),
        ("frequencies(self, own, length): return own[:3]", "must return [8] in float32, not [3]"),
        ("distances(self, seen, whole): return [seen]", "must return a list of Part, not a list"),
        ("distances(self, seen, whole): return []", "must return a list of Part, not a list"),
        (
            "distances(self, seen, whole): return [Part(seen, seen.position[None, :2], seen.position[None])]",
            "positions of their queries, [1, 6], [1, key_heads, 6] or [1, key_heads or 1, 6, 8], not [1, 2]",
        ),
        (
            "distances(self, seen, whole): return [Part(seen, seen.position[None], seen.position[None, None, :, None])]",
            "positions of their keys, [1, 6], [1, key_heads, 6] or [1, key_heads or 1, 6, 8], not [1, 1, 6, 1]",
        ),
        (
            "distances(self, seen, whole): return [Part(seen, seen.position[None] / 0, seen.position[None])]",
            "must return parts with positions of their queries that are finite numbers",
        ),
        ("distance_bias(self, heads, radius): return torch.zeros(heads)", "must return [4, 13] in float32, not [4]"),
        ("narrow(self, whole): return whole.start", "must return a Visible of 6 rows and 6 keys, not [1, 6]"),
        ("segments(self, length): return [[(0, 99)]]", "must return lists of spans"),
    ],
)
def test_a_function_that_does_not_work_is_named(function: str, message: str, tmp_path: Path) -> None:
    said = refusal(tmp_path, f"def {function}")
    assert said.startswith(f"mine.py:Mine: {function.partition('(')[0]} ")
    assert message in said


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("fingerprint = 3", "fingerprint must be a dict, not a int"),
        ("sinks_and_window = 4, 60", "sinks_and_window must be a SinksAndWindow, not a tuple"),
        ("to_json = lambda self: {1}", "to_json does not work: TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_what_a_method_says_of_itself_is_looked_at_before_a_run(member: str, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, f"{member}\ndef narrow(self, whole): return whole") == f"mine.py:Mine: {message}"


@pytest.mark.parametrize(
    ("member", "message", "function"),
    [
        ("factor = 'many'", "factor does not work: ValueError: ", "frequencies(self, own, length): return own"),
        ("stock_rotation = 5", "stock_rotation must be a dict, not a int", "frequencies(self, own, length): return own"),
        ("max_distance = 'far'", "max_distance must be a int, ", "distance_bias(self, h, r): return torch.zeros(h, 2 * r + 1)"),
    ],
)
def test_what_a_rotation_or_a_bias_says_is_looked_at_and_what_others_call_so_is_not(
    member: str, message: str, function: str, tmp_path: Path
) -> None:
    assert refusal(tmp_path, f"{member}\ndef {function}").startswith(f"mine.py:Mine: {message}")
    (tmp_path / "other.py").write_text(f"class Mine:\n    {member}\n    def narrow(self, whole): return whole\n")
    assert methods_of(f"{tmp_path}/other.py:Mine", FACTS)


def test_a_class_that_fills_no_slot_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: pass\ndef made(): pass\n")
    with pytest.raises(BadInput, match="fills no slot: a method needs one of inverse_temperature, "):
        check_spec(f"{tmp_path}/mine.py:Mine")
    with pytest.raises(BadInput, match=r"mine.py:made is no class but a function; a method is a class"):
        check_spec(f"{tmp_path}/mine.py:made")


def test_what_a_class_says_against_its_arguments_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(METHOD)
    with pytest.raises(
        BadInput,
        match=r"Sharper' cannot be made: mine.py, line 18, in __post_init__: ValueError: power must be above 0, not nan$",
    ):
        methods_of(f"{tmp_path}/mine.py:Sharper:power=nan", FACTS)
    with pytest.raises(BadInput, match=r"power=much is not a number"):
        methods_of(f"{tmp_path}/mine.py:Sharper:power=much", FACTS)
    with pytest.raises(BadInput, match=r"has no option 'powr=2'; did you mean 'power'\?"):
        methods_of(f"{tmp_path}/mine.py:Sharper:powr=2", FACTS)
    made = refusal(tmp_path, "def __init__(self, x, /): pass\ndef narrow(self, w): return w", ":x=1")
    assert made.startswith("method 'mine.py:Mine' cannot be made: TypeError: ")
    assert refusal(tmp_path, "def __init__(self, x: Undefined): pass\ndef narrow(self, w): return w").startswith(
        "mine.py does not import: mine.py, line 3, in Mine: NameError"
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_methods_of_the_package_would_pass(method: str) -> None:
    for made in methods_of(method, FACTS):
        check_functions(method, made, FACTS)
