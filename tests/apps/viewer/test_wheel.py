"""What a browser needs travels in the package."""

import subprocess
from pathlib import Path
from zipfile import ZipFile

import longhaul_viewer

ASSETS = {".js", ".mjs", ".css"}


def test_the_wheel_holds_every_script_and_style_sheet(tmp_path: Path) -> None:
    package = Path(longhaul_viewer.__file__).parent
    project = package.parents[1]
    build = ["uv", "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(project)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as files:
        inside = {name for name in files.namelist() if Path(name).suffix in ASSETS}
    assets = {
        file.relative_to(package.parent).as_posix()
        for file in package.rglob("*")
        if file.suffix in ASSETS
    }
    assert inside == assets
    assert "longhaul_viewer/components/replay/replay.js" in inside
    assert "longhaul_viewer/components/replay/replay.css" in inside
