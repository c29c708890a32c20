"""The parallel texts of the suite, as a model reads them.

The mean lengths of their sentences are published:

- IWSLT15: 2.7 million English and 3.3 million Vietnamese words in 133 thousand pairs (Luong and Manning, 2015, the
  Stanford systems at IWSLT), so 20.3 and 24.8 words in the mean. The TBD paper (Zhu et al., 2018, arXiv:1803.06905),
  table III, says 20-30.
- WMT-14: 4,500,966 pairs of 132,886,171 English and 137,628,246 German subwords, including one end token in each
  sentence. Fairseq's preprocessing (Ott et al., 2018, arXiv:1806.00187) prints these numbers for this text in 32,000
  subwords. Without the end tokens the means are 28.5 and 29.6. In words the texts have 116 and 110 million (Luong et
  al., 2015, arXiv:1508.04025).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Corpus:
    """A parallel text, as a model reads it."""

    dataset: str  # its name in `datasets.DATASETS`
    source_words: int  # rows of the model's vocabulary, including the three special tokens
    target_words: int
    longest: int  # the most words in a sentence, without a target's `END`
    source_mean: float  # mean number of words, before sentences are cut or left out
    target_mean: float
    cuts: bool  # whether a longer sentence is cut (TensorFlow NMT) or its pair is left out (tensor2tensor)
    subwords: bool  # whether words are subwords of one vocabulary that both sides share

    @property
    def limit(self) -> int:
        """The greatest length of a side, which is that of a target with its `END`."""
        return self.longest + 1


# Sentences are cut at 50 words, as in TensorFlow NMT's configuration for IWSLT15 (`src_max_len`, `tgt_max_len`).
IWSLT15 = Corpus("IWSLT15", 17_191, 7_709, 50, 2.7e6 / 133e3, 3.3e6 / 133e3, cuts=True, subwords=False)
# Pairs beyond 100 subwords are left out; in the fitted lengths these are 1.8 %. This is our choice, so that one rare
# batch does not determine how much memory a run needs. Tensor2tensor leaves out pairs beyond 256 subwords.
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
