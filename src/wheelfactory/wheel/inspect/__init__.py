"""A wheel, a library or an installed distribution in, its facts out; anyone's, not only those made here."""
