"""A container's health check: exit code 0 when the role that runs in it is ready.

Workers and judges answer at NEARDUP_OPS_PORT, the dashboard at NEARDUP_DASHBOARD_PORT: whichever listens
is asked.
"""

import http.client
import os
import sys

SECONDS = 4.0


def ready(port: int) -> bool | None:
    """What `/readyz` at this port says; None where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        print(f"{port}: {answer.status} {answer.read(2000).decode('utf-8', 'replace')}")  # noqa: T201 (kept by the engine)
        return answer.status == 200
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException) as error:
        print(f"{port}: {error!r}")  # noqa: T201
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    ports = [int(os.environ.get(f"NEARDUP_{name}_PORT", "0")) for name in ("OPS", "DASHBOARD")]
    answers = [answer for port in ports if port > 0 and (answer := ready(port)) is not None]
    sys.exit(0 if answers and all(answers) else 1)
