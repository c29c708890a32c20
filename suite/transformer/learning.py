"""The learning check of the Transformer: a narrow network learns the generated language of both translators."""

from tbdprof.suite.checks.learning import Build, Check, Learned, Progress, Setting
from tbdprof.suite.checks.translation import learn
from tbdprof.suite.transformer import SPEC
from tbdprof.suite.transformer.sentences import batches


def run(build: Build, setting: Setting, progress: Progress) -> Learned:
    """Train a Transformer of 2 + 2 layers on generated sentences; the learning rate rises during the first steps."""
    return learn(CHECK, SPEC, build, setting, progress)


_OPTIONS = {"width": 64, "layers": 2, "vocabulary": 40, "rise": 200}
CHECK = Check(run, _OPTIONS, batch_size=8, steps=400, batches=batches)
