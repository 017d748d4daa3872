"""Everything that the set-up says, in Bengali and in English: the learner has not chosen a language yet."""

from __future__ import annotations

MESSAGES = {
    # -- what it does
    "making": ("Python {version} দিয়ে .venv বানাচ্ছি।", "Making .venv with Python {version}."),
    "remaking": (".venv আবার গোড়া থেকে বানাতে হবে: {bengali}।", ".venv has to be made afresh: {english}."),
    "ready": ("সেট-আপ আগে থেকেই ঠিক আছে।", "The set-up is up to date."),
    "done": ("সেট-আপ শেষ; সময় লেগেছে {seconds:.0f} s।", "The set-up is done; it took {seconds:.0f} s."),
    "installing": (
        "প্যাকেজ নামিয়ে ইনস্টল করছি: {extras}। প্রথমবার কয়েক মিনিট লাগে। শেষ দিকে «Installing collected packages» লেখার পর "
        "এক-দুই মিনিট চুপচাপ মনে হতে পারে।",
        "Downloading and installing packages: {extras}. The first time takes some minutes. Near the end, after "
        '"Installing collected packages", it may look idle for a minute or two.',
    ),
    "still_busy": ("… কাজ চলছে, {seconds:.0f} s", "… still working, {seconds:.0f} s"),
    "opening": (
        "JupyterLab খুলছি। ব্রাউজার নিজে থেকে না খুললে নিচের http://127.0.0.1 দিয়ে শুরু ঠিকানাটি ব্রাউজারে বসান। বন্ধ করতে দুবার "
        "Ctrl-C চাপুন।",
        "Opening JupyterLab. If no browser opens, copy the address below that starts with http://127.0.0.1 into one. "
        "To stop, press Ctrl-C twice.",
    ),
    "own_torch": (
        "এই মেশিনের নিজের PyTorch {version} ব্যবহার করছি ({python}); PyTorch নামানো হবে না।",
        "Using this machine's own PyTorch {version} ({python}); PyTorch is not downloaded.",
    ),
    # -- hints and warnings
    "no_gpu": (
        "এই মেশিনে NVIDIA GPU দেখা যাচ্ছে না। GPU ছাড়া PyTorch নামাতে অনেক কম ডেটা লাগে: Ctrl-C চেপে থামান, তারপর লিখুন make "
        "{command} TORCH_INDEX=cpu",
        "No NVIDIA GPU in sight. PyTorch without GPU support is a far smaller download: press Ctrl-C, then type make "
        "{command} TORCH_INDEX=cpu",
    ),
    "no_mxnet": (
        "এই মেশিনের ({machine}) জন্য MXNet-এর প্যাকেজ নেই। বাকি সব ল্যাব চলবে; ল্যাব ০৯ Colab-এ খুলুন।",
        "MXNet has no package for this machine ({machine}). All other labs run; open lab 09 in Colab.",
    ),
    "mxnet_broken": (
        "MXNet ইনস্টল হয়েছে, কিন্তু চালু হচ্ছে না: {error}। বাকি সব ল্যাব চলবে।",
        "MXNet is installed but does not load: {error}. All other labs run.",
    ),
    "no_compiler": (
        "সতর্কতা: C++ কম্পাইলার পাওয়া যায়নি। যে ল্যাবে লাগবে, সেটি নিজেই বলে দেবে; বাকিগুলো চলবে। Ubuntu/Debian-এ লিখুন: sudo apt "
        "install g++, macOS-এ: xcode-select --install",
        "Warning: no C++ compiler found. The labs that need one will say so; the others run. On Ubuntu/Debian type: "
        "sudo apt install g++, on macOS: xcode-select --install",
    ),
    "no_header": (
        "সতর্কতা: C++ কম্পাইলার আছে, কিন্তু Python.h নেই। C++ দিয়ে লেখা কার্নেল কম্পাইল হবে না। Ubuntu/Debian-এ লিখুন: sudo apt "
        "install python{version}-dev",
        "Warning: there is a C++ compiler but no Python.h, so kernels written in C++ will not compile. On "
        "Ubuntu/Debian type: sudo apt install python{version}-dev",
    ),
    "packing": (
        "{folder} ফোল্ডারে প্রজেক্ট আর তার সব প্যাকেজ জমা করছি।",
        "Gathering the project and all its packages in {folder}.",
    ),
    "packed": (
        "তৈরি: {folder} ({size_gb:.1f} GB), Python {python}, {machine}। ফোল্ডারটি পেনড্রাইভে কপি করুন; অন্য মেশিনে "
        "নিয়ে ভেতরে make lab লিখলেই হবে, ইন্টারনেট লাগবে না।",
        "Ready: {folder} ({size_gb:.1f} GB), Python {python}, {machine}. Copy the folder to a USB stick; on the other "
        "machine type make lab inside it, no internet needed.",
    ),
    "offline_start": (
        "এই ফোল্ডারে ল্যাবগুলো আছে, সঙ্গে সব প্যাকেজ (wheels/)। লাগবে: Python {python}, {machine}, make। ফোল্ডারটি কম্পিউটারে কপি "
        "করুন, ভেতরে টার্মিনাল খুলুন, লিখুন: make lab EXTRAS={extras}",
        "This folder has the labs and every package (wheels/). You need: Python {python}, {machine}, make. Copy the "
        "folder to the computer, open a terminal inside it and type: make lab EXTRAS={extras}",
    ),
    # -- what stops it
    "offline_folder": (
        "{folder} আগে থেকেই আছে, ভেতরে ফাইলও আছে। অন্য একটি ফোল্ডার দিন: make offline OUT=/path/to/folder",
        "{folder} exists and is not empty. Name another folder: make offline OUT=/path/to/folder",
    ),
    "wrong_python": (
        "Python 3.11, 3.12 বা 3.13 লাগবে। এখানে পাওয়া গেছে: {found}। Ubuntu/Debian-এ লিখুন: sudo apt install python3 "
        "python3-venv, macOS-এ: brew install python@3.12। অন্য জায়গায় থাকলে জানিয়ে দিন: make {command} "
        "PYTHON=/path/to/python3.12",
        "Python 3.11, 3.12 or 3.13 is needed. Found here: {found}. On Ubuntu/Debian type: sudo apt install python3 "
        "python3-venv, on macOS: brew install python@3.12. If it lies elsewhere, say where: make {command} "
        "PYTHON=/path/to/python3.12",
    ),
    "no_venv_module": (
        "Python {version} আছে, কিন্তু তার venv মডিউল নেই। লিখুন: sudo apt install python{short}-venv, তারপর একই কমান্ড আবার।",
        "Python {version} is here, but its venv module is missing. Type: sudo apt install python{short}-venv, then the "
        "same command again.",
    ),
    "old_torch": (
        "{python}-এর PyTorch-এর ভার্সন {version}, কিন্তু ল্যাবগুলোর লাগে {oldest} বা তার পরের। PyTorch আপডেট করুন, নয়তো পরীক্ষিত "
        "ভার্সনটি নামাতে TORCH=installed ছাড়া লিখুন: make {command}",
        "The PyTorch of {python} is {version}, but the labs need {oldest} or newer. Upgrade PyTorch; or, to download "
        "the tested release, leave out TORCH=installed and type: make {command}",
    ),
    "no_torch": (
        "TORCH=installed চাওয়া হয়েছে, কিন্তু {python}-এ কোনো PyTorch পাওয়া গেল না। PyTorch অন্য কোনো Python-এ থাকলে জানিয়ে দিন: "
        "make {command} TORCH=installed PYTHON=/path/to/python3। না থাকলে TORCH=installed ছাড়া লিখুন: make {command}",
        "TORCH=installed was asked for, but {python} has no PyTorch. If another Python has it, say which: make "
        "{command} TORCH=installed PYTHON=/path/to/python3. If there is none, leave out TORCH=installed and type: make "
        "{command}",
    ),
    "disk_full": (
        "ডিস্কে জায়গা নেই: {folder} যে ডিস্কে, সেখানে খালি আছে {free_gb:.1f} GB, লাগবে অন্তত {needed_gb} GB। জায়গা খালি করে "
        "একই কমান্ড আবার দিন। জায়গা কম যদি শুধু /tmp-তে, তাহলে লিখুন: TMPDIR=$HOME make {command}",
        "The disk is full: {free_gb:.1f} GB free where {folder} lies, at least {needed_gb} GB needed. Free some space, "
        "then give the same command again. If only /tmp is short of space, type: TMPDIR=$HOME make {command}",
    ),
    "no_network": (
        "প্যাকেজ নামানো যাচ্ছে না, নেটওয়ার্কে সমস্যা। সংযোগ আর প্রক্সির সেটিং দেখে একই কমান্ড আবার দিন; যা নামানো হয়ে গেছে, তা আবার "
        "নামাতে হবে না।",
        "Packages cannot be downloaded: the network does not answer. Check the connection and any proxy settings, then "
        "give the same command again; what has been downloaded is kept.",
    ),
    "failed": (
        "ইনস্টল হয়নি; কারণ ওপরের লাইনগুলোতে। গোড়া থেকে শুরু করতে লিখুন: make clean, তারপর একই কমান্ড আবার।",
        "The installation failed; the lines above say why. To start afresh type: make clean, then the same command "
        "again.",
    ),
    "does_not_load": (
        "সব ইনস্টল হয়েছে, কিন্তু প্যাকেজ চালু হচ্ছে না: {error}। লিখুন: make clean, তারপর একই কমান্ড আবার।",
        "Everything is installed, but the packages do not load: {error}. Type: make clean, then the same command "
        "again.",
    ),
    "stopped": (
        "থামানো হয়েছে। একই কমান্ড আবার দিলে সেট-আপ শেষ হবে।",
        "Stopped. Give the same command again to finish the set-up.",
    ),
}


class Stop(Exception):  # noqa: N818 - it ends the set-up with an explanation; nobody handles it as a mistake in here
    """The set-up cannot go on; ``str()`` says what happened and what to type, in both languages."""

    def __init__(self, message, **values):
        super().__init__(text(message, **values))
        self.message = message


def text(message, **values):
    return "\n".join(part.format(**values) for part in MESSAGES[message])


def say(message, **values):
    print(text(message, **values), flush=True)
