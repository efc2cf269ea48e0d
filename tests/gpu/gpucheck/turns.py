"""Long-lived clients that take turns on one idle machine, so that what drifts hits all alike."""
import contextlib
import json
import os
import queue
import signal
import subprocess
import threading


class Partner:
    """A long-lived client that answers each line with one JSON line (torch_steptime.py)."""

    def __init__(self, context, argv, shim, report=None, env=None):
        self._folder = context.folder("partner")
        with open(os.path.join(self._folder, "stderr"), "wb") as err:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
                cwd=self._folder, start_new_session=True,
                env=context.environment(env, shim, report))
        self._held = context.group(self._process)
        self._held.__enter__()
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def said(self):
        """The end of its stderr so far."""
        with open(os.path.join(self._folder, "stderr"), "rb") as err:
            return err.read()[-1500:].decode("utf-8", "backslashreplace")

    def answer(self, timeout):
        """The next JSON line; RuntimeError if none comes, or one that says "error"."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise RuntimeError(f"no answer within {timeout:.0f} s") from None
        if line is None:
            raise RuntimeError(f"it ended, code {self._process.wait()}\n{self.said()}")
        try:
            found = json.loads(line)
        except ValueError:
            raise RuntimeError(f"it said {line!r}\n{self.said()}") from None
        if "error" in found:
            raise RuntimeError(f"{found['error']}\n{self.said()}")
        return found

    def ask(self, text, timeout):
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except OSError:  # it has ended: the answer says how
            pass
        return self.answer(timeout)

    def close(self):
        """Asks it to end, waits a little, and kills what is left."""
        with contextlib.suppress(OSError):
            self._process.stdin.write("quit\n")
            self._process.stdin.close()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()
        finally:
            self._held.__exit__(None, None, None)


def turns(partners, pairs, ask):
    """Blocks of every partner in every round, the order turned about from round to round (A B C, then
    C B A), so that a steady drift cancels. Returns {name: [ms a step of each block]}."""
    names = list(partners)
    found = {name: [] for name in names}
    for number in range(pairs):
        for name in names if number % 2 == 0 else reversed(names):
            found[name].append(ask(partners[name]))
    return found


class Company:
    """Several partners by name. One that fails is left out from then on, and the others go on:
    .failed[name] says why. .ended[name] says, after close(), what was wrong with an end."""

    def __init__(self, context, wanted=None, timeout=120):
        """wanted: as for start()."""
        self._context, self._partners, self.failed, self.ready, self.ended = context, {}, {}, {}, {}
        self.start(wanted or {}, timeout)

    def start(self, wanted, timeout=120):
        """wanted: {name: (argv, shim?, report or None, env or None)}. All start at once; .ready[name]
        is the line that each says when it is."""
        for name, (argv, shim, report, env) in wanted.items():
            try:
                self._partners[name] = Partner(self._context, argv, shim, report, env)
            except OSError as error:
                self.failed[name] = str(error)
        for name in wanted:
            if name not in self.failed:
                self._try(name, lambda: self.ready.update(
                    {name: self._partners[name].answer(self._context.left(timeout))}))

    def _try(self, name, what):
        try:
            return what()
        except (RuntimeError, OSError, ValueError) as error:
            self.failed[name] = str(error)
            return None

    def ask(self, name, text, timeout=60):
        """The answer, or None where there is none (any more)."""
        if name in self.failed:
            return None
        return self._try(name, lambda: self._partners[name].ask(text, self._context.left(timeout)))

    def rounds(self, plan, count):
        """plan: [(key, name, command)], gone through count times, forwards and backwards by turns.
        {key: [answers]}; a key whose partner failed has fewer."""
        found = {key: [] for key, _, _ in plan}
        for number in range(count):
            for key, name, text in plan if number % 2 == 0 else reversed(plan):
                answer = self.ask(name, text)
                if answer is not None:
                    found[key].append(answer)
        return found

    def close(self):
        for name, partner in self._partners.items():
            code = partner.close()
            if code != 0 and name not in self.failed:
                self.ended[name] = f"its exit code was {code}\n{partner.said()}"
