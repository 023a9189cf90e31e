"""The certificate that a server shows: read at start, and again when its files change. It knows no HTTP."""

from __future__ import annotations

import logging
import os
import ssl

from shoal.errors import InvalidRequest
from shoal.settings import GatewaySettings

__all__ = ["Certificate"]

_log = logging.getLogger(__name__)


class Certificate:
    """A certificate with its key.

    Attributes:
        context: TLS 1.2 and newer; connections made after a change of the files show the new certificate.

    Raises:
        InvalidRequest: a file cannot be read, or is not what it should be.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._files = (settings.tls_cert, settings.tls_key or settings.tls_cert)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._seen = self._stamps()
        try:
            self._load()
            if settings.tls_client_ca:
                self.context.load_verify_locations(settings.tls_client_ca)
                self.context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(filter(None, (*dict.fromkeys(self._files), settings.tls_client_ca)))
            raise InvalidRequest(f"No TLS with {files}: {error}.", param="tls_cert") from None

    def refresh(self) -> None:
        """Read the files again if they have changed; if they do not fit, the old certificate stays."""
        if (stamps := self._stamps()) == self._seen:
            return
        self._seen = stamps
        try:
            self._load()
        except OSError as error:
            _log.error("the certificate stays as it was: %s", error)
        else:
            _log.info("%s: read again", self._files[0])

    def _load(self) -> None:
        # Tried first: a key that does not fit would leave the context with the new certificate and no key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
        self.context.load_cert_chain(*self._files)

    def _stamps(self) -> list[object]:
        return [_stamp(name) for name in self._files]


def _stamp(name: str) -> object:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
