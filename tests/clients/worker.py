"""What long-lived clients share that another process drives through pipes, so that several can take turns
on one idle GPU and what drifts hits all alike.

A client reads commands on stdin, one a line, and answers each with one JSON line on stdout; the first line,
unasked, says that it is ready. "quit" or the end of its input ends it. What a client was not told to do,
it answers with {"error": …}.
"""
import json
import os
import sys


def add_cpus(parser):
    """The option --cpus, for stay_on()."""
    parser.add_argument("--cpus", type=int, metavar="N",
                        help="stay on the first N processors, as other runs to compare with do")


def stay_on(cpus):
    if cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])


def answer(line, commands):
    """commands: {word: function of the words behind it, as text, that gives a dict}."""
    words = line.split()
    if words[0] not in commands:
        return {"error": f"unknown command {line.strip()!r}"}
    try:
        return commands[words[0]](*words[1:])
    except (TypeError, ValueError) as problem:
        return {"error": f"{line.strip()!r}: {problem}"}


def serve(commands, **ready):
    """Says that it is ready, with what is known by then, and obeys until it is told to quit."""
    print(json.dumps({"ready": True, **ready}), flush=True)
    for line in sys.stdin:
        if not line.strip() or line.split()[0] == "quit":
            break
        print(json.dumps(answer(line, commands)), flush=True)
