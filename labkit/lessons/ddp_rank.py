"""The program that each rank of ``ddp_scaling.measure()`` runs."""

import torch.distributed as dist

import labkit as lab
from labkit.lessons.ddp_steps import Steps
from labkit.lessons.rank_turns import take_turns


def main() -> None:
    """Time the ways of taking a step that ``lab.launch.value("ways")`` names, in turns, and report."""
    dist.init_process_group(lab.launch.backend())
    steps = Steps(lab.launch.value("width"), lab.launch.value("layers"), lab.launch.value("batch"))
    ways = {name: getattr(steps, way) for name, way in lab.launch.value("ways").items()}
    lab.report(**take_turns(ways, rounds=lab.launch.value("rounds"), gradient_bytes=steps.bytes))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
