"""The parts of ``notebooks/build.py``.

Reading order: source, markdown, pairs, bengali, terms, lint, editions, execute, index, committed.
"""
