"""Two models, two optimizers: hand over lists."""

import torch
from torch import nn

import tbdprof

generator = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 64))
critic = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
optimizers = [torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())]

with tbdprof.profile([generator, critic], optimizers, unit="pairs") as prof:
    while prof.active:
        noise, real = torch.randn(256, 16), torch.rand(256, 64)
        optimizers[1].zero_grad()
        (critic(generator(noise).detach()).mean() - critic(real).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        (-critic(generator(noise)).mean()).backward()
        optimizers[0].step()
        prof.step(256)

print(prof)
