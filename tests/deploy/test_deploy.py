"""Files for deployment: they parse, they are as strict as they claim, and they call the options that there are."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sartor import __version__
from sartor.cli.commands import load

yaml = pytest.importorskip("yaml")
DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "sartor"
HELM = os.environ.get("SARTOR_HELM") or shutil.which("helm")  # make deploy-check fetches one
needs_helm = pytest.mark.skipif(HELM is None, reason="no helm: make deploy-check")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def understood(words: list[str]) -> None:
    """A command line of `sartor` names a command and options that there are."""
    known = {name for option in load(words[0]).params for name in option.opts}
    options = [word for word in words if word.startswith("--")]
    assert options and set(options) <= known, set(options) - known


def test_the_containerfile_has_no_rights_and_no_build_tools() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if line.startswith("RUN ")] == ["RUN sh /src/deploy/install.sh /src /opt/sartor"]
    final = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM")) :]
    assert "USER 10001:10001" in final and not any(line.startswith(("RUN", "ADD")) for line in final)
    assert [line for line in final if line.startswith("COPY")] == ["COPY --from=build /opt/sartor /opt/sartor"]
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert all((DEPLOY.parent / name).exists() for name in copied)
    check = (DEPLOY / "check.sh").read_text()  # which copies the same files
    assert all(name.split("/")[-1] in check for name in copied)
    example = re.search(r"sartor (client /kit .*)", text)
    assert example is not None
    understood(shlex.split(example[1]))


def test_compose_is_hardened_and_starts_what_there_is() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"server", "site"}
    for service in services.values():
        assert service["read_only"] is True and service["user"] == "10001:10001" and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"] and service["mem_limit"] and service["pids_limit"]
        assert not any("9464" in str(port) for port in service.get("ports", []))  # health stays inside
        understood(service["command"])
    assert all(":ro" in v for v in services["site"]["volumes"] if "/data" in v)


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.name)
def test_a_unit_is_hardened_and_starts_what_there_is(path: Path) -> None:
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    wanted = {"ProtectSystem": "strict", "NoNewPrivileges": "yes", "User": "sartor", "Restart": "on-failure"}
    wanted |= {"CapabilityBoundingSet": "", "PrivateDevices": "yes", "ProtectHome": "yes", "UMask": "0077"}
    assert {key: found[key] for key in wanted} == {key: [value] for key, value in wanted.items()}
    assert found["MemoryMax"] and found["TasksMax"] and len(found["ReadWritePaths"]) == 1
    assert found["ReadWritePaths"][0] in found["ExecStart"][0]  # the kit, and nothing else, is written
    words = shlex.split(found["ExecStart"][0].removesuffix("$OPTIONS"))
    assert words[0] == "/opt/sartor/bin/sartor"
    given = re.search(r'OPTIONS="(.*)"', path.read_text())
    assert given is not None
    understood([*words[1:], *shlex.split(given[1])])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_knows_every_line_of_the_units_and_finds_little_exposed() -> None:
    verify = ["systemd-analyze", "verify", "--man=no", *map(str, UNITS)]
    said = subprocess.run(verify, capture_output=True, text=True).stderr.splitlines()
    ours = [line for line in said if "sartor" in line and "is not executable: No such file" not in line]
    assert ours == []  # where it is not installed, only that is said
    for path in UNITS:
        command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-300:]


def rendered(*settings: str) -> list[dict[str, Any]]:
    assert HELM is not None
    done = subprocess.run([HELM, "template", "x", str(CHART), *settings], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    json.loads((CHART / "values.schema.json").read_text())


@needs_helm
@pytest.mark.parametrize("role", ["server", "site"])
def test_helm_takes_the_chart_and_its_pods_have_no_rights(role: str) -> None:
    assert HELM is not None
    lint = [HELM, "lint", "--strict", str(CHART), "--set", f"role={role}"]
    done = subprocess.run(lint, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    found = {each["kind"]: each for each in rendered("--set", f"role={role}", "--set", "site.policy=most_rounds = 5")}
    reached = {"Service"} if role == "server" else set()
    assert set(found) == {"Job", "PersistentVolumeClaim", "ConfigMap", "NetworkPolicy"} | reached
    pod = found["Job"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False
    for container in (*pod["initContainers"], *pod["containers"]):
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True and rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]} and container["resources"]["limits"]["memory"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in pod["volumes"]}
    (main,) = pod["containers"]
    assert main["args"][0] == ("server" if role == "server" else "client")
    understood(main["args"])
    ingress = found["NetworkPolicy"]["spec"]["ingress"]
    assert ingress == ([{"ports": [{"protocol": "TCP", "port": 8002}]}] if role == "server" else [])
    if role == "site":
        (data,) = [m for m in main["volumeMounts"] if m["name"] == "data"]
        assert data["readOnly"] is True and "ports" not in main


@needs_helm
@pytest.mark.parametrize("wrong", ["role=nobody", "health.port=0", "resources.limits=null", "storage.size=much"])
def test_helm_refuses_wrong_values(wrong: str) -> None:
    assert HELM is not None
    done = subprocess.run([HELM, "lint", str(CHART), "--set", wrong], capture_output=True, text=True)
    assert done.returncode != 0
