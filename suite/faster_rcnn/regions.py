"""The paper's numbers and sizes of anchors, proposals, regions and detections."""

from math import ceil

STRIDE = 16  # pixels of the image between two positions of the shared activations
SCALES = (8, 16, 32)  # an anchor's sides, in strides
RATIOS = (0.5, 1.0, 2.0)  # an anchor's height over its width
ANCHORS = len(SCALES) * len(RATIOS)  # at each position
SAMPLED_ANCHORS = 256
POSITIVE_ANCHORS = 128  # at most so many of the sampled anchors
PROPOSAL_OVERLAP = 0.7  # above this overlap, a proposal with a higher score suppresses another
FOREGROUND_SHARE = 0.25  # at most this share of the sampled regions
FOREGROUND_OVERLAP = 0.5  # with this overlap with an object or more, a region is foreground
# A region's box targets are divided by these numbers. Girshick, 2015 (arXiv:1504.08083, section 2.3) asks for unit
# variance; the values are those of the authors' published code.
BOX_DEVIATIONS = (0.1, 0.1, 0.2, 0.2)
LARGEST_GROWTH = 1000 / 16  # growth of a side in decoding, limited so that an untrained network's boxes stay finite
ALIGNED_SIDE = 14  # cells along each side of a region, in ROIAlign
ALIGNED_SAMPLES = 2  # samples along each axis in each cell

ASPECT = 500 / 350  # longer over shorter side of a synthetic image: Pascal VOC's commonest sizes are about 500 × 350
LONGEST = 5 / 3  # the largest ratio of the longer side to the shorter: 1,000 over 600
TESTED_BEFORE, TESTED_AFTER = 6000, 300  # proposals before and after suppression, in inference
DETECTION_OVERLAP = 0.3  # above this overlap, a better detection of the same class suppresses another
DETECTION_SCORE = 0.05  # detections with lower scores are dropped


def image_sides(shorter: int) -> tuple[int, int]:
    """Return the height and width of a synthetic image."""
    return shorter, round(shorter * ASPECT)


def map_sides(height: int, width: int) -> tuple[int, int]:
    """Return the height and width of an image's shared activations."""
    return ceil(height / STRIDE), ceil(width / STRIDE)
