"""Shared by all tests: no network, one thread, an empty current directory, tiny models as transformers saves them."""

import gc
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import configuration, settings

# How long an example takes depends on what else the machine does.
settings.register_profile("suite", settings(), deadline=None, max_examples=50)
settings.load_profile("suite")
# Otherwise in the current directory.
configuration.set_hypothesis_home_dir(Path(__file__).parents[1] / ".hypothesis")


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs, whose results differ in the last bits, from all but `pytest -m gpu`."""
    if config.option.markexpr.strip() != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt imported modules and collected tests from garbage collection, which took 0.4 s each time."""
    gc.freeze()
    gc.enable()


os.environ["HF_HUB_OFFLINE"] = "1"
# Toy models gain nothing from threads, and threads of several workers would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MAX_LENGTH = 40
"""Maximum sequence length of the tiny models."""

_ENGLISH = "the a cat cats dog ##s ##ing sat ran run on to mat tree and we love , . ! ? ( )"
_WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_ENGLISH.split(), *"我爱北京天安门你他们是的"]
_SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    # Far from the usual 0.02: the scores then differ from token to token, as in a trained model.
    "initializer_range": 0.3,
}


def _save_as_trained(model: Any, folder: Path) -> None:
    import torch

    noise = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.normal_(std=0.02, generator=noise)
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def save_as_trained() -> Callable[[Any, Path], None]:
    """Save a random model with random biases too: biases of zero are those of a head that was never trained."""
    return _save_as_trained


@pytest.fixture(scope="session", autouse=True)
def _current_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run all tests in an empty folder: what lies where pytest is started is not found by relative paths."""
    folder = tmp_path_factory.mktemp("current")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(autouse=True)
def _nothing_written(_current_directory: Path) -> Iterator[None]:
    """Fail a test that leaves something in the current directory, where the next test would find it."""
    yield
    written = sorted(os.listdir(_current_directory))
    for name in written:
        path = _current_directory / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not written, f"written into the current directory: {written}"


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled C code, prepared text and vocabularies in one cache for all tests.

    Machines that cannot compile the C kernels test without.
    """
    from maskwright.kernels.cpu.library import library

    base = tmp_path_factory.getbasetemp()
    # Workers of one session share it.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASKWRIGHT_CACHE", str(shared / "cache"))
        for name in ("fp32", "int8"):
            library(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_pages() -> Iterator[None]:
    """Write no report.html of a run: plots take longer than toy runs. Its tests call `write_page`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maskwright.training.pretrain.write_page", lambda *_: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _unflushed_files() -> Iterator[None]:
    """Do not wait for the disk: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _unmeasured_machine() -> Iterator[None]:
    """Leave out the second in which a run measures the machine's matmuls; tests of `training.ranks.device` measure."""
    from maskwright.training.ranks import device

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "peak_matmul_flops", lambda *_, **__: 1e11)
        patch.setattr(device, "layer_seconds", lambda: {"default": 1.0, "onednn": 1.0})
        yield


@pytest.fixture
def store() -> Iterator[Any]:
    """The file system of "memory://" URLs, empty."""
    import fsspec

    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The file system of "s3://" URLs, a server without buckets."""
    import fsspec

    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()  # It may know another test's server.
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    yield fsspec.filesystem("s3", skip_instance_cache=True)
    server.stop()


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BertForPreTraining; its vocabulary holds English words and Chinese characters."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    config = BertConfig(vocab_size=len(_WORDPIECES), max_position_embeddings=MAX_LENGTH, **_SHAPE)
    torch.manual_seed(0)
    _save_as_trained(BertForPreTraining(config), folder)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in _WORDPIECES), encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def roberta_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random RobertaForMaskedLM with a byte-level BPE vocabulary."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import RobertaConfig, RobertaForMaskedLM

    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        ["the cats sat on the mat and the dogs ran to the tree we love 我爱北京"] * 9, trainer
    )
    tokenizer.add_special_tokens([AddedToken("<mask>", special=True, normalized=False, lstrip=True)])
    folder = tmp_path_factory.mktemp("models") / "tiny-roberta"
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=MAX_LENGTH + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        **_SHAPE,
    )
    torch.manual_seed(0)
    _save_as_trained(RobertaForMaskedLM(config), folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = zip(("bos", "pad", "eos", "unk", "mask"), specials, strict=True)
    settings = {f"{role}_token": name for role, name in names} | {"cls_token": "<s>", "sep_token": "</s>"}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def electra_folder(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random ElectraForPreTraining with the words of `bert_folder`, its generator beside it as runs keep it."""
    import torch
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

    folder = tmp_path_factory.mktemp("models") / "tiny-electra"
    shape = {**_SHAPE, "vocab_size": len(_WORDPIECES), "max_position_embeddings": MAX_LENGTH, "embedding_size": 16}
    torch.manual_seed(0)
    for index, model_class, hidden in (
        (folder, ElectraForPreTraining, 32),
        (folder / "generator", ElectraForMaskedLM, 16),
    ):
        _save_as_trained(model_class(ElectraConfig(**{**shape, "hidden_size": hidden})), index)
        for name in ("vocab.txt", "tokenizer_config.json"):
            shutil.copy(bert_folder / name, index)
    return folder
