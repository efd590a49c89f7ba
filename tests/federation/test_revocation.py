"""Lists of revoked certificates: who may write them, which one counts, and who is refused by them."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from identities import certificate, identities, written
from sites import NAMES, QUICK, Federation, tables

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from sartor.errors import Refused, SartorError
from sartor.federation.masks import Identity, ServerMasks, SiteMasks
from sartor.federation.revocation import LIST, Revoked, in_use, newer, signed
from sartor.federation.rounds import decode
from sartor.federation.rounds.masking import SumOf
from sartor.run.recipe import Recipe

RUN = "1" * 32


@pytest.fixture(scope="module")
def root() -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    key = rsa.generate_private_key(65537, 2048)
    return certificate("trial", key, "trial", key), key


Root = tuple[x509.Certificate, rsa.RSAPrivateKey]


def members(root: Root, names: tuple[str, ...] = NAMES) -> dict[str, Identity]:
    """Sites of an authority whose key is at hand."""
    found = {}
    for name, old in identities(names).items():
        found[name] = Identity(name, certificate(name, old.key, "trial", root[1]), old.key, root[0])
    return found


def revoked(root: Root, number: int, *gone: Identity) -> Revoked:
    return signed([i.certificate.serial_number for i in gone], number, *root)


def test_a_list_is_the_authoritys_and_openssl_reads_it(root: Root) -> None:
    a, b, _ = members(root).values()
    made = revoked(root, 7, a)
    read = Revoked.of(made.text, root[0], "it")
    assert read == made and read.number == 7
    assert a.certificate in read and b.certificate not in read
    assert x509.load_pem_x509_crl(made.text.encode()).next_update_utc == root[0].not_valid_after_utc


def test_a_list_that_was_changed_or_is_anothers_is_refused(root: Root) -> None:
    a = members(root)["a"]
    made = revoked(root, 1, a)
    crl = x509.load_pem_x509_crl(made.text.encode())
    plain = crl.public_bytes(serialization.Encoding.DER)
    serial = a.certificate.serial_number.to_bytes(20, "big").lstrip(b"\0")
    assert plain.count(serial) == 1
    other = serial[:-1] + bytes([serial[-1] ^ 1])
    forged = x509.load_der_x509_crl(plain.replace(serial, other)).public_bytes(serialization.Encoding.PEM).decode()
    key = rsa.generate_private_key(65537, 2048)
    foreign = signed([], 9, certificate("trial", key, "trial", key), key).text
    now = datetime.datetime.now(datetime.UTC)
    bare = x509.CertificateRevocationListBuilder().issuer_name(root[0].subject).last_update(now)
    unnumbered = bare.next_update(now + datetime.timedelta(days=1)).sign(root[1], hashes.SHA256())
    nameless = unnumbered.public_bytes(serialization.Encoding.PEM).decode()
    for text in (forged, foreign, nameless, made.text[:-60], "no list", "x" * (1 << 21)):
        with pytest.raises(SartorError, match="is not signed by this federation's authority"):
            Revoked.of(text, root[0], "it")


def test_an_old_list_does_not_take_a_newer_ones_place(root: Root, tmp_path: Path) -> None:
    a, b, _ = members(root).values()
    first, second = revoked(root, 1, a), revoked(root, 2, a, b)
    assert in_use(tmp_path, root[0]) == Revoked()
    assert newer(tmp_path, second.text, root[0]) == (second, second)
    assert newer(tmp_path, first.text, root[0]) == (second, first)  # a server with an old one changes nothing
    assert newer(tmp_path, "", root[0]) == (second, Revoked())
    assert in_use(tmp_path, root[0]) == second
    (tmp_path / LIST).write_text(first.text)
    with pytest.raises(
        SartorError, match=r"is list 1 of revoked certificates, and list 2 was in use here: an older one"
    ):
        in_use(tmp_path, root[0])
    (tmp_path / LIST).unlink()
    with pytest.raises(SartorError, match="is no list of revoked certificates, and list 2 was in use"):
        in_use(tmp_path, root[0])


def test_a_revoked_sites_key_for_masks_is_refused_by_server_and_sites(root: Root, tmp_path: Path) -> None:
    known = members(root)
    gone = revoked(root, 3, known["c"])
    keys = {name: SiteMasks(tmp_path / name, RUN, own, 3).signed_key() for name, own in known.items()}
    server = ServerMasks(RUN, 3, root[0], gone)
    for name in "ab":
        server.take(name, list(keys[name]))
    with pytest.raises(SartorError, match=r"the key of site c is signed with a certificate that is revoked \(list 3\)"):
        server.take("c", list(keys["c"]))
    told = {name: list(key) for name, key in keys.items()}
    SiteMasks(tmp_path / "a", RUN, known["a"], 3).opened(SumOf(0), told)  # who has no list takes it
    with pytest.raises(Refused, match="certificate that is revoked") as refusal:
        SiteMasks(tmp_path / "a", RUN, replace(known["a"], revoked=gone), 3).opened(SumOf(1), told)
    assert refusal.value.limit == "secure_keys"


def _kept(root: Root, tmp_path: Path, names: tuple[str, ...] = NAMES) -> dict[str, Identity]:
    """The same from kits on disk."""
    return {
        name: Identity.load(written(own, tmp_path / "kits" / name), name) for name, own in members(root, names).items()
    }


FOUR = (*NAMES, "d")


def test_a_welcome_brings_the_list_and_a_revoked_site_is_left_out_of_masked_sums(root: Root, tmp_path: Path) -> None:
    """Four sites, of which d is revoked."""
    paths = tables(tmp_path / "tables", FOUR)
    recipe = Recipe(method="flame", secure_aggregation=True, **QUICK)
    fed = Federation(tmp_path / "fed", recipe, paths, identities=_kept(root, tmp_path, FOUR))
    gone = revoked(root, 1, fed.identities["d"])
    calls = fed.calls(FOUR)
    lead = fed.lead(calls)
    lead.revoked = gone
    list(lead.play())
    trained = {site for way, site, data in calls.seen if way == "up" and decode(data).note.get("stage") == "train"}
    assert trained == set(NAMES)
    assert any("site d is left out" in line and "certificate that is revoked (list 1)" in line for line in fed.said)
    for name in FOUR:
        assert in_use(tmp_path / "kits" / name, root[0]) == gone


def test_a_site_refuses_a_list_that_was_changed_and_keeps_its_own_if_it_is_newer(root: Root, tmp_path: Path) -> None:
    paths, recipe = tables(tmp_path / "tables"), Recipe(method="flame", **QUICK)
    fed = Federation(tmp_path / "fed", recipe, paths, identities=_kept(root, tmp_path))
    stranger = identities(("x",), "others")["x"]
    old, new = revoked(root, 4), revoked(root, 5, stranger)
    newer(tmp_path / "kits" / "b", new.text, root[0])
    lead = fed.lead(fed.calls())
    lead.revoked = replace(old, text=old.text.replace("BEGIN", "BEGIN", 1)[:-40] + "\n-----END X509 CRL-----\n")
    with pytest.raises(
        SartorError, match=r"only 0 of at least 1 sites can take part; .*is not signed by this federation"
    ):
        list(lead.play())
    fed = Federation(tmp_path / "again", recipe, paths, identities=_kept(root, tmp_path / "more"))
    newer(tmp_path / "more" / "kits" / "b", new.text, root[0])
    lead = fed.lead(fed.calls())
    lead.revoked = old
    list(lead.play())
    assert "b: the server has list 4 of revoked certificates; this site keeps its own, list 5" in fed.said
    assert [in_use(tmp_path / "more" / "kits" / n, root[0]).number for n in NAMES] == [4, 5, 4]
