"""The parts of ``notebooks/build.py``.

Reading order: grading, source, markdown, pairs, bengali, terms, leaks, lint, editions, widget_state, execute,
index, committed.
"""
