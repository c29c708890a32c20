"""Image files as normalized arrays."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tbdprof.errors import DataError

# Mean and deviation of the red, green and blue values, 0 to 1, of ImageNet's training images. Torchvision's reference
# training (references/classification/presets.py) and the pretrained networks of most libraries use them.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp"})


def decode(path: str | Path) -> Image.Image:
    """Return an image file in red, green and blue; grayscale, palette and CMYK images are converted.

    Raises DataError if the file is missing, truncated or not an image.
    """
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: restore it, or take it out of the data set") from error
    except UnidentifiedImageError as error:  # its own text would repeat the path
        raise DataError(f"{path} is no image of a known format: restore it, or take it out of the data set") from error
    # Pillow's decoders raise SyntaxError, EOFError and ValueError for damaged files.
    except (OSError, SyntaxError, EOFError, ValueError, Image.DecompressionBombError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} cannot be decoded: {reason}; restore it, or take it out of the data set") from error


def normalized(image: Image.Image, *, flip: bool) -> NDArray[np.float32]:
    """Return an image as (3, height, width), normalized by ImageNet's mean and deviation, mirrored if requested."""
    pixels = np.asarray(image, np.float32)
    pixels = (pixels / 255 - MEAN) / DEVIATION
    return (pixels[:, ::-1] if flip else pixels).transpose(2, 0, 1)
