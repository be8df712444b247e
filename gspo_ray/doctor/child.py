"""The process that runs checks: what to do on stdin, one finding a line into the pipe whose number it is given."""

from __future__ import annotations

import json
import os
import sys

from gspo_ray.config import RunConfig
from gspo_ray.doctor.checks import Place, checks


def main() -> None:
    pipe = int(sys.argv[1])
    os.set_inheritable(pipe, False)  # an engine left behind would hold it open
    request = json.load(sys.stdin)
    config = RunConfig.model_validate(request["config"])
    wanted = set(request["names"])
    with os.fdopen(pipe, "w", encoding="utf-8") as findings:
        for check in checks(config, Place(**request["place"]), quick=request["quick"]):
            if check.name in wanted:
                print(json.dumps(check.attempt().as_dict()), file=findings, flush=True)


if __name__ == "__main__":
    main()
