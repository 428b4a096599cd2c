"""Trains a small network on scikit-learn's digits, with checkpoints and a plot.

    python examples/quickstart.py             # trains and prints the accuracy
    python examples/quickstart.py --resume    # goes on where a killed run stopped

A run that was killed and resumed ends with the same parameters, bit for bit, as one that was not:
a batch depends on the seed and the step alone, and a checkpoint holds everything else.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import eqopt
from eqopt import schedules, select

BATCH_SIZE = 64
CHECKPOINT_EVERY = 50  # steps


class Data(NamedTuple):
    images: jax.Array  # pixels in [0, 1]
    labels: jax.Array


class Run(NamedTuple):
    """What a checkpoint holds: everything that changes in training."""

    model: eqx.nn.MLP
    state: eqopt.OptState
    losses: np.ndarray  # at each step so far, then zeros
    rates: np.ndarray  # the learning rates, likewise


def load_data(seed: int) -> tuple[Data, Data]:
    """Three quarters for training, one for testing, each with the same share of every digit."""
    images, labels = load_digits(return_X_y=True)
    images = images.astype(np.float32) / 16
    parts = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=seed)
    train_images, test_images, train_labels, test_labels = map(jnp.asarray, parts)
    return Data(train_images, train_labels), Data(test_images, test_labels)


def make_optimizer(steps: int) -> eqopt.AbstractTransform:
    warmup = steps // 10
    decay = schedules.CosineDecay(3e-3, steps=steps - warmup)
    learning_rate = schedules.Linear(0.0, 3e-3, steps=warmup) >> decay
    return eqopt.ClipByGlobalNorm(1.0) >> eqopt.AdamW(
        learning_rate, weight_decay=0.1, decay_where=select.Matrices()
    )


def loss_fn(model: eqx.nn.MLP, batch: Data) -> jax.Array:
    logits = jax.vmap(model)(batch.images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels).mean()


@eqx.filter_jit
def accuracy(model: eqx.nn.MLP, data: Data) -> jax.Array:
    return (jax.vmap(model)(data.images).argmax(axis=-1) == data.labels).mean()


def make_batch(data: Data, key: jax.Array) -> Data:
    """Random examples, with a little noise so that none is learned by heart."""
    pick_key, noise_key = jax.random.split(key)
    picked = jax.random.randint(pick_key, (BATCH_SIZE,), 0, len(data.labels))
    images = data.images[picked]
    noise = 0.2 * jax.random.normal(noise_key, images.shape)
    return Data(images + noise, data.labels[picked])


@eqx.filter_jit
def train_step(optim: eqopt.AbstractTransform, model, state, data: Data, key: jax.Array):
    """The new model and state, the loss and the learning rate."""
    learning_rate = eqopt.hyperparameters(optim, state)["adamw.learning_rate"]
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, make_batch(data, key))
    model, state = optim.step(grads, state, model)
    return model, state, loss, learning_rate


def save(path: Path, settings: dict[str, int], step: int, run: Run) -> None:
    """Replaces the checkpoint in one go: a run killed in here leaves the old one whole."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(json.dumps({**settings, "step": step}).encode() + b"\n")
        eqx.tree_serialise_leaves(file, run)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load(path: Path, settings: dict[str, int], like: Run) -> tuple[int, Run]:
    """The number of steps done, and the run; `like` is a run of the same structure."""
    with path.open("rb") as file:
        found = json.loads(file.readline())
        step = found.pop("step")
        if found != settings:
            raise SystemExit(f"error: {path} belongs to a run with {found}, not {settings}")
        return step, eqx.tree_deserialise_leaves(file, like)


def train(seed: int, steps: int, data: Data, checkpoint: Path, resume: bool) -> Run:
    settings = {"seed": seed, "steps": steps}
    model_key, batch_key = jax.random.split(jax.random.key(seed))
    optim = make_optimizer(steps)
    model = eqx.nn.MLP(64, 10, width_size=256, depth=2, key=model_key)
    nothing = np.zeros(steps, np.float32)
    done, run = 0, Run(model, optim.init(model), nothing, nothing.copy())
    if resume and checkpoint.exists():
        done, run = load(checkpoint, settings, run)

    progress = tqdm(range(done, steps), initial=done, total=steps, unit="step")
    for step in progress:
        key = jax.random.fold_in(batch_key, step)
        model, state, loss, rate = train_step(optim, run.model, run.state, data, key)
        run = run._replace(model=model, state=state)
        run.losses[step], run.rates[step] = loss, rate
        progress.set_postfix(loss=f"{loss:.3f}", lr=f"{rate:.1e}", refresh=False)
        if (step + 1) % CHECKPOINT_EVERY == 0 or step + 1 == steps:
            save(checkpoint, settings, step + 1, run)
    return run


def plot(path: Path, run: Run) -> None:
    figure = Figure(figsize=(6, 5), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True)
    upper.semilogy(run.losses)
    upper.set_ylabel("loss")
    lower.plot(run.rates)
    lower.set(ylabel="learning rate", xlabel="step")
    figure.savefig(path)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=600, help="at least 10")
    parser.add_argument("--out", type=Path, default=Path("build/quickstart"), metavar="DIR")
    parser.add_argument("--resume", action="store_true", help="go on from DIR/checkpoint.eqx")
    args = parser.parse_args(argv)

    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint, picture = args.out / "checkpoint.eqx", args.out / "training.png"
    train_data, test_data = load_data(args.seed)
    run = train(args.seed, args.steps, train_data, checkpoint, args.resume)
    plot(picture, run)
    print(f"test accuracy {accuracy(run.model, test_data):.2%}")
    print(f"checkpoint    {checkpoint}")
    print(f"plot          {picture}")


if __name__ == "__main__":
    main()
