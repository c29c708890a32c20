"""How ResNet-50 shows that it learns: at 64 pixels, on ten directions and colors of stripes."""

from tbdprof.suite.checks.classification import learn
from tbdprof.suite.checks.learning import Build, Check, Learned, Progress, Setting


def _run(build: Build, setting: Setting, progress: Progress) -> Learned:
    return learn(CHECK, build, setting, progress, rate_of=4)


CHECK = Check(_run, options={"variant": "v1.5", "image_size": 64}, batch_size=16, steps=120)
