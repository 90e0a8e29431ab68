"""A contender that speaks the line protocol without a model: `python fake_peer.py BEHAVIOUR [RATE]`. Written apart from
`job_loop.py`, so that both ends of the line are held to the protocol. Started as a script; imports nothing of octavo.
"""

import json
import os
import sys
import threading
import time


def figures(rate: float) -> dict[str, float]:
    return {
        "prefill_tokens": 2 * rate,
        "prefill_s": 1.0,
        "decode_tokens": rate,
        "decode_s": 1.0,
        "output_tokens": rate / 2,
        "wall_s": 1.0,
    }


def spin() -> None:
    while True:
        pass


def main(behaviour: str, rate: float) -> None:
    print("loading the fake peer", file=sys.stderr)
    for number, line in enumerate(sys.stdin, start=1):
        job = json.loads(line)
        answer = {"id": job["id"], "figures": figures(rate), "settings": job["settings"], "versions": {"fake": "1.0"}}
        if behaviour == "scaled":  # the rate is in the job: what differs between entries
            answer["figures"] = figures(job["settings"].get("rate", rate))
        elif behaviour == "crash" or (behaviour == "crash-later" and number > 2):
            print("Segmentation fault (pretended)", file=sys.stderr)
            os._exit(139)
        elif behaviour == "hang":
            time.sleep(600)
        elif behaviour == "garbage":
            print("llama_model_loader: loaded meta data", flush=True)
            continue
        elif behaviour == "endless-line":
            sys.stdout.write("x" * (1 << 22))
        elif behaviour == "wrong-number":
            answer["id"] = 99
        elif behaviour == "refuses":
            answer = {"id": job["id"], "error": "no such model here"}
        elif behaviour == "no-figures":
            answer["figures"] = {}
        elif behaviour == "spins" and number == 1:
            threading.Thread(target=spin, daemon=True).start()
        print(json.dumps({**answer, "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 100.0)
