"""The learning check of Inception-v3: it classifies striped images of ten directions and colors, at 299 pixels."""

from tbdprof.suite.checks.classification import learn
from tbdprof.suite.checks.learning import Build, Check, Learned, Progress, Setting
from tbdprof.suite.classifier.batches import of_run


def _run(build: Build, setting: Setting, progress: Progress) -> Learned:
    return learn(CHECK, build, setting, progress, rate_of=8)


CHECK = Check(_run, options={"image_size": 299, "dropout": "off"}, batch_size=8, steps=120, batches=of_run)
