"""A build log -> how far the build is, what it compiles, when it ends, why it failed, and what to change."""
