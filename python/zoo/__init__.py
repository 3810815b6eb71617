"""Real models for the demo, the tests and the README's table."""

from zoo.models import Model, load, table

__all__ = ["Model", "load", "table"]
