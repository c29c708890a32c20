"""The learning check of the Transformer: a narrow network learns the generated language of both translators."""

from tbdprof.suite.checks.learning import Build, Check, Learned, Setting, Told
from tbdprof.suite.checks.translation import learn
from tbdprof.suite.transformer import SPEC


def run(build: Build, setting: Setting, told: Told) -> Learned:
    """Train a Transformer of 2 + 2 layers on generated sentences; the learning rate rises during the first steps."""
    return learn(CHECK, SPEC, build, setting, told)


_OPTIONS = {"width": 64, "layers": 2, "vocabulary": 40, "rise": 200}
CHECK = Check(run, _OPTIONS, batch_size=8, steps=400)
