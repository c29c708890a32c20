"""The parallel texts of the suite, as a model reads them.

The means of their lengths are published:

- IWSLT15: 2.7 million English and 3.3 million Vietnamese words in 133 thousand pairs (Luong and Manning, 2015, the
  Stanford systems at IWSLT), so 20.3 and 24.8 words. The TBD paper (Zhu et al., 2018, arXiv:1803.06905), table III,
  has 20-30.
- WMT-14: 4,500,966 pairs of 132,886,171 English and 137,628,246 German subwords, an end in each sentence counted, as
  fairseq's preprocessing (Ott et al., 2018, arXiv:1806.00187) prints for this text in 32,000 subwords; without the
  ends 28.5 and 29.6. In words these are 116 and 110 million (Luong et al., 2015, arXiv:1508.04025).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel text, as a model reads it."""

    dataset: str  # its name in `datasets.DATASETS`
    source_words: int  # rows of the model's vocabulary, those of the three marks included
    target_words: int
    longest: int  # words of a sentence; a target's `END` comes on top
    source_mean: float  # words of a sentence, before any is cut or left out
    target_mean: float
    cuts: bool  # a longer sentence is cut, as TensorFlow NMT does; else its pair is left out, as tensor2tensor does
    subwords: bool  # words are subwords of one vocabulary that both sides share

    @property
    def limit(self) -> int:
        """The greatest length of a side: of a target with its `END`."""
        return self.longest + 1


# Cut at 50 words as TensorFlow NMT's configuration for IWSLT15 does (`src_max_len`, `tgt_max_len`).
IWSLT15 = Corpus("IWSLT15", 17_191, 7_709, 50, 2.7e6 / 133e3, 3.3e6 / 133e3, cuts=True, subwords=False)
# Pairs beyond 100 subwords, of which the fit has 1.8 %, are left out: our choice, so that one rare batch does not
# decide how much memory a run needs; tensor2tensor leaves out those beyond 256.
WMT14 = Corpus(
    "WMT-14",
    37_000,
    37_000,
    100,
    132_886_171 / 4_500_966 - 1,
    137_628_246 / 4_500_966 - 1,
    cuts=False,
    subwords=True,
)
