"""Shared by the scripts that edit matrix.yaml: errors, output and exit code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wheelfactory.commands.options import print_messages, print_results
from wheelfactory.core.errors import DONE, FAILED, FactoryError

if TYPE_CHECKING:
    from wheelfactory.kernels import refresh_sources
    from wheelfactory.matrix.refresh import images, torch_releases


def run_chore(
    refresh: Callable[[], images.ImageChanges | torch_releases.TorchChanges | refresh_sources.SourceChanges],
) -> int:
    """Run a script's refresh, print its findings, and return the exit code."""
    import truststore  # many networks use their own certificate authority

    truststore.inject_into_ssl()
    try:
        findings = refresh()
    except FactoryError as error:
        print_messages(f"error: {error}", f"hint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        print_messages("error: interrupted: by Ctrl-C", "hint: matrix.yaml is unchanged; run the same command again")
        return FAILED
    print_results(*findings.lines)
    print_messages(findings.summary)
    return DONE
