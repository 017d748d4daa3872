"""The checks of each lesson: ``lNN.py`` belongs to ``notebooks/src/NN_topic.md`` and is found by its number."""
