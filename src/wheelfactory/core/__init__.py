"""What every other room uses, and what uses none of them: errors, files, programs, names, this machine."""
