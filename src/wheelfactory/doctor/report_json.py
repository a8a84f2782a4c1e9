"""Write a report as the document of ``doctor --json``; docs/reference/doctor.md lists its keys."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from wheelfactory.core.errors import FactoryError
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.report import DoctorReport, Offer

# the version of the JSON document. Increase it when a key is renamed, removed or changes its meaning
FORMAT = 4


def as_json(report: DoctorReport, error: FactoryError | None = None) -> dict[str, object]:
    """Return the document; `error` is why the manifest could not be read."""
    misses = report.fit.near_misses if report.fit else ()
    return {
        "format": FORMAT,
        "machine": asdict(report.machine),
        "verdict": {"kind": str(report.verdict.kind), "line": report.verdict.line},
        "diagnoses": [asdict(diagnosis) for diagnosis in report.diagnoses],
        "site": report.site,
        "fitting": [
            {
                **_wheel_json(offer.wheel),
                **_commands_json(offer),
                "installed": offer.installed,
                "condition": offer.condition or None,
                "cautions": list(offer.cautions),
                "unverified": offer.unverified or None,
                "refused_options": list(offer.refused),
            }
            for offer in report.offers
        ],
        "near_misses": [{**_wheel_json(miss.wheel), "reasons": list(miss.reasons)} for miss in misses],
        "torch": _named("wheel", report.torch),
        "fallback": _named("filename", report.fallback),
        "refused_options": list(report.refused),
        "support": [asdict(support) for support in report.support],
        "steps": [asdict(step) for step in report.steps],
        "notes": list(report.notes),
        "error": {"what": error.what, "which": error.which, "hint": error.hint} if error else None,
        "exit_code": error.exit_code if error else report.exit_code,
    }


def _named(key: str, offer: Offer | None) -> dict[str, object] | None:
    return {key: offer.wheel.filename, **_commands_json(offer)} if offer else None


def _commands_json(offer: Offer) -> dict[str, object]:
    return {"pip": shlex.join(offer.pip), "uv": shlex.join(offer.uv)}


def _wheel_json(wheel: PublishedWheel) -> dict[str, object]:
    cell, label = wheel.cell, wheel.label
    same = ("filename", "version", "url", "sha256", "size", "archs", "glibc", "published", "verified_on")
    return {
        **{name: getattr(wheel, name) for name in same},
        "backend": str(label.backend) if label else None,
        "cell": cell.id if cell else None,
        "gates": dict(wheel.gates),
    }
