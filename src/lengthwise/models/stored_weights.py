"""Which weights of a checkpoint are believed: safetensors of its own folder, of floating-point numbers, all of them finite.

transformers would follow an index or an adapter out of the folder, turn integers into floats as they are, and compute with NaN.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.common.formats import read_json
from lengthwise.errors import BadInput, require

INDEX = "model.safetensors.index.json"
# Parameters, as transformers names them; integers are right elsewhere, as in a table of positions
PARAMETERS = (".weight", ".bias")


def _folder(name: str) -> Path | None:
    """The folder with a model's files: the directory itself, or the one that the hub's were downloaded to."""
    from transformers.utils import cached_file

    if Path(name).is_dir():
        return Path(name)
    config = cached_file(name, "config.json", local_files_only=True, _raise_exceptions_for_missing_entries=False)
    return None if config is None else Path(config).parent


def check_no_adapter(name: str) -> None:
    """Refuse an adapter, which transformers would apply where peft is installed, and leave out without a word elsewhere; its
    settings may name another folder's weights, pickles and modules to import."""
    from transformers.utils import find_adapter_config_file

    if find_adapter_config_file(name) is not None:
        merge = "merge it into its model (merge_and_unload), save that, and give its directory"
        raise BadInput(f"{name} holds an adapter of peft (adapter_config.json), which is never applied; {merge}")


def check_index(name: str) -> None:
    """Refuse a checkpoint in several files unless its index names safetensors files beside itself only."""
    from transformers.utils import cached_file

    try:
        path = cached_file(name, INDEX, _raise_exceptions_for_missing_entries=False)
        if path is None:
            return
        index = read_json(path)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {INDEX} of {name}: {error}") from None
    files = index.get("weight_map") if isinstance(index, dict) else None
    require(isinstance(files, dict), f"{INDEX} of {name} is damaged: it has no 'weight_map' from weights to files")
    for key, file in dict(files or {}).items():
        beside = isinstance(file, str) and Path(file).name == file and file.endswith(".safetensors")
        require(beside, f"{INDEX} of {name} has {key} in {file!r}; only *.safetensors files of the same folder are read")


def check_stored_types(name: str, where: str, model: Any) -> None:
    """Refuse integers where the model has floating-point parameters, unless it says that it is quantised."""
    from safetensors import safe_open

    folder, parameters = _folder(where), dict(model.named_parameters())
    if folder is None or getattr(model.config, "quantization_config", None) is not None:
        return
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            kinds = {key: file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118
        for key, kind in kinds.items():
            wrong = kind.startswith(("I", "U", "BOOL")) and (key.endswith(PARAMETERS) or key in parameters)
            require(not wrong, f"the checkpoint {name} has {key} as integers ({kind}), not floats; it is damaged or quantised")


def check_finite(name: str, model: nn.Module) -> None:
    """Refuse NaN and infinity among the parameters, before a number is computed from them."""
    for key, parameter in model.named_parameters():
        if not _finite(parameter.detach()):
            raise BadInput(f"the checkpoint {name} has NaN or infinity in {key}; give a whole one")


def _finite(values: Tensor) -> bool:
    if values.is_meta or values.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        return True
    # One pass without a table of booleans; a sum may be infinite by itself, and is then looked at closely
    total: Any = values.sum(dtype=torch.float32)
    return bool(total.isfinite()) or bool(values.isfinite().all())
