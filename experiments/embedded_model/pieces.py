"""Where the embedded model's tokenizer splits a text into words."""

from __future__ import annotations

import re

# GPT-2's splitting rule with every digit alone; the space before a number stays alone, too
SPLIT = re.compile(r"\d|'(?:[stmd]|re|ve|ll)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?=\d)|\s+(?!\S)|\s+")
