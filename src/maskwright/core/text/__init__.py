"""Numbers, Markdown and characters in text that people read."""
