"""What the paper says of anchors, proposals, regions and detections: their numbers and sizes."""

from math import ceil

STRIDE = 16  # pixels of the image between two points of the shared maps
SCALES = (8, 16, 32)  # an anchor's side in strides
RATIOS = (0.5, 1.0, 2.0)  # its height over its width
ANCHORS = len(SCALES) * len(RATIOS)  # at each point
SAMPLED_ANCHORS = 256
POSITIVE_ANCHORS = 128  # of the sampled, at most
PROPOSAL_OVERLAP = 0.7  # above it a proposal is suppressed by one of a higher score
FOREGROUND_SHARE = 0.25  # of the sampled regions, at most
FOREGROUND_OVERLAP = 0.5  # with an object, from which on a region is foreground
# By which a region's box targets are divided (Girshick, 2015, arXiv:1504.08083, section 2.3, wants unit variance; the
# values are those of the authors' published code).
BOX_DEVIATIONS = (0.1, 0.1, 0.2, 0.2)
LARGEST_GROWTH = 1000 / 16  # of a side in decoding, so that an untrained network's boxes stay finite
ALIGNED_SIDE = 14  # of a region's map, by ROIAlign
ALIGNED_SAMPLES = 2  # along each axis in each of its cells

ASPECT = 500 / 350  # of a synthetic image: Pascal VOC's most frequent sizes are about 500 × 350
LONGEST = 5 / 3  # of the longer side over the shorter, at most: 1,000 over 600
TESTED_BEFORE, TESTED_AFTER = 6000, 300  # proposals before and after suppression where detections are wanted
DETECTION_OVERLAP = 0.3  # above it a detection is suppressed by one of its class with a higher score
DETECTION_SCORE = 0.05  # below it there is no detection


def image_sides(shorter: int) -> tuple[int, int]:
    """Return the height and width of a synthetic image."""
    return shorter, round(shorter * ASPECT)


def map_sides(height: int, width: int) -> tuple[int, int]:
    """Return the height and width of the shared maps of an image."""
    return ceil(height / STRIDE), ceil(width / STRIDE)
