"""What a SuperNode starts for every message: it has the launcher of the node do it.

``python shim.py SOCKET ARGUMENTS ...``. It uses nothing but Python's own library, so that it starts
at once, and lives for as long as the process that the launcher makes.
"""

import json
import socket
import sys
import time

PATIENCE = 60.0


def reached(path: str) -> socket.socket:
    """A line to the launcher; one that is being started again is waited for."""
    until = time.monotonic() + PATIENCE
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def main() -> int:
    path, *arguments = sys.argv[1:]
    with reached(path) as connection:
        text = json.dumps(arguments).encode()
        socket.send_fds(connection, [len(text).to_bytes(4, "little") + text], [1, 2])
        while connection.recv(1):
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
