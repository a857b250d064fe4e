"""Blocks of TOML, made whole so that `weir check` can judge them."""

import re
import tomllib

# What pieces of a configuration may refer to without showing it.
SURROUNDINGS = {
    "identity": {"user": "header:x-user", "client": "header:x-api-key", "tenant": "header:x-tenant", "plan": "header:x-plan"},
    "upstreams": {"api": {"servers": ["http://127.0.0.1:9000"]}},
}
TOKENS = {"secret_env": "WEIR_DOCS_SECRET"}
HASH = "0" * 64


def whole(block, folder):
    """The text of a file that holds the block, and besides it only what the block leaves out."""
    text = block.text.replace("sha256:…", f"sha256:{HASH}").replace("/etc/weir/", f"{folder}/").replace("/var/lib/weir/", f"{folder}/")
    if table := block.options.get("in"):
        text = f"[{table}]\n{text}"
    written = tomllib.loads(text)
    config = merge(SURROUNDINGS, written)
    if table and table.startswith("limits."):
        limit = config["limits"][table.partition(".")[2]]
        limit.setdefault("key", "user")
        limit.setdefault("rate", "1/second")
    if "jwt:" in text:
        config["identity"].setdefault("jwt", TOKENS)
    if "routes" not in config:
        limits = [name for name in config.get("limits", {})] + ["tenants"] * ("tenants" in config)
        config["routes"] = [{"name": "api", "path": "/*", "upstream": "echo", "limits": limits}]
    return "".join(f"{key(name)} = {value(it)}\n" for name, it in config.items())


def merge(under, over):
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return {name: merge(under.get(name, {}), over.get(name, under.get(name))) for name in {**under, **over}}


def key(name):
    return name if re.fullmatch(r"[\w-]+", name) else value(name)


def value(it):
    """A value as TOML has it, on one line."""
    if isinstance(it, dict):
        return "{ " + ", ".join(f"{key(name)} = {value(inner)}" for name, inner in it.items()) + " }" if it else "{}"
    if isinstance(it, list):
        return "[" + ", ".join(map(value, it)) + "]"
    if isinstance(it, bool):
        return "true" if it else "false"
    if isinstance(it, str):
        return '"' + it.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return repr(it)
