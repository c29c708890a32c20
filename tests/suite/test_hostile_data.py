"""Files made to harm: each is refused in one line that names it, in little time and little memory."""

import io
import json
import os
import resource
import signal
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from data_sets import downsampled, parallel_text, voc
from PIL import Image
from speech_files import librispeech

from tbdprof.errors import DataError
from tbdprof.suite.data import downsampled_imagenet, images
from tbdprof.suite.data import librispeech as speech
from tbdprof.suite.data import voc as objects
from tbdprof.suite.data.text import parallel_text as text
from tbdprof.suite.data.text import vocabulary
from tbdprof.suite.data.text.buckets import Sentences
from tbdprof.suite.data.text.corpora import IWSLT15, WMT14

MORE_BYTES = 1 << 30  # address space that a reader may take beyond what this process has
MOST_SECONDS = 20  # far beyond what any refusal takes
WIDTH = 12_288

Put = Callable[[Path], object]


@contextmanager
def bounded() -> Iterator[None]:
    """Raise in the block after too many seconds or bytes."""

    def stop(*_: object) -> None:
        raise TimeoutError

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE_BYTES, hard))
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def refusal(read: Callable[[], object]) -> str:
    """Return the line in which a reader refuses what it reads."""
    with bounded(), pytest.raises(DataError) as refused:
        read()
    line = str(refused.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


def written(content: bytes) -> Put:
    return lambda file: file.write_bytes(content)


def listening(file: Path) -> None:
    at = Path.cwd()
    os.chdir(file.parent)  # the path of a socket may have 108 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(file.name)
    os.chdir(at)


def long(file: Path) -> None:
    file.touch()
    os.truncate(file, 1 << 40)


NO_FILES: dict[str, tuple[Put, str]] = {
    "fifo": (os.mkfifo, "is a FIFO, not a file"),
    "socket": (listening, "is a socket, not a file"),
    "device": (lambda file: file.symlink_to("/dev/zero"), "is a device, not a file"),
    "loop": (lambda file: file.symlink_to(file.name), "symbolic links"),
    "long": (long, "has 1.00 TiB, and "),
}


# ---------------------------------------------------------------------------------------------------------------------


def encoded(form: str, side: int = 8, **options: object) -> bytes:
    held = io.BytesIO()
    Image.new("RGB", (side, side), (9, 99, 199)).save(held, form, **options)
    return held.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))


def png(side: int, *more: bytes) -> bytes:
    """Return a square image of one bit a pixel, all of it there."""
    header = chunk(b"IHDR", struct.pack(">LLBBBBB", side, side, 1, 0, 0, 0, 0))
    rows = zlib.compress(bytes(side * (1 + -(-side // 8))))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def many_scans() -> bytes:
    image = encoded("JPEG", 64, progressive=True)
    last = image[image.rindex(images.SCAN) : -2]
    return image[:-2] + 300 * last + image[-2:]


def sized_jpeg(side: int) -> bytes:
    image = bytearray(encoded("JPEG"))
    at = image.index(b"\xff\xc0")
    image[at + 5 : at + 9] = struct.pack(">HH", side, side)
    return bytes(image)


IMAGES: dict[str, tuple[Put, str]] = {
    **NO_FILES,
    "bomb": (written(png(9000)), "has 9000×9000 pixels, and 67108864 are the most that are decoded"),
    "larger bomb": (written(png(20_000)), "could be decompression bomb"),
    "bomb of text": (
        written(png(8, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 25))))),
        "Decompressed data too large",
    ),
    "jpeg of 4 gigapixels": (written(sized_jpeg(65_500)), "could be decompression bomb"),
    "scans": (written(many_scans()), "has 310 scans, and 256 are the most"),
    "bmp": (
        written(b"BM" + bytes(8) + struct.pack("<LLllHH", 54, 40, 2**31 - 1, 2**31 - 1, 1, 24) + bytes(24)),
        "could be decompression bomb",
    ),
    "ppm": (written(b"P6 99999 99999 255\n"), "could be decompression bomb"),
    "ppm of 400 digits": (written(b"P6 " + b"9" * 400 + b" 1 255\n"), "cannot be decoded: "),
    "tiff": (written(encoded("TIFF")), "is no image in BMP, JPEG, PNG, PPM, WEBP"),
    "gif": (written(encoded("GIF")), "is no image in BMP, JPEG, PNG, PPM, WEBP"),
    "postscript": (
        written(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) print\n"),
        "is no image in BMP, JPEG, PNG, PPM, WEBP",
    ),
}


@pytest.mark.parametrize(("put", "reason"), IMAGES.values(), ids=IMAGES)
def test_a_hostile_image(tmp_path: Path, put: Put, reason: str) -> None:
    file = tmp_path / "a.jpg"
    put(file)

    line = refusal(lambda: images.decode(file))

    assert line.startswith(f"{file} ")
    assert reason in line


def test_a_format_is_known_by_its_content_whatever_the_name(tmp_path: Path) -> None:
    """ImageNet's n02105855_2933.JPEG is a PNG."""
    for form in images.FORMATS:
        (tmp_path / "a.JPEG").write_bytes(encoded(form))
        assert images.decode(tmp_path / "a.JPEG").size == (8, 8)


def test_a_name_breaks_no_line_and_reaches_the_terminal_as_text(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\n\x1b[2J\xff\xe2\x80\xae.jpg"))
    file.write_text("no image")

    assert refusal(lambda: images.decode(file)).startswith(rf"{tmp_path}/a\n\x1b[2J\udcff\u202e.jpg is no image ")


# ---------------------------------------------------------------------------------------------------------------------


def header(shape: str, kind: str = "'|u1'") -> bytes:
    said = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said


def zipped(content: bytes, name: str = "data.npy", way: int = zipfile.ZIP_DEFLATED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", way) as members:
        members.writestr(name, content)
    return held.getvalue()


def changed(content: bytes, mark: bytes, offset: int, form: str, value: int) -> bytes:
    """Return a zip in which a field of its last record of a kind has another value."""
    held = bytearray(content)
    struct.pack_into(form, held, content.rindex(mark) + offset, value)
    return bytes(held)


def long_list(file: Path) -> None:
    """State a list of members of almost 4 GiB, and let the file be as long."""
    file.touch()
    os.truncate(file, 0xFFFF_FF00)
    with file.open("ab") as end:
        end.write(changed(zipped(b"")[-22:], b"PK\5\6", 12, "<L", 0xFFFF_FF00))


def many_members(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as members:
        for number in range(12_000):
            members.writestr(f"{number:050}", b"")


def pickled(file: Path) -> None:
    with file.open("wb") as end:
        np.savez(end, data=np.array([{}], object))


PICTURE = header(f"(1, {WIDTH})") + bytes(WIDTH)
ENTRY, END = b"PK\1\2", b"PK\5\6"
NPZ: dict[str, tuple[Put, str]] = {
    **NO_FILES,
    "no array": (written(zipped(b"pictures")), "cannot be read: "),
    "an array alone": (written(PICTURE), "cannot be read: File is not a zip file"),
    "pickled": (pickled, "has data of object, (1,), and not of uint8"),
    "terabytes": (written(zipped(header(f"({10**12}, {WIDTH})"))), "has data of uint8, (1000000000000, 12288), and "),
    "400 digits": (written(zipped(header(f"({'9' * 400}, {WIDTH})"))), "has data of uint8, …, and not of uint8"),
    "negative": (written(zipped(header(f"(-5, {WIDTH})"))), "has data of uint8, (-5, 12288)"),
    "many dimensions": (written(zipped(header(f"({'1, ' * 900})"))), "1, 1, 1, …, and not of uint8"),
    "nested": (written(zipped(header("(" * 900 + ")" * 900))), "cannot be read: "),
    "a calculation": (written(zipped(header("(9**9**9, 1)"))), "cannot be read: "),
    "kind": (written(zipped(header(f"(1, {WIDTH})", "'V2147483647'"))), "has data of |V2147483647, "),
    "a long record": (
        written(zipped(header("(1,)", str([(f"field{number}", "|u1") for number in range(300)])))),
        " …, and not of uint8",
    ),
    "more than memory": (written(zipped(header(f"(1281167, {WIDTH})"))), "needs 14.66 GiB of memory, and "),
    "bomb": (written(zipped(PICTURE + bytes(1 << 26))), "cannot be read: it goes on after 12288 bytes"),
    "too few": (written(zipped(PICTURE[:-1])), "cannot be read: it ends after 12287 of 12288 bytes"),
    "other size": (written(changed(zipped(PICTURE), ENTRY, 24, "<L", 99)), "cannot be read: "),
    "absolute": (written(zipped(PICTURE, "/data.npy")), "has no array `data` but '/data.npy'"),
    "upwards": (written(zipped(PICTURE, "../data.npy")), "has no array `data` but '../data.npy'"),
    "control": (written(zipped(PICTURE, "\x1b[2J" + "a" * 999)), "aaa'… (1003 characters): restore it"),
    "encrypted": (written(changed(zipped(PICTURE), ENTRY, 8, "<H", 1)), "cannot be read: "),
    "lzma": (written(zipped(PICTURE, way=zipfile.ZIP_LZMA)), "is compressed in another way"),
    "long list": (long_list, "cannot be read: its list of members has 4.00 GiB"),
    "many members": (many_members, "cannot be read: its list of members has 1.1"),
}


@pytest.mark.parametrize(("put", "reason"), NPZ.values(), ids=NPZ)
def test_a_hostile_npz(tmp_path: Path, put: Put, reason: str) -> None:
    file = tmp_path / "train_data_batch_1.npz"
    put(file)

    line = refusal(lambda: downsampled_imagenet.look(tmp_path) or downsampled_imagenet.read(file))

    assert line.startswith(f"{file} ")
    assert reason in line


def test_an_array_by_columns_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(256, size=(3, WIDTH), dtype=np.uint8)
    np.savez_compressed(tmp_path / "a.npz", data=np.asfortranarray(pictures))

    assert (downsampled_imagenet.read(tmp_path / "a.npz") == pictures).all()
    downsampled(tmp_path / "b", [[1, 2, 3]])
    assert downsampled_imagenet.read(tmp_path / "b/train_data_batch_1.npz")[:, 7].tolist() == [1, 2, 3]


# ---------------------------------------------------------------------------------------------------------------------

LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))


def xml(content: str) -> Put:
    return written(content.encode())


def width(digits: str) -> Put:
    return lambda file: file.write_text(file.read_text().replace("<width>50<", f"<width>{digits}<"))


ANNOTATIONS: dict[str, tuple[Put, str]] = {
    **NO_FILES,
    "400 digits": (width("9" * 400), "… (400 characters) as size/width, where a number is needed"),
    "400 decimals": (width("0." + "9" * 400), "… (402 characters) as size/width"),
    "other digits": (width("٥٠"), "has '٥٠' as size/width"),
    "exponent": (width("1e999"), "has '1e999' as size/width"),
    "entities": (
        xml(f'<!DOCTYPE a [<!ENTITY a0 "ha">{LAUGHS}]><annotation>&a9;</annotation>'),
        "is no XML: it declares a document type",
    ),
    "entities in UTF-16": (
        written(f'<!DOCTYPE a [<!ENTITY a0 "ha">{LAUGHS}]><annotation>&a9;</annotation>'.encode("utf-16")),
        "is no XML: it declares a document type",
    ),
    "another file": (
        xml('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation>&b;</annotation>'),
        "is no XML: it declares a document type",
    ),
    "deep": (xml("<a>" * 140_000 + "</a>" * 140_000), "has no size/width"),
    "deep without end": (xml("<a>" * 300_000), "is no XML: "),
    "wide": (xml(f"<annotation>{'<object/>' * 110_000}</annotation>"), "has no size/width"),
    "many bytes": (xml("<annotation>" + " " * (1 << 20)), "has 1.00 MiB, and 1.00 MiB are the most that are read"),
    "class": (
        lambda file: file.write_text(file.read_text().replace("dog", "\x85dog" * 9999)),
        "… (39995 characters): choose one of",
    ),
    "zeros": (written(bytes(4000)), "is no XML: "),
}


@pytest.mark.parametrize(("put", "reason"), ANNOTATIONS.values(), ids=ANNOTATIONS)
def test_a_hostile_annotation(tmp_path: Path, put: Put, reason: str) -> None:
    folder = voc(tmp_path, {"1": [("dog", (1, 1, 9, 9), False)]})
    file = folder / "Annotations" / "1.xml"
    if (put, reason) in NO_FILES.values():
        file.unlink()
    put(file)

    line = refusal(lambda: objects.batches(folder, 40, 100, 0))

    assert str(file) in line
    assert reason in line


LISTS: dict[str, tuple[Put, str]] = {
    **NO_FILES,
    "absolute": (written(b"/etc/passwd\n"), "names an image '/etc/passwd', which is no name of a file"),
    "upwards": (written(b"../../../a\n"), "names an image '../../../a', which is no name of a file"),
    "zeros": (written(b"a\0b\n"), r"names an image 'a\x00b', which is no name of a file"),
    "no UTF-8": (written(b"\xff\xfe"), "is no text in UTF-8"),
    "a line of 5 MB": (written(b"a" * 5_000_000), "has 4.77 MiB, and 4.00 MiB are the most that are read"),
}


@pytest.mark.parametrize(("put", "reason"), LISTS.values(), ids=LISTS)
def test_a_hostile_list_of_images(tmp_path: Path, put: Put, reason: str) -> None:
    folder = voc(tmp_path, {})
    file = folder / "ImageSets/Main/trainval.txt"
    file.unlink()
    put(file)
    if reason == "symbolic links":  # of a list that is not there, the folder is no Pascal VOC
        return

    line = refusal(lambda: objects.batches(folder, 40, 100, 0))

    assert str(file) in line
    assert reason in line


# ---------------------------------------------------------------------------------------------------------------------


def samples(count: int) -> Put:
    """State another number of samples in the header, where 0 is an unknown number."""

    def put(file: Path) -> None:
        held = bytearray(file.read_bytes())
        field = int.from_bytes(held[18:26], "big") >> 36 << 36
        held[18:26] = (field | count).to_bytes(8, "big")
        file.write_bytes(held)

    return put


def wave(file: Path) -> None:
    held = struct.pack("<4sL8sLHHLLHH4sL", b"RIFF", 36, b"WAVEfmt ", 16, 1, 1, 16_000, 32_000, 2, 16, b"data", 0)
    file.write_bytes(held)


SOUNDS: dict[str, tuple[Put, str]] = {
    **NO_FILES,
    "wave": (wave, "is no FLAC: restore it, or remove it"),
    "68 billion samples": (samples(2**36 - 1), "states more samples than its bytes can hold"),
    "unknown samples": (samples(0), "states more samples than its bytes can hold"),
    "more samples": (samples(17_000), "is cut"),
    "only the header": (lambda file: os.truncate(file, 42), ""),
    "zeros": (lambda file: file.write_bytes(file.read_bytes()[:42] + bytes(99_999)), ""),
}


@pytest.mark.parametrize(("put", "reason"), SOUNDS.values(), ids=SOUNDS)
def test_a_hostile_recording(tmp_path: Path, put: Put, reason: str) -> None:
    folder = librispeech(tmp_path, {"1/2": {"0000": (1.0, "A")}})
    file = folder / "1/2/1-2-0000.flac"
    if (put, reason) in NO_FILES.values():
        file.unlink()
    put(file)

    line = refusal(lambda: [speech.read(each) for each in speech.recordings(folder)])

    assert str(file) in line
    assert reason in line


TRANSCRIPTS: dict[str, tuple[Put, str]] = {
    **NO_FILES,
    "zeros": (written(b"1-2-0000 A\0\0"), r"has '\x00' in the transcript of 1-2-0000"),
    "no symbols": (
        written(b"1-2-0000 " + "".join(map(chr, range(0x4E00, 0x6E00))).encode()),
        "has '一', '丁', '丂', '七' in the transcript",
    ),
    "a line of 5 MB": (written(b"1-2-0000 " + b"A" * 5_000_000), "has 4.77 MiB, and 4.00 MiB are the most"),
    "a transcript of 4 MB": (written(b"1-2-0000 " + b"A" * 4_000_000), "too short for its transcript of 4000000"),
}


@pytest.mark.parametrize(("put", "reason"), TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_a_hostile_transcript(tmp_path: Path, put: Put, reason: str) -> None:
    folder = librispeech(tmp_path, {"1/2": {"0000": (1.0, "A")}})
    file = folder / "1/2/1-2.trans.txt"
    file.unlink()
    put(file)

    line = refusal(lambda: speech.recordings(folder))

    assert str(file) in line
    assert reason in line


# ---------------------------------------------------------------------------------------------------------------------

SENTENCES = [("a b", "c d")]


def distinct(file: Path) -> None:
    file.write_text("\n".join(" ".join(str(number) for number in range(at, at + 99)) for at in range(0, 9999, 99)))


TEXTS: dict[str, tuple[str, Put, str]] = {
    **{f"a text: {name}": ("train.en", put, reason) for name, (put, reason) in NO_FILES.items() if name != "loop"},
    **{f"words: {name}": ("vocab.en", put, reason) for name, (put, reason) in NO_FILES.items() if name != "loop"},
    **{
        f"subwords: {name}": (f"subwords-{WMT14.source_words}.json", put, reason)
        for name, (put, reason) in NO_FILES.items()
        if name != "loop"
    },
    "a long line": ("train.en", written(b"a\n" + b"b " * (1 << 23)), "line 2: more than 64.00 KiB"),
    "a long word": ("vocab.en", written(b"a" * (1 << 20)), "line 1: more than 64.00 KiB"),
    "zeros": ("train.en", written(b"a\0\n"), "has bytes of 0, which are no text"),
    "no UTF-8": ("train.en", written(b"a\n\xc3\x28\n"), "line 2: not UTF-8"),
    "many words": ("train.en", distinct, "of different words: give a text in words"),
    "deep subwords": (
        f"subwords-{WMT14.source_words}.json",
        written(b"[" * 1_000_000),
        "holds no subwords: ",
    ),
    "subwords of another kind": (
        f"subwords-{WMT14.source_words}.json",
        written(json.dumps({"model": {"vocab": {"a": 2**40}, "merges": [["a", "b", "c"]]}}).encode()),
        "holds no subwords: ",
    ),
}


@pytest.mark.parametrize(("name", "put", "reason"), TEXTS.values(), ids=TEXTS)
def test_a_hostile_text(tmp_path: Path, name: str, put: Put, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = parallel_text(tmp_path, SENTENCES)
    file = folder / name
    with suppress(FileNotFoundError):
        file.unlink()
    put(file)
    if put is distinct:
        monkeypatch.setattr(vocabulary, "MOST_OF_WORDS", 1 << 16)
        parallel_text(folder, [("a", "b")] * 101)
        put(file)

    corpus = WMT14 if name.startswith("subwords") else IWSLT15
    line = refusal(lambda: text.batches(folder, corpus, Sentences(1), 0))

    assert str(file) in line
    assert reason in line


def test_lines_are_counted_before_their_places_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_LINES", 3)
    (tmp_path / "train.en").write_text("a\n" * 4)

    assert refusal(lambda: text.indexed(tmp_path / "train.en")).endswith("has more than 3 lines: split it")


def test_of_saved_subwords_only_the_words_are_taken(tmp_path: Path) -> None:
    """Padding to a billion subwords is a setting that the format has."""
    folder = parallel_text(tmp_path, SENTENCES)
    size = Sentences(1)
    (first,) = [next(text.batches(folder, WMT14, size, 0))]
    file = folder / f"subwords-{WMT14.source_words}.json"
    saved = json.loads(file.read_text())
    padding = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"}
    file.write_text(json.dumps(saved | {"padding": padding}))

    with bounded():
        again = next(text.batches(folder, WMT14, size, 0))

    assert (again.source == first.source).all()


def test_words_are_saved_through_no_link(tmp_path: Path) -> None:
    folder = parallel_text(tmp_path / "data", SENTENCES)
    other = tmp_path / "precious"
    other.write_text("mine")
    (folder / f".vocab.en.{os.getpid()}").symlink_to(other)

    next(text.batches(folder, IWSLT15, Sentences(1), 0))

    assert other.read_text() == "mine"
