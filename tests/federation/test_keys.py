"""Keys that their owners make: what crosses between a site and the authority, and what does not fit together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commandline import good, refused

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sartor.federation import certificates, signing_requests
from sartor.federation.kits import Kit


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority that has signed nothing."""
    out = tmp_path_factory.mktemp("offline") / "trial"
    good(
        "federation",
        "init",
        "--name",
        "trial",
        "--server",
        "localhost:443",
        "--sites",
        "a,b",
        "--out",
        out,
        "--requests",
    )
    return out


@pytest.fixture
def kits(offline: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(offline, tmp_path / "kits"))


@pytest.fixture(autouse=True, scope="module")
def smaller_keys() -> object:
    """Quickly made ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signing_requests, "KEY_BITS", 2048)
        yield


def asked(folder: Path, site: str = "a", name: str = "trial") -> Path:
    good("federation", "request", "--name", name, "--site", site, "--out", folder)
    return folder / "request.csr"


def test_an_authority_alone_makes_no_key_of_a_member(offline: Path) -> None:
    assert {p.name for p in offline.rglob("*") if p.is_file()} == {"README.txt", "book.json", "cert.json"}
    state = json.loads((offline / "keep-apart" / "cert.json").read_text())
    assert json.dumps(state).count("PRIVATE KEY") == 2  # the beginning and the end of one
    assert (offline / "keep-apart" / "cert.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("who", ["a", "server"])
def test_a_key_stays_where_it_was_made_and_makes_a_whole_kit(kits: Path, who: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    request = asked(mine, who)
    key = (mine / "request.key").read_text()
    assert (mine / "request.key").stat().st_mode & 0o777 == 0o600 and "PRIVATE" not in request.read_text()
    said = good("federation", "request", "--name", "trial", "--site", "b", "--out", tmp_path / "b").out
    words = certificates.key_words(signing_requests.read_request(tmp_path / "b" / "request.csr").public_key())
    assert words in said and len(words.replace(" ", "")) == 32
    answer = tmp_path / "answer"
    signed = good("federation", "sign", kits, request, "--out", answer).out
    good("federation", "join", mine, answer)
    assert not [p for p in kits.rglob("*") if p.is_file() and key in p.read_text()]
    assert "PRIVATE KEY" not in answer.read_text()  # nor does the authority send its own
    part = "server" if who == "server" else "client"
    assert (mine / "startup" / f"{part}.key").read_text() == key
    assert not (mine / "request.key").exists()
    kit = Kit.load(mine, "server" if who == "server" else "site")
    root = certificates.read(mine / "startup" / "rootCA.pem")
    assert (kit.federation, kit.who, kit.port) == ("trial", who, 443)
    assert kit.sites == (["a", "b"] if who == "server" else []) and kit.authority == certificates.fingerprint(root)
    assert certificates.key_words(root.public_key()) in signed
    assert json.loads((mine / "local" / "resources.json").read_text())["class_list_enforcement_mode"] == "enforce"
    assert not list(mine.rglob("*.sh"))  # nothing that starts NVFlare without looking at the list
    own = certificates.read(mine / "startup" / f"{part}.crt")
    use = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [ExtendedKeyUsageOID.SERVER_AUTH if who == "server" else ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificates.issued_by(own, root)


def test_the_authority_may_be_kept_elsewhere(kits: Path, tmp_path: Path) -> None:
    """On a stick, say: keep-apart/ alone can sign."""
    stick = Path(shutil.move(kits / "keep-apart", tmp_path / "stick"))
    request = asked(tmp_path / "a")
    line = refused("federation", "sign", kits, request, "--out", tmp_path / "answer")
    assert "is not an authority's folder" in line and "keep-apart/" in line
    good("federation", "sign", stick, request, "--out", tmp_path / "answer")
    good("federation", "join", tmp_path / "a", tmp_path / "answer")


def test_an_authority_without_its_key_signs_nothing(kits: Path, tmp_path: Path) -> None:
    place = kits / "keep-apart" / "cert.json"
    state = json.loads(place.read_text())
    request = asked(tmp_path / "a")
    place.write_text(json.dumps({k: v for k, v in state.items() if k != "root_pri_key"}))
    assert "without its key" in refused("federation", "sign", kits, request, "--out", tmp_path / "x")
    other = certificates.key_text(rsa.generate_private_key(65537, 2048))
    place.write_text(json.dumps(state | {"root_pri_key": other}))
    assert "the key is not that of its certificate" in refused(
        "federation", "sign", kits, request, "--out", tmp_path / "x"
    )
    assert not (tmp_path / "x").exists()


def test_requests_that_cannot_be_signed_are_refused_in_one_line(kits: Path, tmp_path: Path) -> None:
    def line(request: Path) -> str:
        return refused("federation", "sign", kits, request, "--out", tmp_path / "x")

    assert "is for the federation 'other', and this is the authority of 'trial'" in line(
        asked(tmp_path / "o", "a", "other")
    )
    wrong = line(asked(tmp_path / "aa", "bb"))
    assert "unknown site of trial 'bb': did you mean b?" in wrong and "sartor federation add" in wrong
    first, second = asked(tmp_path / "a1"), asked(tmp_path / "a2")
    good("federation", "sign", kits, first, "--out", tmp_path / "answer")
    assert "the name a is taken: it has a certificate until" in line(second) and "rotate" in line(second)
    (tmp_path / "text").write_text("please sign")
    assert "is not a signing request" in line(tmp_path / "text")
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "b"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "trial")]
    )
    made = x509.CertificateSigningRequestBuilder().subject_name(name)
    curve = made.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    (tmp_path / "curve").write_bytes(curve.public_bytes(serialization.Encoding.PEM))
    assert "another key than RSA" in line(tmp_path / "curve")
    changed = bytearray(
        made.sign(rsa.generate_private_key(65537, 2048), hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    )
    changed[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(changed)).public_bytes(serialization.Encoding.PEM)
    (tmp_path / "forged").write_bytes(forged)
    assert "not signed with its own key" in line(tmp_path / "forged")
    assert not (tmp_path / "x").exists()


def test_a_request_does_not_take_a_keys_place(tmp_path: Path) -> None:
    asked(tmp_path / "a")
    before = (tmp_path / "a" / "request.key").read_bytes()
    line = refused("federation", "request", "--name", "trial", "--site", "a", "--out", tmp_path / "a")
    assert "waits for its answer already" in line and (tmp_path / "a" / "request.key").read_bytes() == before
    assert "letters a-z" in refused(
        "federation", "request", "--name", "trial", "--site", "A b", "--out", tmp_path / "x"
    )
    assert "a federation's name" in refused(
        "federation", "request", "--name", "", "--site", "a", "--out", tmp_path / "x"
    )
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def answered(offline: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site's folder `a`, and the answer to its request."""
    here = tmp_path_factory.mktemp("answered")
    kits = shutil.copytree(offline, here / "kits")
    good("federation", "sign", kits, asked(here / "a"), "--out", here / "answer")
    return here


def _swap(name: str, value: object) -> Callable[[dict[str, object]], None]:
    return lambda answer: answer.update({name: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_swap("who", "b"), "is for b in trial, and the key in"),
        (_swap("federation", "other"), "is for a in other, and the key in"),
        (_swap("certificate", "none"), "no certificate that can be read"),
        (_swap("host", "../evil"), "--server is HOST:PORT"),
        (_swap("port", "443"), "is not as Sartor writes it: port"),
        (_swap("extra", 1), "is not as Sartor writes it: extra"),
        (_swap("revoked", "nothing"), "is not signed by this federation's authority"),
    ],
)
def test_parts_that_do_not_match_make_no_kit(
    answered: Path, change: Callable[[dict[str, object]], None], words: str, tmp_path: Path
) -> None:
    shutil.copytree(answered, tmp_path, dirs_exist_ok=True)
    answer = tmp_path / "answer"
    told = json.loads(answer.read_text())
    change(told)
    answer.write_text(json.dumps(told))
    assert words in refused("federation", "join", tmp_path / "a", answer)
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["request.csr", "request.key"]  # nothing is lost


def test_another_key_or_authority_makes_no_kit(kits: Path, tmp_path: Path) -> None:
    good("federation", "sign", kits, asked(tmp_path / "a"), "--out", tmp_path / "answer")
    asked(tmp_path / "later")
    line = refused("federation", "join", tmp_path / "later", tmp_path / "answer")
    assert "is for another key than the one in" in line and "do not belong together" in line
    assert "holds no key that waits" in refused("federation", "join", tmp_path / "none", tmp_path / "answer")
    told = json.loads((tmp_path / "answer").read_text())
    other = tmp_path / "other"
    good(
        "federation", "init", "--name", "trial", "--server", "localhost:1", "--sites", "a", "--out", other, "--requests"
    )
    foreign = json.loads((other / "keep-apart" / "cert.json").read_text())["root_cert"]
    (tmp_path / "mixed").write_text(json.dumps(told | {"authority": foreign}))
    assert "that its authority has not signed" in refused("federation", "join", tmp_path / "a", tmp_path / "mixed")
    good("federation", "join", tmp_path / "a", tmp_path / "answer")
    good("federation", "sign", other, asked(tmp_path / "a"), "--out", tmp_path / "theirs")
    assert "by another authority" in refused("federation", "join", tmp_path / "a", tmp_path / "theirs")
    assert Kit.load(tmp_path / "a", "site").port == 443  # the kit is as it was


def test_a_clock_that_is_off_is_said_with_both_times(
    kits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good("federation", "sign", kits, asked(tmp_path / "a"), "--out", tmp_path / "answer")

    class Clock(datetime):
        days = 0

        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(days=cls.days)

    monkeypatch.setattr(certificates, "datetime", Clock)
    for days, words in ((-2, "is valid from"), (400, "expired on")):
        Clock.days = days
        line = refused("federation", "join", tmp_path / "a", tmp_path / "answer")
        there = datetime.now(UTC) + timedelta(days=days)
        assert words in line and f"this machine's clock says {there:%Y-%m-%d}" in line
    Clock.days = 4000
    assert "the certificate of the authority expired on" in refused(
        "federation", "sign", kits, tmp_path / "a" / "request.csr", "--out", tmp_path / "y"
    )
    Clock.days = 0
    good("federation", "join", tmp_path / "a", tmp_path / "answer")
