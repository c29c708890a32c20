"""Lightning: a module with automatic optimization, fitted by a Trainer."""

import sys
import warnings

import lightning
import torch
from lightning.pytorch.utilities.warnings import PossibleUserWarning
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from word import STEPS, dense, write_torch

BATCH, WIDE, HIDDEN, CLASSES = 8, 24, 40, 10


class Classifier(lightning.LightningModule):
    """Two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(WIDE, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.head(self.hidden(images).tanh()), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), 1e-3)


warnings.simplefilter("ignore", PossibleUserWarning)
lightning.seed_everything(0, verbose=False)
model = Classifier()
data = TensorDataset(torch.randn(STEPS * BATCH, WIDE), torch.randint(CLASSES, (STEPS * BATCH,)))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(data, BATCH, shuffle=True))

flops = dense(BATCH, WIDE, HIDDEN, products=2) + dense(BATCH, HIDDEN, CLASSES)
write_torch(model, trainer.optimizers[0], flops=flops)
sys.exit(3)
