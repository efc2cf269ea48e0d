"""Captures of every kind, whatever is allocated and freed meanwhile: programs say what they say without
the shim, no capture is broken, and memory comes back."""

import os
import re
import subprocess

from harness import expect, expect_fine, main, run

TESTS = {}
DEVICE = {"VRAMSIM_MEMORY": "64MiB", "VRAMSHIM_REPORT": "none"}
ROOM = {"VRAMSIM_MEMORY": "1GiB"}  # for what is freed while captures never pause


def test(function):
    TESTS[function.__name__] = function
    return function


def same(subject, **more):
    env = {**DEVICE, **more}
    bare = run("captures", subject, env=env, shim=False)
    expect_fine(bare)
    for backing in ("vmm", "native"):
        ours = run("captures", subject, env={**env, "VRAMSHIM_BACKING": backing})
        expect_fine(ours)
        expect(ours.out, bare.out, f"{subject}, {backing}")


@test
def every_begin():
    same("every_begin")


@test
def every_end():
    same("every_end")


@test
def captures_end_with_their_context():
    same("context_ends")


@test
def streams_of_another_device_join():
    same("joined_elsewhere", VRAMSIM_DEVICES="2")


@test
def captures_come_and_go_among_frees():
    # Context events take their time, so that a capture would begin meanwhile if it could.
    same("among_threads", **ROOM, VRAMSIM_COST="cuCtxRecordEvent:100,cuCtxWaitEvent:300")


@test
def legality_is_the_drivers():
    same("legality")


@test
def the_same_on_old_drivers():
    for subject in ("every_end", "among_threads", "legality"):
        same(subject, **ROOM, VRAMSIM_API="12040")


@test
def the_same_when_every_free_waits():
    for subject in ("every_end", "among_threads", "legality"):
        same(subject, **ROOM, VRAMSHIM_STRICT_FREE="on")


# Of the entry points of cuda.h with a stream among their parameters, those that submit nothing. Every
# other one must be hooked; so must copies, fills and launches without one.
NO_WORK = {
    # looks at a stream, or sets what later work will be like
    "cuStreamCopyAttributes", "cuStreamGetAttribute", "cuStreamGetCaptureInfo", "cuStreamGetCtx",
    "cuStreamGetDevice", "cuStreamGetFlags", "cuStreamGetGreenCtx", "cuStreamGetId",
    "cuStreamGetPriority", "cuStreamIsCapturing", "cuStreamSetAttribute",
    # makes one
    "cuStreamCreate", "cuStreamCreateWithPriority", "cuGreenCtxStreamCreate",
    # changes a graph under way
    "cuStreamUpdateCaptureDependencies",
}


def entry_points():
    """Every function of cuda.h, by name, with its parameters."""
    source = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n"
    text = subprocess.run(
        [*os.environ["VS_TEST_CC"].split(), "-E", "-P", "-isystem", os.environ["VS_TEST_CUDA"], "-"],
        input=source, capture_output=True, text=True, check=True,
    ).stdout
    return dict(re.findall(r"CUresult\s+(cu\w+)\s*\(([^;]*)\)\s*;", text))


@test
def nothing_that_submits_is_missed():
    exports = subprocess.run(
        ["nm", "-D", "--defined-only", os.environ["VS_TEST_SHIM"]],
        capture_output=True, text=True, check=True,
    ).stdout.split()
    points = entry_points()
    expect(len(points) > 500, True, "cuda.h was read")
    missed = []
    for name, parameters in points.items():
        base = re.sub(r"(_v\d+)?(_pt[ds][sz])?$", "", name)
        works = re.search(r"\bCUstream\b", parameters) and base not in NO_WORK
        if (works or re.match(r"cuMemcpy|cuMemset|cuLaunch", name)) and name not in exports:
            missed.append(name)
    expect(missed, [], "entry points of cuda.h that submit work and are not hooked")


main(TESTS)
