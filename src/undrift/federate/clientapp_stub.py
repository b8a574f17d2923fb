"""What a SuperNode starts for every message: it has ``no_sent_code`` do it, which is loaded.

``python clientapp_stub.py SOCKET ARGUMENTS ...``. It uses nothing but Python's own library, so that
it starts at once, and lives for as long as the process that does the work.
"""

import socket
import sys
import time

PATIENCE = 60.0


def reached(path: str) -> socket.socket:
    """A line to the other process; one that is being started again is waited for."""
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


def main() -> None:
    path, *arguments = sys.argv[1:]
    with reached(path) as connection:
        connection.sendall("\0".join(arguments).encode())
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # nothing comes, until that process ends


if __name__ == "__main__":
    main()
