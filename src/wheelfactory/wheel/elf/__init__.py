"""ELF files: bytes in, out what a file needs, defines and leaves undefined, and for which GPUs it holds code.

The readers trust nothing they read: offsets, sizes and counts are checked before use, and the work is bounded by the
size of the file. That is why they do not stand on pyelftools, which auditwheel uses: it resolves a name by reading
up to the next zero byte however far that is, so a file of 12 MB can keep it busy for days.
"""
