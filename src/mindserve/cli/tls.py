"""TLS as MindIE has it: version 1.3, and a client certificate as soon as an authority for clients is named."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path

from mindserve.config.listen import Listen, TlsFiles
from mindserve.errors import StartupError


def tls_contexts(addresses: Iterable[Listen]) -> list[ssl.SSLContext | None]:
    """One context per address, ``None`` for plain http. Raises ``StartupError``."""
    return [None if address.tls is None else server_context(address.tls) for address in addresses]


def server_context(tls: TlsFiles) -> ssl.SSLContext:
    """The context of one listening socket, all files read. Raises ``StartupError`` naming the key at fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _load_certificate(context, tls)
    for number, file in enumerate(tls.ca):
        _load_authority(context, file, f"{_key(tls, 'CaFile')}[{number}]")
    if tls.ca:
        context.verify_mode = ssl.CERT_REQUIRED
    for number, file in enumerate(tls.crl):
        _load_authority(context, file, f"{_key(tls, 'CrlFiles')}[{number}]")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _key(tls: TlsFiles, name: str) -> str:
    return f"ServerConfig.{tls.prefix}{name}"


def _load_certificate(context: ssl.SSLContext, tls: TlsFiles) -> None:
    if tls.cert is None or tls.key is None:
        raise StartupError(f"{_key(tls, 'Cert')} and {_key(tls, 'Pk')} are needed for https")
    _must_be_pem(tls.cert, "CERTIFICATE", _key(tls, "Cert"))
    _must_be_pem(tls.key, "PRIVATE KEY", _key(tls, "Pk"))
    password = _Password(tls.key_password, _key(tls, "PkPwd"))
    try:
        context.load_cert_chain(tls.cert, tls.key, password=password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise StartupError(_certificate_problem(tls, error, asked=password.asked)) from error


def _certificate_problem(tls: TlsFiles, error: Exception, *, asked: bool) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return f"{_key(tls, 'Pk')}: {tls.key} is not the key of the certificate {tls.cert}"
    if asked:
        return f"{_key(tls, 'PkPwd')}: {tls.key_password} does not hold the password of {tls.key}"
    reason = error.reason if isinstance(error, ssl.SSLError) else error
    return f"{_key(tls, 'Cert')}: {tls.cert} and {tls.key} cannot be used: {reason}"


class _Password:
    """Called only when the key is encrypted, so that a file nobody needs may be missing."""

    def __init__(self, file: Path | None, key: str) -> None:
        self._file = file
        self._key = key
        self.asked = False

    def __call__(self) -> str:
        if self._file is None:
            raise StartupError(f"{self._key}: the private key is encrypted: name a file with its password here")
        password = _read(self._file, self._key).splitlines()[:1]
        self.asked = True
        return password[0] if password else ""


def _load_authority(context: ssl.SSLContext, file: Path, key: str) -> None:
    _must_be_pem(file, "X509 CRL" if "Crl" in key else "CERTIFICATE", key)
    try:
        context.load_verify_locations(cafile=file)
    except (ssl.SSLError, OSError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error
        raise StartupError(f"{key}: {file} cannot be used: {reason}") from error


def _must_be_pem(file: Path, label: str, key: str) -> None:
    """OpenSSL's own words for a wrong file are "no start line"."""
    text = _read(file, key)
    if not any(line.startswith("-----BEGIN") and label in line for line in text.splitlines()):
        raise StartupError(f"{key}: {file} holds no PEM block {label}")


def _read(file: Path, key: str) -> str:
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise StartupError(f"{key}: {file} cannot be read: {error.strerror or error}") from error
