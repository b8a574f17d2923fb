"""What a message asks of a client, and what a client says when it cannot do it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from undrift.engines.federated import Call
from undrift.engines.generations import BadGeneration, Tag
from undrift.flower.parcel import Parcel


class Untold(Exception):
    """A message names what this node was not told, or has forgotten."""


def written(call: Call) -> dict[str, object]:
    """A call as a table, without its frame."""
    return {
        "do": "work",
        "tag": call.tag,
        "before": call.before,
        "keep": call.keep,
        "skipped": [*call.skipped],
        "gone": [*call.gone],
    }


def read(table: Mapping[str, Any], client: int, frame: bytes) -> Call:
    """The call that was written."""
    return Call(
        client=client,
        tag=Tag(*table["tag"]),
        before=Tag(*table["before"]) if table["before"] else None,
        keep=[Tag(*kept) for kept in table["keep"]],
        skipped=table["skipped"],
        gone=table["gone"],
        frame=frame,
    )


def answered(work: Callable[[], Parcel]) -> Parcel:
    """The reply of a client; what goes wrong is a reply too."""
    try:
        return work()
    except Untold:
        return Parcel({"untold": True})
    except (BadGeneration, ValueError) as error:
        return _trouble(str(error), lasting=True)
    except ArithmeticError as error:
        return Parcel({"unsound": str(error)})
    except (OSError, MemoryError) as error:
        return _trouble(str(error) or type(error).__name__, lasting=False)
    except Exception as error:
        traceback.print_exc()
        return _trouble(f"{type(error).__name__}: {error}", lasting=True)


def _trouble(text: str, lasting: bool) -> Parcel:
    return Parcel({"error": " ".join(text.split())[:500], "lasting": lasting})
