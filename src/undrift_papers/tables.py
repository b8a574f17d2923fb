"""Tables of the papers: printed values beside those computed from undrift's methods and theory.

Printed values are data, ours are computed: costs and states from the method classes, step sizes
from the rules of ``theory``, rates and complexities from its bounds. Where a cell of ours is empty,
the printed one is only quoted.
"""

from __future__ import annotations

from collections.abc import Callable

from undrift_papers.fedrecu.tables import fedrecu_memory, fedrecu_steps
from undrift_papers.fedred.table import fedred_complexities
from undrift_papers.quoted import QuotedTable

TABLES: dict[str, Callable[[], QuotedTable]] = {
    "fedrecu/table-1": fedrecu_memory,
    "fedrecu/table-2": fedrecu_steps,
    "fedred/table-1": fedred_complexities,
}
