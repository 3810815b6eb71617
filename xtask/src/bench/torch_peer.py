"""The networks of the benchmark run_path in PyTorch, from tensors in host memory to tensors in host memory.

``python torch_peer.py [ROWS]`` adds PyTorch's times to the rows that run_path wrote as JSON lines.
"""

import json
import statistics
import sys
import time

import torch
from torch import nn


class Layer(nn.Module):
    """A layer of BERT-base."""

    def __init__(self, width: int = 768, heads: int = 12, hidden: int = 3072) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = (*x.shape[:2], self.heads, -1)
        q, k, v = (linear(x).view(split).transpose(1, 2) for linear in self.qkv)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = self.norms[0](self.out(attended.transpose(1, 2).reshape(x.shape)) + x)
        return self.norms[1](self.down(nn.functional.gelu(self.up(x))) + x)


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution and its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Block(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int, first: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(inputs, width, 1), conv(width, width, 3, stride), conv(width, 4 * width, 1)])
        self.shortcut = conv(inputs, 4 * width, 1, stride) if first else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.convs[0](x))
        y = torch.relu(self.convs[1](y))
        return torch.relu(self.convs[2](y) + self.shortcut(x))


def resnet() -> nn.Sequential:
    """ResNet-50."""
    parts = [conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for index in range(count):
            parts.append(Block(inputs, width, 2 if index == 0 and stage > 0 else 1, index == 0))
            inputs = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


NETWORKS = {
    "encoder, 12 layers, (8, 128, 768)": (lambda: nn.Sequential(*(Layer() for _ in range(12))), (8, 128, 768)),
    "ResNet-50, (8, 3, 224, 224)": (resnet, (8, 3, 224, 224)),
}
TYPES = {"float": torch.float32, "float16": torch.float16}


@torch.inference_mode()
def median_ms(network: nn.Module, x: torch.Tensor, seconds: float = 2.0) -> float:
    """The median of runs from the host to the host."""
    for _ in range(3):
        network(x.cuda()).cpu()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        network(x.cuda()).cpu()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def main(path: str | None) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows = []
    if path:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    for name, (make, shape) in NETWORKS.items():
        for kind, dtype in TYPES.items():
            network = make().to("cuda", dtype).eval()
            x = torch.randn(shape, dtype=dtype)
            peers = {"PyTorch eager": median_ms(network, x)}
            if "--compile" in sys.argv:
                peers["torch.compile"] = median_ms(torch.compile(network), x)
            for row in rows:
                if row["name"] == f"{name}, {kind}":
                    row["ms"] |= peers
            print(f"{name}, {kind}:", ", ".join(f"{peer} {ms:.3f} ms" for peer, ms in peers.items()), flush=True)
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main(next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None))
