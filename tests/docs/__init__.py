"""What is written for readers is true: links lead somewhere, commands run, what is generated is up to date."""
