"""How conformance programs run under the shim: what is set for which, and what is left out.

The runner (run) and scripts/gpu-check both ask here; `shimmed.py PROGRAM` says it a line per run.
"""
import sys

BACKINGS = ("vmm", "native")

# What a program's subject needs. Everything else runs with the defaults.
SETTINGS = {
    # A free from the pool does not wait for kernels; this asks whether it does.
    "free_waits": {"VRAMSHIM_STRICT_FREE": "on"},
}

# (program, backing): why it cannot say the same there.
LEFT_OUT = {
    ("ipc", "vmm"): "cuIpcGetMemHandle refuses mapped memory",
}


def backings(program, lookup):
    """The backings that a program meets: all by dlsym, for the other ways of finding entry points
    one, since they end in the same hooks."""
    wanted = BACKINGS if lookup == "dlsym" else BACKINGS[:1]
    kept = tuple(b for b in wanted if (program, b) not in LEFT_OUT)
    return kept or tuple(b for b in BACKINGS if (program, b) not in LEFT_OUT)[:1]


def settings(program, backing):
    """Environment of one shimmed run."""
    return {"VRAMSHIM_BACKING": backing, **SETTINGS.get(program, {})}


if __name__ == "__main__":
    for each in backings(sys.argv[1], "dlsym"):
        print(*(f"{name}={value}" for name, value in settings(sys.argv[1], each).items()))
