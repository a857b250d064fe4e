"""Holds the documents to what Weir does."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import configuration
from blocks import ROOT, blocks, documents
from session import Session, same

WEIR = os.path.abspath(os.environ.get("WEIR_BIN", ROOT / "target/debug/weir"))
ALONE = os.environ.get("WEIR_DOCS_NAMESPACE") == "yes"
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Documents(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="weir-docs-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def test_every_block_says_how_it_is_tested(self):
        known = {"toml": {"in", "file"}, "console": {"run", "with", "docker", "tools", "start"}}
        for document in documents():
            for block in blocks(document):
                unknown = set(block.options) - known.get(block.language, set())
                self.assertFalse(unknown, f"{block.where}: {block.language} has no option {unknown}")

    def test_pieces_of_configurations_are_valid(self):
        make_certificate(self.folder)
        for name, text in {"clients.toml": "", "allow.txt": "192.0.2.0/24\n", "deny.txt": "user:mallory\n"}.items():
            (self.folder / name).write_text(text)
        pieces = [block for document in documents() for block in blocks(document) if block.language == "toml" and "file" not in block.options]
        self.assertGreater(len(pieces), 10)
        for block in pieces:
            with self.subTest(block.where):
                self.check(configuration.whole(block, self.folder), block.where)

    def test_files_of_documents_are_valid(self):
        found = 0
        for document in documents():
            for name, text in files(document).items():
                found += 1
                with self.subTest(f"{document.name}: {name}"):
                    self.check(text, f"{document.name}: {name}")
        self.assertGreater(found, 1)

    def check(self, text, where):
        path = self.folder / "piece.toml"
        path.write_text(text)
        environment = {**os.environ, "WEIR_REDIS_PASSWORD": "secret", "WEIR_DOCS_SECRET": "s" * 32,
                       "WEIR_TRUSTED_PROXIES": "10.0.0.0/8", "WEIR_ADMIN_TOKEN": "token"}
        ran = subprocess.run([WEIR, "check", path], capture_output=True, text=True, env=environment)
        self.assertEqual(ran.returncode, 0, f"{where}:\n{text}\n{ran.stdout}{ran.stderr}")

    @unittest.skipUnless(ALONE, "no network namespace can be made here")
    def test_commands_print_what_is_shown(self):
        ran = 0
        for document in documents():
            with tempfile.TemporaryDirectory(prefix="weir-docs-") as scratch:
                ran += self.run_commands(document, Path(scratch))
        self.assertGreater(ran, 20)

    def run_commands(self, document, folder):
        for name, text in files(document).items():
            (folder / name).write_text(text)
        ran = 0
        for together in sittings(document):
            # What is shown of a second's rate takes a machine that does it within the second.
            for _ in range(3):
                faults = differences(together, folder)
                if not faults:
                    break
            for where, fault in faults:
                with self.subTest(where):
                    self.fail(fault)
            ran += sum(len(block.commands()) for block in together)
        return ran

    def test_commands_for_docker_name_what_exists(self):
        compose = (ROOT / "docker-compose.yml").read_text()
        services = set(re.findall(r"^  ([\w-]+):", compose, re.MULTILINE))
        found = [block for document in documents() for block in blocks(document) if "docker" in block.options]
        self.assertGreater(len(found), 3)
        for block in found:
            for command, _ in block.commands():
                for profile in re.findall(r"--profile (\w+)", command):
                    self.assertIn(f"profiles: [{profile}]", compose, block.where)
                for service in re.findall(r"docker compose.* (?:kill|exec|logs(?: --tail \d+)?|restart) ([\w-]+)", command):
                    self.assertIn(service, services, block.where)

    def test_tools_that_are_named_exist(self):
        found = [block for document in documents() for block in blocks(document) if "tools" in block.options]
        self.assertGreater(len(found), 2)
        for block in found:
            for command, _ in block.commands():
                for path in re.findall(r"(?<![\w/.:])((?:tests|benches|config)/[\w./-]+)", command):
                    self.assertTrue((ROOT / path).exists(), f"{block.where}: there is no {path}")

    def test_links_lead_somewhere(self):
        for document in documents():
            text = document.read_text()
            for link in LINK.findall(text):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (document.parent / path).resolve() if path else document
                with self.subTest(f"{document.relative_to(ROOT)}: {link}"):
                    self.assertTrue(target.exists(), "there is no such file")
                    if anchor and target.suffix == ".md":
                        self.assertIn(anchor, anchors(target.read_text()), "there is no such heading")


def files(document):
    """The files of a document, each put together from its blocks."""
    texts = {}
    for block in blocks(document):
        if block.language == "toml" and (name := block.options.get("file")):
            texts[name] = texts.get(name, "") + block.text + "\n"
    return texts


def console(document):
    apart = {"docker", "tools", "start"}
    return [block for block in blocks(document) if block.language == "console" and not apart & set(block.options)]


def sittings(document):
    """The blocks that are run, those that belong to one shell together."""
    found = []
    for block in console(document):
        if "with" in block.options:
            found[-1].append(block)
        else:
            found.append([block])
    return found


def differences(together, folder):
    """What the commands of one sitting print and their document does not show."""
    served = together[0].options.get("run")
    session = Session(WEIR, folder, "config/config.toml" if served == "default" else served)
    faults = []
    try:
        for block in together:
            for command, shown in block.commands():
                shown = "\n".join(shown)
                if command.startswith("cat "):
                    (folder / command.split()[1]).write_text(shown + "\n")
                printed = session.run(command)
                if not same(shown, printed):
                    faults.append((f"{block.where}: {command}", f"shown:\n{shown}\nprinted:\n{printed}"))
    finally:
        session.close()
    return faults


def anchors(text):
    """The anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "90",
                    "-subj", "/CN=redis", "-addext", "subjectAltName=DNS:localhost", "-keyout", "redis.key", "-out", "redis.pem"],
                   cwd=folder, check=True, capture_output=True)
    for name in ("redis-ca.pem", "server.pem", "shop.pem", "clients-ca.pem", "upstream.pem", "upstream-ca.pem"):
        (folder / name).write_bytes((folder / "redis.pem").read_bytes())
    for name in ("server.key", "shop.key", "upstream.key"):
        (folder / name).write_bytes((folder / "redis.key").read_bytes())


if __name__ == "__main__":
    unittest.main()
