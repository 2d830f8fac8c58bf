"""Where this machine has Debian's packages from."""

from __future__ import annotations

import subprocess


def mirror() -> str | None:
    """The archive that apt uses on this machine; None where apt has none of Debian's."""
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(SUITE) $(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        origin, component, suite, place = line.split(maxsplit=3)
        if (origin, component) == ("Debian", "main") and "-" not in suite:
            return place
    return None
