"""Stands in for ssh and for an agent that answers what it likes: `EVIL` is Python for the answer to each request.

`request` is what was asked. Text is sent as a whole line, bytes as they are, everything else as the value of an answer.
"""

import base64
import json
import os
import sys


def value(found: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(found).decode()}


HONEST: dict[str, object] = {
    "hello": {"pid": 1, "started": 2, "boot": "b", "uid": 0},
    "close": None,
}


def main() -> None:
    if "-O" in sys.argv:
        return
    sys.stdout.write("welcome\n\npgstrata-agent-ready 3.11\n")
    sys.stdout.flush()
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    source.read(int(source.readline()))
    for line in source:
        request = json.loads(line)
        answer = HONEST[request["op"]] if request["op"] in HONEST else eval(os.environ["EVIL"])
        if isinstance(answer, str):
            answer = answer.encode() + b"\n"
        if not isinstance(answer, bytes):
            answer = json.dumps({"id": request["id"], "value": answer}).encode() + b"\n"
        sink.write(answer)
        sink.flush()


try:
    main()
except BrokenPipeError:
    os._exit(1)
