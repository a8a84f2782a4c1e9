"""A wheel, a library or an installed distribution in, its facts out; anyone's, not only those made here."""

from wheelfactory.inspect.describe import describe
from wheelfactory.inspect.facts import Facts
from wheelfactory.inspect.look import inspect

__all__ = ["Facts", "describe", "inspect"]
