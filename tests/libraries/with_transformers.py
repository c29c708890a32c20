"""Transformers: a small GPT-2 from its configuration, trained by the Trainer; `checkpoint` recomputes the blocks."""

import sys
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from word import STEPS, dense, write_torch

BATCH, LENGTH, WORDS, WIDTH, HEADS, LAYERS = 4, 16, 64, 32, 2, 2
TOKENS = BATCH * LENGTH


class Texts(Dataset):
    """Texts made of random words."""

    def __init__(self) -> None:
        self.words = torch.randint(WORDS, (STEPS * BATCH, LENGTH))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[index], "labels": self.words[index]}


def flops() -> int:
    """Return the FLOPs of a step: a block has dense layers of 12 × WIDTH² weights, and attention over all pairs."""
    block = dense(TOKENS, WIDTH, 12 * WIDTH) + 3 * 2 * BATCH * LENGTH * LENGTH * 2 * WIDTH
    return LAYERS * block + dense(TOKENS, WIDTH, WORDS)


set_seed(0)
config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, use_cache=False)
model = GPT2LMHeadModel(config)
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            use_cpu=True,
            per_device_train_batch_size=BATCH,
            max_steps=STEPS,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            gradient_checkpointing="checkpoint" in sys.argv,
        ),
        train_dataset=Texts(),
    )
    trainer.train()

write_torch(model, trainer.optimizer, flops=flops())
sys.exit(3)
