"""A sampling process as the real one speaks, but with made-up samples, or with what can go wrong: run as a script."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

INTERVAL_NS = 100_000
READY = {"state": "ready", "chip": "GH100", "backend": "a fake", "library": "130000", "metrics": {}, "by_time": True}


def say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def write(folder: Path) -> dict[str, object]:
    """Write three samples, of which one counter has no value in the second."""
    start = np.array([1_000_000, 1_100_000, 1_300_000])
    np.savez(
        folder / "samples-1.npz",
        start_ns=start,
        end_ns=start + INTERVAL_NS,
        pm_fp32_pipe=np.array([0.25, 0.5, 0.75]),
        pm_dram=np.array([0.1, np.nan, 0.3]),
    )
    losses = {"missing": 1, "overflows": 2, "full": 0}
    return {"state": "stopped", "file": "samples-1.npz", "samples": 3, "residual_ns": 80.0, "lost": 1, "losses": losses}


def stop(mode: str, folder: Path) -> None:
    """Answer to `stop`, or fail to."""
    if mode == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mode == "failed":
        sys.exit("the counters went away")
    elif mode == "hanging":
        time.sleep(60)
    elif mode == "garbage":
        print("Segmentation what", flush=True)
    elif mode == "out of turn":
        say({"state": "started"})
    elif mode == "no file":
        say({"state": "stopped", "file": "../samples-9.npz", "samples": 3})
    else:
        answer = write(folder)
        if mode == "torn file":
            (folder / "samples-1.npz").write_bytes(b"PK\x03\x04 and no more")
        say(answer)


def main(mode: str, folder: Path) -> None:
    if mode == "refused":
        say({"state": "error", "call": "cuptiPmSamplingEnable", "status": 35, "text": ""})
        return
    if mode == "mute":
        time.sleep(60)
    say(READY)
    for line in sys.stdin:
        if line == "start\n":
            say({"state": "started"})
        elif line == "stop\n":
            stop(mode, folder)
        else:
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[-1]))
