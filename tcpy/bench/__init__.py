"""Speed beside other libraries: ``python -m tcpy bench``."""
