"""`python -m adapters.proof_worker`: judges one upload, read as JSON from standard input, under limits."""

from __future__ import annotations

import resource
import sys

import msgspec

from adapters.proof import WORKER_MEMORY_BYTES, Job, judge


def main() -> int:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_BYTES, WORKER_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_s, job.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it has nothing to write but its answer
    sys.stdout.buffer.write(msgspec.json.encode(judge(job)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
