"""Write silero_vad.jit, the TorchScript model inside the Python package silero-vad (MIT), byte for byte.

    python data/make_silero_vad.py

The package itself would bring torchaudio along, so only its wheel is fetched, by pip, and this one file taken out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TARGET = Path(__file__).with_name("silero_vad.jit")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "silero-vad==6.2.3", "--no-deps", "-q", "-d", folder]
        subprocess.run(command, check=True)
        [wheel] = Path(folder).glob("*.whl")
        TARGET.write_bytes(zipfile.ZipFile(wheel).read("silero_vad/data/silero_vad.jit"))
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
