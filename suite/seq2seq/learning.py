"""The learning check of Seq2Seq: a narrow network learns the generated language of both translators."""

from collections.abc import Iterator

from tbdprof.suite.checks.learning import Build, Check, Learned, Progress, Setting
from tbdprof.suite.checks.translation import learn
from tbdprof.suite.data.inputs import SentencePairs
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15
from tbdprof.suite.data.text.translation import batches
from tbdprof.suite.seq2seq import SPEC
from tbdprof.suite.workload import PERIOD, Config


def run(build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train Seq2Seq at a width of 64 on generated sentences, at TensorFlow NMT's learning rate for batches of 128."""
    return learn(CHECK, SPEC, build, setting, progress)


def of_run(config: Config) -> Iterator[SentencePairs]:
    """Return the batches of a run."""
    return batches(config, IWSLT15, Sentences(config.batch_size), PERIOD)


CHECK = Check(run, {"width": 64}, batch_size=128, steps=600, batches=of_run)
