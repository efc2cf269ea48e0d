"""The parts of scripts/gpu-check. Python's standard library only; see docs/measurements/README.md."""
