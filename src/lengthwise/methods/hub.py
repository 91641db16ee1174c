"""Alignments and recipes on the Hugging Face hub: one JSON file in a repository, fetched by name, never code.

    hub:OWNER/NAME              alignment.json of the repository, or else its recipe.json
    hub:OWNER/NAME/FILE.json    that file

What was fetched once is read from the cache when the hub is out of reach.
"""

from __future__ import annotations

from pathlib import Path

from lengthwise.errors import BadInput, require

PREFIX = "hub:"
ALIGNMENT, RECIPE = "alignment.json", "recipe.json"


def fetched(name: str) -> Path:
    """The local copy of a file that `hub:...` names."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    parts = name.removeprefix(PREFIX).rstrip("/").split("/")
    # A folder that is not there, as /runs/x or x, is no repository
    named = 2 <= len(parts) <= 3 and all(parts) and not parts[1].endswith(".json")
    require(named, f"{name} is no name on the hub; write hub:OWNER/NAME or hub:OWNER/NAME/FILE.json")
    repository, files = "/".join(parts[:2]), parts[2:] or [ALIGNMENT, RECIPE]
    require(all(file.endswith(".json") for file in files), f"{name} is no JSON file; only those are read from the hub")
    out_of_reach = False
    for file in files:
        try:
            return Path(hf_hub_download(repository, file, local_files_only=out_of_reach))
        except EntryNotFoundError as error:
            # Or it was never fetched, and the hub is out of reach: it is tried for half a minute, and once is enough
            out_of_reach = isinstance(error, LocalEntryNotFoundError)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise BadInput(f"cannot fetch {file} of {repository} from the hub: {reason}") from error
    raise BadInput(f"{repository} has no {' and no '.join(files)} that can be fetched from the hub")


def push(repository: str, file: str, content: str, private: bool | None = None, token: str | None = None) -> str:
    """Put a file into a repository on the hub, which is made if need be; the address of the commit."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    # Of the library that it asks the network by: what fails there is none of OSError
    network: type[Exception] = HfHubHTTPError.__mro__[1]
    api = HfApi(token=token)
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        address = api.upload_file(path_or_fileobj=content.encode(), path_in_repo=file, repo_id=repository)
    except (OSError, ValueError, network) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BadInput(f"cannot write {file} to {repository} on the hub: {reason}") from error
    return str(address)
