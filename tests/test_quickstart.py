"""The quickstart, run as a user runs it: in a process of its own."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "quickstart.py"


def start(out, *options, seed=0, steps=600):
    """The quickstart as a process; one device, as a user has it."""
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, str(SCRIPT), f"--out={out}", f"--seed={seed}", f"--steps={steps}"]
    return subprocess.Popen(
        [*command, *options], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    """What a process that must succeed wrote to its two outputs."""
    output, progress = process.communicate(timeout=300)
    assert process.returncode == 0, progress
    return output, progress


def steps_done(checkpoint):
    """The step in the header of a checkpoint; 0 without one."""
    if not checkpoint.exists():
        return 0
    with checkpoint.open("rb") as file:
        return json.loads(file.readline())["step"]


def kill_past(process, checkpoint, step):
    """Kills the process as soon as its checkpoint is past a step; the step it left."""
    deadline = time.monotonic() + 300
    while steps_done(checkpoint) <= step:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    return steps_done(checkpoint)


def check_run(out, output, progress):
    accuracy = re.search(r"test accuracy (\d+\.\d+)%", output)
    assert accuracy is not None and float(accuracy[1]) > 96
    checkpoint, picture = out / "checkpoint.eqx", out / "training.png"
    assert str(checkpoint) in output and str(picture) in output
    assert steps_done(checkpoint) == 600
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert not list(out.glob("*.tmp"))
    rates = [float(rate) for rate in re.findall(r"lr=([-+.\de]+)", progress)]
    assert len(set(rates)) > 3 and rates[0] == 0 and 2e-3 < max(rates) <= 3e-3
    assert rates[-1] < 1e-6


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder and the outputs of a run with seed 0 that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    return out, *finish(start(out))


@pytest.mark.slow
def test_quickstart_is_accurate(whole):
    check_run(*whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_quickstart_is_accurate_with_other_seeds(tmp_path, seed):
    check_run(tmp_path, *finish(start(tmp_path, seed=seed)))


@pytest.mark.slow
def test_killed_and_resumed_is_bit_equal(tmp_path, whole):
    checkpoint = tmp_path / "checkpoint.eqx"
    # There is nothing to resume yet: this starts at step 0.
    first = kill_past(start(tmp_path, "--resume"), checkpoint, 0)
    second = kill_past(start(tmp_path, "--resume"), checkpoint, first)
    assert 0 < first < second < 600
    assert not (tmp_path / "training.png").exists()

    _, progress = finish(start(tmp_path, "--resume"))
    assert f"{second}/600" in progress and " 0/600" not in progress
    assert (tmp_path / "training.png").exists()
    assert checkpoint.read_bytes() == (whole[0] / "checkpoint.eqx").read_bytes()


@pytest.fixture(scope="module")
def quickstart():
    return runpy.run_path(str(SCRIPT))


def make_run(quickstart, seed):
    optim = quickstart["make_optimizer"](20)
    model = eqx.nn.MLP(64, 10, 8, 2, key=jax.random.key(seed))
    return quickstart["Run"](model, optim.init(model), np.zeros(20), np.ones(20))


def bit_equal(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs if eqx.is_array(x))


def test_checkpoint_round_trip(tmp_path, quickstart):
    path, settings = tmp_path / "checkpoint.eqx", {"seed": 0, "steps": 20}
    run, other = make_run(quickstart, 0), make_run(quickstart, 1)
    quickstart["save"](path, settings, 7, run)
    step, loaded = quickstart["load"](path, settings, other)
    assert step == 7 and bit_equal(loaded, run)


def test_interrupted_save_leaves_the_old_checkpoint(tmp_path, quickstart, monkeypatch):
    path, settings = tmp_path / "checkpoint.eqx", {"seed": 0, "steps": 20}
    quickstart["save"](path, settings, 7, make_run(quickstart, 0))
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, call, interrupted)
            quickstart["save"](path, settings, 8, make_run(quickstart, 1))
        assert path.read_bytes() == before
    quickstart["save"](path, settings, 8, make_run(quickstart, 1))
    assert steps_done(path) == 8


def test_checkpoint_of_another_run_is_refused(tmp_path, quickstart):
    path = tmp_path / "checkpoint.eqx"
    quickstart["save"](path, {"seed": 0, "steps": 20}, 7, make_run(quickstart, 0))
    with pytest.raises(SystemExit, match=r"'seed': 0.* not .*'seed': 1"):
        quickstart["load"](path, {"seed": 1, "steps": 20}, make_run(quickstart, 1))


def test_batches_depend_on_the_key_alone(quickstart):
    data, test_data = quickstart["load_data"](0)
    assert len(data.labels) == 1347 and len(test_data.labels) == 450
    batches = [quickstart["make_batch"](data, jax.random.key(seed)) for seed in (3, 3, 4)]
    assert bit_equal(batches[0], batches[1]) and not bit_equal(batches[0], batches[2])
