"""Read ELF files: libraries and symbols that a file needs, symbols that it defines, and GPU code in it.

The input is untrusted: every offset, size and count is checked before use, and the work is linear in the file size.
pyelftools, which auditwheel uses, is not safe here: it reads a name up to the next zero byte, however far away, so a
file of 12 MB can keep it busy for days.
"""
