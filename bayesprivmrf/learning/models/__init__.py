"""The models that a learning mechanism releases."""
