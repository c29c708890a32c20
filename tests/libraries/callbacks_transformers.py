"""What the callback for Hugging Face's `Trainer` records, beside the same training as a plain loop; prints JSON."""

import gc
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import known_peaks
import torch
from accelerate import Accelerator
from told import digest, told
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import tbdprof
from tbdprof.integrations.huggingface import TbdprofCallback

BATCH, LENGTH, WORDS, WIDTH, HEADS, LAYERS = 4, 16, 64, 32, 2, 2
STEPS, OPTIONS = 20, {"warmup": 2, "steps": 2, "prints": False}
RATE, STOP = 1e-3, 12


class Texts(Dataset):
    """Texts made of random words."""

    def __init__(self, count: int) -> None:
        self.words = torch.randint(WORDS, (count * BATCH, LENGTH))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.words[index]}


class Raising(TrainerCallback):
    """Raises in the middle of a training."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        """Raise at one of the steps."""
        if state.global_step == STOP:
            raise ValueError("planted")


@contextmanager
def seeded() -> Iterator[GPT2LMHeadModel]:
    """Make a model, always the same; nothing of an earlier training is left in memory."""
    gc.collect()
    set_seed(0)
    sizes = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
    yield GPT2LMHeadModel(GPT2Config(use_cache=False, **sizes))


def train(*callbacks: TrainerCallback, count: int = STEPS, **options: Any) -> dict[str, Any]:
    """Train a model, and return what the first callback's recording says and the digest of the weights."""
    with seeded() as model, tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            max_grad_norm=0,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            **{"max_steps": STEPS, **options},
        )
        texts = Texts(count)
        trainer = Trainer(model, arguments, train_dataset=texts, eval_dataset=texts, callbacks=[*callbacks])
        raised = ""
        try:
            trainer.train()
        except ValueError as error:
            raised = str(error)
    ours = [each.profiler for each in callbacks if isinstance(each, TbdprofCallback)]
    return {"weights": digest(model), "raised": raised} | told(ours[0] if ours else None)


def plain_loop() -> dict[str, Any]:
    """Train the same model in a loop of one's own, with tbdprof around it."""
    with seeded() as model:
        texts, optimizer = Texts(STEPS), torch.optim.AdamW(model.parameters(), RATE)
        with tbdprof.profile(model, optimizer, warmup=2, steps=2) as profiler:
            for words in DataLoader(texts, BATCH, shuffle=True):
                model(**words).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                profiler.step()
    return told(profiler)


def with_accelerate() -> dict[str, Any]:
    """Train in a loop of one's own with Accelerate, as docs/integrations.md does; two batches make a step."""
    with seeded() as model:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        loader = DataLoader(Texts(2 * STEPS), BATCH)
        model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), RATE), loader)
        with tbdprof.profile(model, optimizer, warmup=2, steps=2) as profiler:
            for words in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(**words).loss)
                    optimizer.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    profiler.step()
    return told(profiler)


def main() -> None:
    """Train in every way."""
    known_peaks.use()
    raising = TbdprofCallback(**OPTIONS)
    twice = TbdprofCallback(output="transformers.tbd", **OPTIONS)
    found = {
        "plain": train(),
        "callback": train(TbdprofCallback(**OPTIONS)),
        "plain loop": plain_loop(),
        "accumulates plain": train(count=2 * STEPS, gradient_accumulation_steps=2),
        "accumulates": train(TbdprofCallback(**OPTIONS), count=2 * STEPS, gradient_accumulation_steps=2),
        "evaluates plain": train(eval_strategy="steps", eval_steps=5),
        "evaluates": train(TbdprofCallback(**OPTIONS), eval_strategy="steps", eval_steps=5),
        "is short": train(TbdprofCallback(prints=False), max_steps=3),
        "raises": train(raising, Raising()),
        "twice": [train(twice), train(twice)],
        "accelerate": with_accelerate(),
    }
    assert raising.profiler is not None
    found["left"] = {"active": raising.profiler.active, "ended_by": raising.profiler.recording.run.ended_by}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
