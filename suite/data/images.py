"""Image files as normalized arrays."""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tbdprof.errors import DataError
from tbdprof.suite.data.files import check_file

# Mean and deviation of the red, green and blue values, 0 to 1, of ImageNet's training images. Torchvision's reference
# training (references/classification/presets.py) and the pretrained networks of most libraries use them.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp"})
# Pillow knows dozens of formats, some of which start other programs. The name does not decide: an image of ImageNet
# that is called .JPEG is a PNG.
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "WEBP")
MOST_PIXELS = 1 << 26  # decoded these are 256 MiB; ImageNet's images have 0.2 million in the mean
MOST_BYTES = 4 * MOST_PIXELS + (1 << 20)  # of a file: as many pixels without compression, and a header
MOST_SCANS = 256  # of a JPEG; a usual one has 10, and each passes over all pixels
REMEDY = "restore it, or take it out of the data set"
SCAN = b"\xff\xda"

warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # what Pillow warns of is an error here


def decode(path: str | Path) -> Image.Image:
    """Return an image file in red, green and blue; grayscale, palette and CMYK images are converted.

    Raises DataError if the file is missing, truncated, larger than `MOST_PIXELS`, or not an image.
    """
    try:
        check_file(path, MOST_BYTES)
        with Image.open(path, formats=FORMATS) as image:
            _check_effort(image, Path(path))
            return image.convert("RGB")
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: {REMEDY}") from error
    except UnidentifiedImageError as error:  # its own text would repeat the path
        raise DataError(f"{path} is no image in {', '.join(FORMATS)}: {REMEDY}") from error
    except Exception as error:  # Pillow's decoders raise errors of many types for damaged files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} cannot be decoded: {reason}; {REMEDY}") from error


def normalized(image: Image.Image, *, flip: bool) -> NDArray[np.float32]:
    """Return an image as (3, height, width), normalized by ImageNet's mean and deviation, mirrored if requested."""
    pixels = np.asarray(image, np.float32)
    pixels = (pixels / 255 - MEAN) / DEVIATION
    return (pixels[:, ::-1] if flip else pixels).transpose(2, 0, 1)


def _check_effort(image: Image.Image, path: Path) -> None:
    """Raise DataError for an image that takes too much memory or time to decode."""
    if image.width * image.height > MOST_PIXELS:
        found = f"{image.width}×{image.height} pixels, and {MOST_PIXELS}"
    elif image.format in ("JPEG", "MPO") and (scans := path.read_bytes().count(SCAN)) > MOST_SCANS:
        found = f"{scans} scans, and {MOST_SCANS}"
    else:
        return
    raise DataError(f"{path} has {found} are the most that are decoded: {REMEDY}")
