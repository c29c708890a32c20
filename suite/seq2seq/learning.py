"""The learning check of Seq2Seq: a narrow network learns the generated language of both translators."""

from tbdprof.suite.checks.learning import Build, Check, Learned, Progress, Setting
from tbdprof.suite.checks.translation import learn
from tbdprof.suite.seq2seq import SPEC


def run(build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train Seq2Seq at a width of 64 on generated sentences, at TensorFlow NMT's learning rate for batches of 128."""
    return learn(CHECK, SPEC, build, setting, progress)


CHECK = Check(run, {"width": 64}, batch_size=128, steps=600)
