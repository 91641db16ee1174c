"""Our own wordings of the tasks, in many forms, so that a model learns the task and not one sentence.

The package's own wordings stand first in each list. Slots are in braces.
"""

from __future__ import annotations

from dataclasses import dataclass

from lengthwise.tasks import line, passkey, topic

# Passkey: {thing} is what is hidden, {key} its number
THINGS = ("pass key", "secret number", "access code", "locker number", "password", "magic number", "safe code", "ticket number")
PASSKEY_INTRODUCTIONS = (
    passkey.INTRODUCTION,
    "One number matters in what follows. Keep it in mind until the end.",
    "Somewhere in this long text a number is given. Look for it; the rest is not important.",
    "Read on with care. A number will be told to you once, and you will be asked about it.",
    "There is a hidden fact in the text. Memorise it, for I shall ask about it later.",
    "",
)
NEEDLES = (
    "The {thing} is {key}. Remember it. {key} is the {thing}.",
    "The {thing} is {key}. Do not forget it. {key} is the {thing}.",
    "Note that the {thing} is {key}. Again, {key} is the {thing}.",
    "Remember that {key} is the {thing}. The {thing} is {key}.",
    "The {thing} is {key}.",
)
PASSKEY_QUESTIONS = (
    "What is the {thing}? The {thing} is",
    "What is the {thing}?",
    "Which number is the {thing}? Answer:",
    "Now tell me the {thing}.",
    "What was the {thing} in the text above? The {thing} was",
)
JUNK = (
    "The lake is calm.", "A cart rolls by.", "Leaves fall from the oak.", "The kettle is on.", "We walk on and on.",
    "It is noon again.", "The road turns left.", "A dog sleeps in the shade.", "The wind comes from the west.",
    "Bread is on the table.", "Nothing happens here.", "The clock ticks.", "Rain falls on the roof.",
    "Sheep stand on the hill.", "The lamp is lit.", "Here it starts.", "And so it goes.", "The door is open.",
    "A boat drifts past.", "Snow covers the field.", "The moon is white.", "Birds sit on the wire.",
    "Round and round we go.", "The coat is brown.", "One day follows another.", "The well is deep.",
    "Dust lies on the shelf.", "The fire burns low.", "A bell rings far away.", "Then it all begins anew.",
)  # fmt: skip


@dataclass(frozen=True)
class Lines:
    """One way to write a record of lines: `entry` and `question` with {name} and {number}."""

    introduction: str
    entry: str
    question: str


ENTRY = "\nline {name}: REGISTER_CONTENT is <{number}>"
LINES = (
    Lines(line.INTRODUCTION, ENTRY, "\nWhich number is on line {name}? The number of line {name} is"),
    Lines("Remember these registers.", "\nRegister {name} holds {number}.", "\nWhat does register {name} hold?"),
    Lines("A list of boxes and what they weigh.", "\nThe box {name} weighs {number} grams.", "\nHow heavy is the box {name}?"),
    Lines("Record:", ENTRY, "\nTell me the number in line {name}."),
    Lines(
        "Here is a table of names and values.", "\n| {name}: {number}", "\nWhat is the value of {name}? The value of {name} is"
    ),
    Lines("Each key below has a value.", "\nkey {name} = {number}", "\nkey {name} ="),
)
SHORT_LINES = LINES[-2:]


@dataclass(frozen=True)
class Topics:
    """One way to write a talk on several topics: `opening`, `closing` with {label}, a turn with {sentence}."""

    introduction: str  # with {count} and {which}
    opening: str
    turns: tuple[str, ...]
    closings: tuple[str, ...]
    question: str  # with {which}


TOPICS = (
    Topics(
        topic.INTRODUCTION,
        f"\n{topic.OPENING}",
        tuple(f"\n{turn}" for turn in topic.TURNS),
        ("",),
        f"\n{topic.QUESTION}",
    ),
    Topics(
        "Below is a talk between two people about {count} subjects, one after the other.",
        "\nANNA: Let us talk about {label}.",
        ("\nBEN: {sentence}", "\nANNA: {sentence}"),
        ("\nANNA: So much for {label}.", ""),
        "\nWhat was the {which} subject they talked about? The {which} subject was",
    ),
    Topics(
        "Here is the record of a long chat. Remember its topics.",
        "\nUser: I want to chat about {label}.",
        ("\nAssistant: {sentence}", "\nUser: {sentence}"),
        ("\nUser: Thank you, that was all about {label}.", "\nUser: Now something else.", ""),
        "\nWhich topic came {which}? Give its name only.",
    ),
    Topics(
        "Minutes of a meeting with {count} items.",
        "\nThe next item was {label}.",
        (" {sentence}",),
        ("",),
        "\nName the {which} item of the meeting.",
    ),
    Topics(
        "",
        "\nTopic: {label}.",
        ("\n{sentence}",),
        ("",),
        "\nThe {which} topic was",
    ),
)
LONGEVAL_OPENING = "USER: I would like to discuss the topic of {label}."
LONGEVAL_TURNS = (" \n ASSISTANT: {sentence}", " \n USER: {sentence}")

CHAT = (
    "Sure, I would be glad to talk about that with you!", "What would you like to know about it?",
    "That is a good question.", "I have read a little about it.", "That is really interesting.",
    "There are many sides to it.", "Could you give an example?", "One example is what people do at home every day.",
    "I had not thought of it in that way.", "It depends on whom you ask.", "Experts do not agree on this point.",
    "Some studies show a small effect, others show none.", "It can be hard at the beginning.",
    "What are some of the main points?", "First of all, it takes time and patience.", "It is also a matter of money.",
    "In addition, the community plays an important part.", "For example, many schools have tried it.", "How did it begin?",
    "It began a long time ago, and nobody knows exactly where.", "Are there any risks?",
    "Yes, there are a few, but they are small.", "However, it is important to be careful.", "I see what you mean.",
    "Thank you, that helps me a lot.", "You are welcome!", "Overall, it has changed the way we live.",
    "Can you tell me more about the costs?", "They have fallen over the last years.", "That makes sense to me.",
    "It sounds like there is much to discover.", "Yes, that is definitely true.",
)  # fmt: skip
ASPECTS = (
    *topic.ASPECTS, "the role of {a} in {b}", "the impact of {a} on {b}", "the effects of {a} on {b}",
    "{a} as part of {b}", "{a} and {b}", "what {a} means for {b}", "{a}",
)  # fmt: skip
SUBJECTS = topic.SUBJECTS


def labels() -> list[str]:
    """Every aspect of every subject, or of two different ones."""
    made = {form.format(a=a, b=b) for form in ASPECTS for a in SUBJECTS for b in SUBJECTS if a != b}
    return sorted(made)


def everything() -> list[str]:
    """All fixed text of the tasks, for the vocabulary."""
    lines = [part for one in LINES for part in (one.introduction, one.entry, one.question)]
    topics = [part for one in TOPICS for part in (one.introduction, one.opening, *one.turns, *one.closings, one.question)]
    frame = [LONGEVAL_OPENING, *LONGEVAL_TURNS]
    return [
        *PASSKEY_INTRODUCTIONS,
        *NEEDLES,
        *PASSKEY_QUESTIONS,
        *THINGS,
        *JUNK,
        *lines,
        *topics,
        *frame,
        *CHAT,
        *ASPECTS,
        *SUBJECTS,
    ]
