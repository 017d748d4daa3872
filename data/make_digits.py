"""Write digits.npz from scikit-learn's handwritten digits (BSD-3-Clause; originally UCI's "Optical Recognition of
Handwritten Digits", test part).

    pip install scikit-learn
    python data/make_digits.py

Two arrays, no pickle: images (1797, 8, 8) of 0..16 and labels (1797,) of 0..9, both uint8.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).with_name("digits.npz")


def main() -> None:
    digits = load_digits()
    np.savez_compressed(TARGET, images=digits.images.astype(np.uint8), labels=digits.target.astype(np.uint8))
    print(f"{TARGET.name}: {len(digits.target)} images, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
