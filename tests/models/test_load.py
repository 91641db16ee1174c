"""Loading from directories that save_pretrained wrote, whole and damaged."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from lengthwise.errors import BadInput
from lengthwise.models import small_decoder
from lengthwise.models.load import EMBEDDED, check_tokenizer, check_tokens, load, reason_of
from lengthwise.models.t5_head import is_flattened, warn_if_flattened
from lengthwise.tasks import TASKS
from tests.conftest import TRAIN_LENGTH, logits, make, tokens
from tests.helpers import answering


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole T5 checkpoint; tests that damage it take a copy."""
    folder = tmp_path_factory.mktemp("saved") / "t5"
    make("t5").save_pretrained(folder)
    transformers.ByT5Tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def damaged(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "t5"))


def refusal(name: str | Path, *options: Any) -> str:
    """The one line with which `load` refuses."""
    with pytest.raises(BadInput) as caught:
        load(str(name), *options)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 400
    return line


def word_tokenizer() -> Any:
    """A fast tokenizer of single characters, as small as they come."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    characters = {chr(code): code - 30 for code in range(32, 127)}
    backend = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, **characters}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>")


@pytest.mark.parametrize("name", ["t5", "t5 encoder", "switch", "llama", "qwen3"])
def test_a_checkpoint_comes_back_as_it_was_saved(name: str, tmp_path: Path) -> None:
    model = make(name)
    model.save_pretrained(tmp_path)
    tokenizer = word_tokenizer() if name in ("llama", "qwen3") else transformers.ByT5Tokenizer()
    tokenizer.save_pretrained(tmp_path)
    loaded, its_tokenizer = load(str(tmp_path), device="cpu")
    assert type(loaded) is type(model)
    assert not loaded.training
    assert torch.equal(logits(loaded, tokens(TRAIN_LENGTH)), logits(model, tokens(TRAIN_LENGTH)))
    assert its_tokenizer("a word").input_ids == tokenizer("a word").input_ids


@pytest.mark.parametrize(
    ("stored", "asked", "expected"),
    [
        (torch.float32, "auto", torch.float32),
        (torch.bfloat16, "auto", torch.float32),
        (torch.bfloat16, "float32", torch.float32),
        (torch.float32, "bfloat16", torch.bfloat16),
    ],
)
def test_the_data_type_is_the_one_asked_for(stored: torch.dtype, asked: str, expected: torch.dtype, tmp_path: Path) -> None:
    make("llama").to(stored).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    loaded, _ = load(str(tmp_path), asked, "cpu")
    assert {parameter.dtype for parameter in loaded.parameters()} == {expected}


def test_sixteen_bits_are_widened_on_a_cpu_unless_wanted_as_stored(tmp_path: Path) -> None:
    make("llama").to(torch.float16).save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    assert load(str(tmp_path), device="cpu")[0].dtype == torch.float32
    assert load(str(tmp_path), device="cpu", as_stored=True)[0].dtype == torch.float16


def test_the_device_is_the_one_asked_for(saved: Path) -> None:
    assert {parameter.device.type for parameter in load(str(saved), device="meta")[0].parameters()} == {"meta"}
    assert "cannot load" in refusal(saved, "auto", "toaster")


@pytest.mark.parametrize("architectures", [None, [], ["T5ForPoetry"], ["T5Config"], ["pipeline"]])
def test_without_a_class_of_its_own_an_encoder_decoder_is_loaded_whole(damaged: Path, architectures: Any) -> None:
    config = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps({**config, "architectures": architectures}))
    assert type(load(str(damaged), device="cpu")[0]) is transformers.T5ForConditionalGeneration


def test_a_path_that_is_no_directory_is_refused_without_asking_the_hub(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere") == f"no directory {tmp_path}/nowhere"
    assert refusal("./nowhere") == "no directory ./nowhere"
    assert refusal("some/where/deep") == "no directory some/where/deep"


def test_a_name_that_the_hub_does_not_give_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_hub(*_: Any, **__: Any) -> Any:
        raise OSError("nobody\nanswers")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", no_hub)
    assert refusal("nobody/nothing") == "cannot load nobody/nothing from the hub (no such directory here): nobody answers"


def test_what_a_library_says_at_length_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "We couldn't connect to 'https://huggingface.co', and couldn't find them in the cached files"
    advice = f"See how to run offline at 'https://huggingface.co/{'a' * 200}'."

    def offline(*_: Any, **__: Any) -> Any:
        raise OSError(f"{wrong}.\n{advice}")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", offline)
    assert refusal("nobody/nothing") == f"cannot load nobody/nothing from the hub (no such directory here): {wrong}"
    assert reason_of(OSError("word " * 100)) == "word " * 47 + "word ..."
    assert reason_of(OSError()) == "OSError"


def test_an_empty_name_is_quoted() -> None:
    assert refusal("") == "no model ''; give a directory, a hub name, a GGUF file, or `embedded`"


def test_a_file_is_refused(saved: Path) -> None:
    assert "model.safetensors is a file; give the directory" in refusal(saved / "model.safetensors")


def test_the_embedded_model_is_a_stock_t5_that_finds_a_number() -> None:
    model, tokenizer = load("embedded")
    assert type(model) is transformers.T5ForConditionalGeneration
    assert sum(parameter.numel() for parameter in model.parameters()) <= 8_000_000
    assert (EMBEDDED / "model.safetensors").stat().st_size < 16_000_000
    sample = TASKS["passkey"].samples(tokenizer, 300, 1, seed=5)[0]
    answer = model.generate(**tokenizer(sample.prompt, return_tensors="pt"), max_new_tokens=8)
    assert tokenizer.decode(answer[0], skip_special_tokens=True) == sample.target


def test_an_unknown_data_type_is_refused_with_the_known_ones(saved: Path) -> None:
    assert refusal(saved, "int8").startswith("dtype must be one of auto, float32, bfloat16")


def test_a_directory_without_a_config_is_refused(damaged: Path, tmp_path: Path) -> None:
    (damaged / "config.json").unlink()
    assert "it has no config.json" in refusal(damaged)
    (tmp_path / "empty").mkdir()
    assert "it has no config.json" in refusal(tmp_path / "empty")


@pytest.mark.parametrize(
    "text", ["{", "not json", "[]", "{}", '{"model_type": "warp-drive"}', '{"model_type": "t5", "num_layers": "two"}']
)
def test_a_damaged_config_is_refused(damaged: Path, text: str) -> None:
    (damaged / "config.json").write_text(text)
    assert refusal(damaged).startswith(f"cannot load {damaged}: ")


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_a_pickle_is_refused_and_never_opened(damaged: Path, pickle: str) -> None:
    (damaged / "model.safetensors").unlink()
    (damaged / pickle).write_bytes(b"cposix\nsystem\n(S'exit 1'\ntR.")
    line = refusal(damaged)
    assert f"are a pickle ({pickle})" in line
    assert "safetensors" in line


def test_a_pickle_beside_some_other_safetensors_file_is_not_opened_either(damaged: Path) -> None:
    (damaged / "model.safetensors").rename(damaged / "adapter.safetensors")
    torch.save(make("t5").state_dict(), damaged / "pytorch_model.bin")
    assert refusal(damaged).startswith(f"cannot load {damaged}: ")


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(damaged: Path) -> None:
    (damaged / "model.safetensors").unlink()
    os.mkfifo(damaged / "model.safetensors")
    assert "holds model.safetensors, which is a pipe or a device" in refusal(damaged)


def test_a_directory_without_weights_is_refused(damaged: Path) -> None:
    (damaged / "model.safetensors").unlink()
    assert "has no weights" in refusal(damaged)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_weights_cut_short_are_refused(damaged: Path, share: float) -> None:
    weights = (damaged / "model.safetensors").read_bytes()
    (damaged / "model.safetensors").write_bytes(weights[: int(share * len(weights))])
    assert refusal(damaged).startswith(f"cannot load {damaged}: ")


KEY = "encoder.block.1.layer.0.SelfAttention.q.weight"


def test_a_missing_weight_is_refused_by_name(damaged: Path) -> None:
    weights = load_file(damaged / "model.safetensors")
    del weights[KEY]
    save_file(weights, damaged / "model.safetensors", {"format": "pt"})
    line = refusal(damaged)
    assert "lacks 1 weights of T5ForConditionalGeneration" in line
    assert KEY in line


def test_a_weight_of_another_shape_is_refused_by_name(damaged: Path) -> None:
    weights = load_file(damaged / "model.safetensors")
    weights[KEY] = weights[KEY][:24].clone()
    save_file(weights, damaged / "model.safetensors", {"format": "pt"})
    assert refusal(damaged).endswith(f"does not fit its config: {KEY} is [24, 32], not [32, 32]")


def test_a_missing_tokenizer_is_refused(damaged: Path, tmp_path: Path) -> None:
    """For a T5 transformers would make one up that knows no words."""
    for file in damaged.glob("*token*"):
        file.unlink()
    assert "has no tokenizer" in refusal(damaged)
    make("llama").save_pretrained(tmp_path / "llama")
    assert "has no tokenizer" in refusal(tmp_path / "llama")


def test_a_damaged_tokenizer_is_refused(damaged: Path) -> None:
    (damaged / "tokenizer_config.json").write_text("{")
    assert refusal(damaged).startswith(f"cannot load the tokenizer of {damaged}: ")


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("generation_config.json", "eos_token_id"),
        ("generation_config.json", "decoder_start_token_id"),
        ("tokenizer_config.json", "model_max_length"),
    ],
)
def test_text_in_place_of_a_number_is_refused(damaged: Path, file: str, key: str) -> None:
    settings = json.loads((damaged / file).read_text())
    for wrong in ("x", ["x"], [], *([] if key == "model_max_length" else [10**400])):
        (damaged / file).write_text(json.dumps({**settings, key: wrong}))
        with pytest.raises(BadInput, match=rf" as its {key}, which is no such number; put its settings right$"):
            load(str(damaged))


@pytest.mark.parametrize(
    ("eos", "message"),
    [("seven", r"the text has token \d+, and the model knows"), (None, "adds a special token that it does not have$")],
)
def test_special_tokens_that_are_not_there_are_refused(damaged: Path, eos: str | None, message: str) -> None:
    settings = json.loads((damaged / "tokenizer_config.json").read_text())
    (damaged / "tokenizer_config.json").write_text(json.dumps({**settings, "eos_token": eos}))
    with pytest.raises(BadInput, match=message):
        load(str(damaged))


def test_distances_that_leave_no_bucket_are_refused(damaged: Path) -> None:
    settings = json.loads((damaged / "config.json").read_text())
    for reach in (-1, 0, settings["relative_attention_num_buckets"] // 2):
        (damaged / "config.json").write_text(json.dumps({**settings, "relative_attention_max_distance": reach}))
        with pytest.raises(BadInput, match=f"a relative_attention_max_distance of {reach} with "):
            load(str(damaged))


@pytest.mark.parametrize("told", [True, "x", None])
def test_a_decoder_that_says_it_has_an_encoder_is_refused(told: Any, tmp_path: Path) -> None:
    folder = answering.saved(answering.answering("llama"), tmp_path / "llama")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "is_encoder_decoder": told}))
    with pytest.raises(BadInput, match="is_encoder_decoder"):
        load(str(folder))


def test_architectures_that_are_no_list_tell_nothing(damaged: Path) -> None:
    settings = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps({**settings, "architectures": 7}))
    # Some versions of transformers refuse the value themselves
    try:
        told = type(load(str(damaged))[0]).__name__
    except BadInput as refused:
        told = str(refused)
    assert told == "T5ForConditionalGeneration" or "'architectures' with value 7" in told


OWN_CODE = "it needs code of its own, which is never run; give a model of a family that transformers has"


def make_small(folder: Path) -> None:
    config = small_decoder.SmallDecoderConfig(vocab_size=384, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    small_decoder.SmallDecoderForCausalLM(config).save_pretrained(folder)


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        ("config.json", {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}, OWN_CODE),
        ("tokenizer_config.json", {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}, OWN_CODE),
    ],
    ids=["config", "tokenizer"],
)
def test_code_of_a_checkpoint_never_runs_and_nobody_is_asked(
    damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, settings: dict[str, Any], message: str
) -> None:
    if file == "tokenizer_config.json":
        # A family without a tokenizer in transformers, which would take the checkpoint's own
        make_small(damaged)
    ran = tmp_path / "ran"
    (damaged / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nfrom transformers import *\nEvil = T5Config\n")
    (damaged / file).write_text(json.dumps(settings))
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "y")
    assert refusal(damaged).endswith(message)
    assert (questions, ran.exists()) == ([], False)


def test_attention_from_the_hub_is_code_too(damaged: Path) -> None:
    config = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps({**config, "attn_implementation": "evil/attention"}))
    assert "its attention is 'evil/attention', code from the hub" in refusal(damaged)


@pytest.mark.parametrize("alone", [False, True])
def test_an_adapter_is_neither_applied_nor_left_out_in_silence(alone: bool, damaged: Path, tmp_path: Path) -> None:
    """Its config may name a base model elsewhere, and modules to import."""
    elsewhere = Path(shutil.copytree(damaged, tmp_path / "elsewhere"))
    adapter = {"peft_type": "LORA", "base_model_name_or_path": str(elsewhere), "megatron_config": {}, "megatron_core": "evil"}
    (damaged / "adapter_config.json").write_text(json.dumps(adapter))
    if alone:
        (damaged / "config.json").unlink()
    assert refusal(damaged) == (
        f"{damaged} holds an adapter of peft (adapter_config.json), which is never applied; "
        "merge it into its model (merge_and_unload), save that, and give its directory"
    )


def test_an_adapter_from_the_hub_is_refused_too(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored beside a config, it would have the base model that it names loaded in place of the one asked for."""
    config = transformers.AutoConfig.from_pretrained(saved)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: config)
    monkeypatch.setattr("transformers.utils.find_adapter_config_file", lambda name: f"cache/{name}/adapter_config.json")
    assert refusal("someone/model").startswith("someone/model holds an adapter of peft")


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(12, "Cannot allocate memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_a_model_that_is_larger_than_the_memory(error: Exception, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(transformers.T5ForConditionalGeneration, "from_pretrained", exhausted)
    assert refusal(saved) == f"cannot load {saved}: there is not enough memory; give a smaller model or another --device"


@pytest.mark.parametrize("file", ["weights.bin", "../t5/weights.safetensors", "/etc/weights.safetensors", 7])
def test_an_index_names_safetensors_of_its_own_folder_only(damaged: Path, file: Any) -> None:
    (damaged / "model.safetensors").rename(damaged / "weights.safetensors")
    index = damaged / "model.safetensors.index.json"
    keys = load_file(damaged / "weights.safetensors")
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(keys, "weights.safetensors")}))
    load(str(damaged), device="cpu")
    index.write_text(json.dumps({"metadata": {}, "weight_map": {**dict.fromkeys(keys, "weights.safetensors"), KEY: file}}))
    assert f"has {KEY} in {file!r}; only *.safetensors files of the same folder are read" in refusal(damaged)
    index.write_text(json.dumps({"metadata": {}}))
    assert "it has no 'weight_map'" in refusal(damaged)
    index.write_text("[" * 1000)
    assert "cannot read model.safetensors.index.json" in refusal(damaged)


def test_integers_in_place_of_floats_are_refused_by_name(damaged: Path) -> None:
    """As a header has them in which F32 became I32."""
    weights = load_file(damaged / "model.safetensors")
    save_file({**weights, KEY: weights[KEY].view(torch.int32)}, damaged / "model.safetensors", {"format": "pt"})
    assert f"has {KEY} as integers (I32), not floats" in refusal(damaged)
    save_file({**weights, "embeddings.position_ids": torch.arange(4)}, damaged / "model.safetensors", {"format": "pt"})
    load(str(damaged), device="cpu")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_weights_that_are_no_numbers_are_refused_by_name(damaged: Path, value: float, dtype: str) -> None:
    weights = load_file(damaged / "model.safetensors")
    weights[KEY][0, 0] = value
    save_file(weights, damaged / "model.safetensors", {"format": "pt"})
    assert refusal(damaged, dtype, "cpu") == f"the checkpoint {damaged} has NaN or infinity in {KEY}; give a whole one"


def test_weights_whose_sum_overflows_are_numbers_still(damaged: Path) -> None:
    weights = load_file(damaged / "model.safetensors")
    weights[KEY].fill_(3e38)
    save_file(weights, damaged / "model.safetensors", {"format": "pt"})
    model, _ = load(str(damaged), device="cpu")
    assert torch.equal(model.state_dict()[KEY], weights[KEY])


def test_a_tokenizer_fits_as_many_words_or_a_few_more(tokenizer: transformers.ByT5Tokenizer) -> None:
    check_tokenizer(tokenizer, tokenizer.vocab_size)
    check_tokenizer(tokenizer, len(tokenizer) + 64)
    with pytest.raises(BadInput, match="and the model knows 100 tokens only; this is another model's tokenizer"):
        check_tokenizer(tokenizer, 100)
    with pytest.raises(BadInput, match="tokens only, and the model knows 32000; this is another model's tokenizer"):
        check_tokenizer(tokenizer, 32000)


def test_a_token_outside_the_table_is_named() -> None:
    check_tokens(torch.tensor([[0, 9]]), 10)
    check_tokens(torch.tensor([], dtype=torch.long), 10)
    with pytest.raises(BadInput, match="the text has token 10, and the model knows 10 tokens only"):
        check_tokens(torch.tensor([[0, 10]]), 10)


def test_what_a_library_prints_while_it_loads_is_no_result(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the tokenizers library does, below Python's own standard output, on an unknown key of tokenizer_config.json."""
    make_tokenizer = transformers.AutoTokenizer.from_pretrained

    def telling(*given: Any, **options: Any) -> Any:
        os.write(1, b"Ignored unknown kwarg option " + 5000 * b"9" + b"\n")
        return make_tokenizer(*given, **options)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", telling)
    with os.fdopen(os.dup(1), "w") as buffered:
        monkeypatch.setattr(sys, "stdout", buffered)
        buffered.write("before, and not flushed\n")
        load(str(saved))
        os.write(1, b"{}\n")
        monkeypatch.undo()
    out, err = capfd.readouterr()
    assert out == "before, and not flushed\n{}\n"
    assert "Ignored unknown" in err
    assert max(map(len, err.splitlines())) < 300


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_standard_output_that_is_full_is_no_fault_of_the_checkpoint(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = io.TextIOWrapper(io.BufferedWriter(io.FileIO("/dev/full", "w")))
    full.write("before, and not flushed\n")
    monkeypatch.setattr(sys, "stdout", full)
    with pytest.raises(OSError, match="No space left"):
        load(str(saved))
    # Or it would try again
    full.buffer.raw.close()


def test_numbers_of_sampling_that_nobody_uses_do_not_keep_a_model_from_being_saved(damaged: Path, tmp_path: Path) -> None:
    path = damaged / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "temperature": 0.9, "top_p": 0.6, "do_sample": False}))
    with pytest.warns(UserWarning, match="answers greedily, so temperature and top_p are left out"):
        model, _ = load(str(damaged))
    model.save_pretrained(tmp_path / "again")
    written = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert not {"temperature", "top_p"} & written.keys()


@pytest.mark.skipif(not hasattr(transformers.T5Config(), "scale_decoder_outputs"), reason="this transformers never scales so")
def test_a_t5_whose_config_flattens_its_likelihoods_is_read_without_that_scale(tmp_path: Path) -> None:
    model, tokenizer = load("embedded")
    head = model.lm_head.weight.detach().clone() + 1
    model.config.tie_word_embeddings, model.lm_head.weight = False, torch.nn.Parameter(head)
    assert model.config.scale_decoder_outputs
    assert is_flattened(model)
    assert not is_flattened(model.encoder)
    with pytest.warns(UserWarning, match=r"flattens its likelihoods; set model\.config\.scale_decoder_outputs = False"):
        warn_if_flattened(model)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="its head is not the embedding, which flattens its likelihoods; it is read without"):
        again, _ = load(str(tmp_path))
    ids = {"input_ids": torch.tensor([[5, 6, 7]]), "labels": torch.tensor([[8, 9]])}
    scale = model.config.d_model**0.5
    torch.testing.assert_close(again(**ids).logits, scale * model(**ids).logits, rtol=1e-4, atol=1e-4)
    again.save_pretrained(tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "config.json").read_text())["scale_decoder_outputs"] is False
