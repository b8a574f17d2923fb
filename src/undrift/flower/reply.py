"""What a client replies when it cannot do what is asked."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from undrift.engines.messages.packet import Packet
from undrift.engines.node import BadNodeStates


class Untold(Exception):
    """A message leaves out what this node was not told yet, or has forgotten."""


def reply(work: Callable[[], Packet]) -> Packet:
    """What a client replies; what goes wrong is a reply too, ``lasting`` if it would come again."""
    try:
        return work()
    except Untold:
        return Packet({"untold": True})
    except ArithmeticError as error:
        return Packet({"unsound": str(error)})
    except (BadNodeStates, ValueError) as error:
        text, lasting = str(error), True
    except (OSError, MemoryError) as error:
        text, lasting = str(error) or type(error).__name__, False
    except Exception as error:
        traceback.print_exc()
        text, lasting = f"{type(error).__name__}: {error}", True
    return Packet({"error": " ".join(text.split())[:500], "lasting": lasting})
