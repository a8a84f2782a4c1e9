"""What builds a raw wheel: recipe, sources, environments, and setup.py run on this machine or in a container."""
