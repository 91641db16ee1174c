"""One self-contained page of tables and figures, from sections that callers hand over; run directories' are made here."""

from lengthwise.report.page import Section as Section
from lengthwise.report.page import write_page as write_page
