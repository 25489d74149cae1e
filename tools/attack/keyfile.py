"""Lines of a key file: the one place that knows its format."""
import collections
import hashlib

Key = collections.namedtuple("Key", "key tenant role limits", defaults=("user", None))


def line(key):
    """`TENANT:KEY` if that says everything, a digest with attributes otherwise. `limits` maps the
    names of limits to numbers: {"requests-per-minute": 60}."""
    if not key.limits and key.role == "user":
        return f"{key.tenant}:{key.key}"
    if not key.limits and key.role == "admin":
        return f"admin:{key.key}"
    attributes = {"name": f"{key.tenant}-key", "tenant": key.tenant, "role": key.role,
                  **(key.limits or {})}
    digest = hashlib.sha256(key.key.encode()).hexdigest()
    return f"sha256:{digest} " + " ".join(f"{name}={value}" for name, value in attributes.items())


def text(keys):
    return "".join(line(key) + "\n" for key in keys)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}
