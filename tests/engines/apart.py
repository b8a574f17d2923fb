"""Ranks that call different collectives, as they must not; a test starts this file."""

import sys

import torch

from undrift.engines import ranks

ranks.BEAT, ranks.NOTICE = 0.2, 1.0


def main() -> int:
    here = ranks.Ranks(torch.device("cpu"), patience=4.0)
    here.tell("what both know")
    try:
        here.tell() if here.rank else here.sum(torch.ones(1))
    except ranks.RankLost as error:
        print(error, flush=True)
        return 3
    finally:
        ranks.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
