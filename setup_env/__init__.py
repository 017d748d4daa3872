"""The set-up behind ``make``: standard library only, and it runs on Python 3.8 and newer, so that an old Python gets an
explanation and not a syntax error.

In reading order: ``words`` (what it says, in both languages), ``pythons`` (finding a Python, making ``.venv``),
``packages`` (pip), ``__main__`` (the commands).
"""
