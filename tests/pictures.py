"""Take README's pictures of the labs: python -m tests.pictures

Each is the panel of a lab in real JupyterLab, after a guess and a run on this machine; nothing is drawn afterwards.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from PIL import Image

from labkit.language import speaking, t
from tests.jupyterlab import chromium, opened, run, server

FOLDER = Path(__file__).resolve().parent.parent / "notebooks/pictures"
LARGEST_BYTES = 150_000
# Picture -> the call that shows the lab, and what somebody guesses.
LABS = {
    "fusion": ("FusionLab(n=2**24, budget_s=4.0)", "3"),
    "ranks": ("DataParallelLab(width=512, batch=2048, rounds=15)", "1.9"),
}


def word(language: str, message: str) -> str:
    with speaking(language):
        return t(message)  # catalogue: the labs' own texts


def take(page, language: str, position: int, guess: str, path: Path) -> None:
    cell = page.locator(".jp-CodeCell").nth(position)
    cell.scroll_into_view_if_needed()
    cell.get_by_label(word(language, "Your guess:")).fill(guess)
    page.wait_for_timeout(300)
    cell.get_by_role("button", name=word(language, "Run"), exact=True).click()
    cell.get_by_role("status").filter(has_text=word(language, "Done.")).wait_for(timeout=180_000)
    page.wait_for_timeout(500)
    cell.locator(".jp-OutputArea-output").first.screenshot(path=str(path))
    with Image.open(path) as picture:  # fewer shades of grey around letters, a third of the bytes
        picture.convert("RGB").quantize(64).save(path, optimize=True)


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        home = Path(folder)
        (home / "notebooks").mkdir()
        for language in ("bn", "en"):
            cells = [f'import labkit as lab\n\nlab.use_language("{language}")']
            cells += [f"lab.widgets.{call}" for call, _guess in LABS.values()]
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
            notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
            nbformat.write(notebook, home / "notebooks" / f"{language}.ipynb")
        with server(home) as address:
            for language in ("bn", "en"):
                with opened(browser, address, f"{language}.ipynb") as page:
                    page.set_viewport_size({"width": 1150, "height": 2300})
                    page.add_style_tag(content=".Toastify { display: none }")  # JupyterLab's own news
                    page.locator(".jp-CodeCell .cm-content").first.click()
                    run(page)
                    page.wait_for_function(
                        "n => document.querySelectorAll('.jp-CodeCell [role=status]').length === n", arg=len(LABS)
                    )
                    for position, (name, (_call, guess)) in enumerate(LABS.items(), 1):
                        path = FOLDER / f"{name}-{language}.png"
                        take(page, language, position, guess, path)
                        print(path.name, path.stat().st_size, "B", flush=True)
    return int(any(path.stat().st_size > LARGEST_BYTES for path in FOLDER.glob("*.png")))


if __name__ == "__main__":
    sys.exit(main())
