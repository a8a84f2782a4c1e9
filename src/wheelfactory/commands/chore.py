"""What the maintainers' scripts that edit matrix.yaml have in common: how they end and what they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wheelfactory.commands.options import print_messages, print_results
from wheelfactory.core.errors import DONE, FAILED, FactoryError

if TYPE_CHECKING:
    from wheelfactory.matrix.refresh import images, torch_releases


def run_chore(refresh: Callable[[], images.ImageChanges | torch_releases.TorchChanges]) -> int:
    """Refresh and print what came of it; gives the exit code. All or nothing, so an interruption changes nothing."""
    import truststore  # many networks have an authority of their own

    truststore.inject_into_ssl()
    try:
        findings = refresh()
    except FactoryError as error:
        print_messages(f"error: {error}\nhint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        print_messages("error: interrupted: by Ctrl-C\nhint: nothing was changed")
        return FAILED
    print_results(*findings.lines)
    print_messages(findings.summary)
    return DONE
