"""The parts of ``notebooks/build.py``, in reading order: source, bengali, terms, pairs, lint, editions, execute, index."""
