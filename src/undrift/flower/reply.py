"""What a client replies, and what it was told once."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable
from pathlib import Path

from undrift._files import write_whole
from undrift.engines.messages.packet import Packet
from undrift.engines.node import BadNodeStates


class Untold(Exception):
    """A message leaves out what this node was not told yet, or has lost."""


def told(asked: Packet, file: Path) -> tuple[Packet, bytes]:
    """A message, and what it refers to: told with it, or before and kept in ``file``."""
    table, content = asked
    end = len(content) - int(table.get("once", 0))
    once = content[end:]
    if once:
        # For this user alone, as the states that lie beside it.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, once)
    elif file.exists():
        once = file.read_bytes()
    if hashlib.sha256(once).hexdigest() != table["told"]:
        raise Untold
    return Packet(table, content[:end]), once


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
