"""The emulated phone of Band's experiments: fitted anew, and what it predicts where other things are assumed of it.

`reproduce/band/phone.py` assumes how much each network computes and how much of an accelerator it uses. Here each of
that is varied (log-normal, σ 0.25), the three fitted numbers are found anew, and Band's frames/s, to which nothing is
fitted, are run on frames that the fit did not see. `--devices`: so many variations; the first line is the phone as it
stands.
"""

import argparse
from statistics import fmean

from reproduce.band.experiments import FIRST_SEED, eagleeye_setup
from reproduce.band.fit import fit, measured
from reproduce.band.frames import EAGLEEYE, frames
from reproduce.band.phone import FITTED
from reproduce.band.runs import play
from reproduce.band.systems import SYSTEMS, device

SEEDS, FRAMES = range(1, 3), 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=4)
    devices: int = parser.parse_args().devices
    print(
        "device | CPU, GPU [GMAC/s], first fallback | fixed, max partition, CPU+GPU [frames/s] | predicted", flush=True
    )
    for variation in (None, *range(1, devices + 1)):
        fitted = fit(FITTED, SEEDS, FRAMES, variation)
        reached = ", ".join(f"{fps:.2f}" for fps in measured(fitted, SEEDS, FRAMES, variation))
        setup = eagleeye_setup(fitted, variation)
        found = {
            system: fmean(
                play(device(setup, system, seed)[0], frames(EAGLEEYE, FRAMES, seed)).fps
                for seed in range(FIRST_SEED, FIRST_SEED + 3)
            )
            for system in SYSTEMS
        }
        band = found["band"]
        ratios = ", ".join(f"/ {system} {band / found[system]:.2f}" for system in SYSTEMS[:-1])
        numbers = f"{fitted.cpu_speed:.1f}, {fitted.gpu_speed:.1f}, {fitted.first:.3f}"
        print(f"{variation or 'as it stands'} | {numbers} | {reached} | band {band:.2f}, {ratios}", flush=True)


if __name__ == "__main__":
    main()
