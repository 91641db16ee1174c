"""What tasks share: text, code, stories and documents for prompts, files of cases, and fitting a prompt to a length."""
