"""The learning check of ResNet-50: it classifies striped images of ten directions and colors, at 64 pixels."""

from tbdprof.suite.checks.classification import learn
from tbdprof.suite.checks.learning import Build, Check, Learned, Progress, Setting
from tbdprof.suite.classifier.batches import of_run


def _run(build: Build, setting: Setting, progress: Progress) -> Learned:
    return learn(CHECK, build, setting, progress, rate_of=4)


CHECK = Check(_run, options={"variant": "v1.5", "image_size": 64}, batch_size=16, steps=120, batches=of_run)
