"""What tasks share: text, code, stories and documents for prompts, files of cases, and fitting a prompt to a length."""

from importlib import resources

from lengthwise.common.formats import parse_json


def word_lists(group: str, *names: str) -> list[list[str]]:
    """Lists of words and phrases for prompts, out of words.json."""
    words = parse_json((resources.files(__package__) / "words.json").read_text(encoding="ascii"))
    return [words[group][name] for name in names]
