"""Servers as processes of their own, and certificates for them."""

import datetime
import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

START_LIMIT_S = 60


@dataclass
class Served:
    """A running ``mindserve serve`` that has said that it is ready."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return next(line.removeprefix("ready: ") for line in self.lines if line.startswith("ready: "))

    def end(self) -> tuple[int, str]:
        """Exit code and standard error of a server that was told to stop."""
        _, errors = self.process.communicate(timeout=START_LIMIT_S)
        return self.process.returncode, errors


@dataclass
class Command:
    """A finished run of the command line."""

    code: int
    output: str
    errors: str


def _environ(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MIES_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **changes}


@pytest.fixture
def mindserve() -> Callable[..., Command]:
    """Run the command line to its end: ``mindserve("serve", "--port", "80", NAME="value")``."""

    def run(*words: object, **environ: str) -> Command:
        done = subprocess.run(
            [sys.executable, "-m", "mindserve", *map(str, words)],
            capture_output=True,
            text=True,
            env=_environ(**environ),
            timeout=START_LIMIT_S,
        )
        return Command(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start ``mindserve serve`` with the words and wait until it is ready."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: object) -> Served:
        command = [sys.executable, "-m", "mindserve", "serve", *map(str, words)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environ(), bufsize=1
        )
        running.append(process)
        served = Served(process)
        assert process.stdout is not None
        while not (served.lines and served.lines[-1].startswith("curl ")):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            served.lines.append(line.rstrip("\n"))
        return served

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Write a script for the scripted engine: one reply of the given values, and what the model is like."""

    def write(model: dict[str, Any] | None = None, **reply: Any) -> Path:
        path = tmp_path / "script.yaml"
        replies = [{"default": True, "pieces": ["Hel", "lo"], **reply}]
        path.write_text(json.dumps({"replies": replies, **(model or {})}))
        return path

    return write


@dataclass
class Authority:
    """A certificate authority that keeps its files in one folder."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self.certificate = (
            self._builder(self.subject, self.key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        self.file = self._write(f"{self.name}.pem", self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, password: str | None = None) -> tuple[Path, Path]:
        """Certificate and key file for localhost and 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        encryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        pem = serialization.Encoding.PEM
        return (
            self._write(f"{name}.pem", certificate.public_bytes(pem)),
            self._write(f"{name}.key", key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption)),
        )

    def revoke(self, certificate: Path) -> Path:
        """A list of revoked certificates with this one in it."""
        serial = x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number
        now = datetime.datetime.now(datetime.UTC)
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        listed = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.subject)
            .last_update(now - datetime.timedelta(days=1))
            .next_update(now + datetime.timedelta(days=1))
            .add_revoked_certificate(revoked)
            .sign(self.key, hashes.SHA256())
        )
        return self._write(f"{self.name}.crl", listed.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def _write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path


@pytest.fixture
def authority(tmp_path: Path) -> Callable[[str], Authority]:
    return lambda name: Authority(tmp_path, name)
