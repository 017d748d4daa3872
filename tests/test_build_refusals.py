"""Every source that the build must refuse is refused, with the place and the fix; the untouched source passes."""

from __future__ import annotations

import re

import pytest

from tests.throwaway import BODY, FRONT, ROOT, build, course, write

from builder import bengali, lint, source, terms  # isort: skip



def last(bn: str, en: str) -> str:
    """The last pair of the source, with these texts."""
    return f'{bn}\n\n+++ {{"lang": "en"}}\n\n{en}'


LAST = last("শেষ।", "The end.")
SOLUTION = "    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
LONG = "\n".join(f"x{i} = {i}" for i in range(19))
# What is wrong, the text replaced in the good source, by what, a part of the message.
REFUSED = {
    "no front matter": ("---\ntitle:", "title:", "front matter"),
    "front matter without minutes": ("minutes: 5\n", "", "minutes is not a whole number"),
    "title in one language": ("  en: A lab for tests\n", "", "title needs a bn and an en text"),
    "unknown status": ("status: ready", "status: done", "status 'done' is unknown"),
    "unknown field": ("status: ready", "status: ready\nauthor: x", "unknown field author"),
    "text without a tag": ('+++ {"lang": "bn"}\n\n## অনুশীলনী', "+++\n\n## অনুশীলনী", "no language tag"),
    "text after a code cell without a tag": ('+++ {"lang": "bn"}\n\nশেষ।', "শেষ।", "no language tag"),
    "an unknown language": ('+++ {"lang": "bn"}\n\nশেষ।', '+++ {"lang": "hi"}\n\nশেষ।', "no language tag"),
    "Bengali without English": ('+++ {"lang": "en"}\n\nThe end.\n', "", "no English text after it"),
    "English without Bengali": ('+++ {"lang": "bn"}\n\nশেষ।\n', "", "no Bengali text before it"),
    "English first": (
        '+++ {"lang": "bn"}\n\nশেষ।\n\n+++ {"lang": "en"}\n\nThe end.',
        '+++ {"lang": "en"}\n\nThe end.\n\n+++ {"lang": "bn"}\n\nশেষ।',
        "no Bengali text before it",
    ),
    "languages exchanged": (LAST, last("The end.", "শেষ।"), "no Bengali in the Bengali text"),
    "cell metadata that is not JSON": ('+++ {"lang": "bn"}\n\nশেষ।', "+++ {lang: bn\n\nশেষ।", "not readable"),
    "a heading more": ("The end.", "## The end\n\nNow.", "headings differ"),
    "a heading of another level": ("## Exercise", "### Exercise", "headings differ"),
    "another code span": ("Complete `double(x)`", "Complete `twice(x)`", "code spans differ: bn alone has `double(x)`"),
    "another link": ("../en/91_other.ipynb", "../en/92_other.ipynb", "links differ"),
    "another formula": ("is $y = 2x$", "is $y = x + x$", "formulas differ"),
    "another number": ("মোট ২টি ধাপ", "মোট ৩টি ধাপ", "numbers differ: bn alone has 3; en alone has 2"),
    "a number left out": ("Exercise 90.1", "Exercise", "numbers differ"),
    "HTML in one text only": ("The end.", "The <b>end</b>.", "HTML tags differ"),
    "a title of its own": ("## Exercise 90.1", "# Exercise 90.1", "start at ##"),
    "a long Latin run": ("শেষ।", "শেষ। এখানে this is plain English for everyone আছে।", "a long run of Latin words"),
    "more Latin than Bengali": ("শেষ।", "শেষ। " + "PyTorch, Inductor, " * 4, "more Latin than Bengali"),
    "no English": (LAST, last("শেষ।", "শেষ।"), "no English in the English text"),
    "Bengali in the English text": ("The end.", "The end. " + "আপনি নিজেই মেপে দেখবেন। " * 3, "Bengali prose"),
    "Bengali letters in code": ("x = [1, 2, 3]", "x = [1, 2, 3]  # সংখ্যা", "Bengali letters in a code cell"),
    "a code cell of 21 lines": ("x = [1, 2, 3]", LONG + "\nx = [1, 2, 3]", "21 lines of code"),
    "code that does not parse": ("x = [1, 2, 3]", "x = [1, 2, 3", "is not Python"),
    "a code cell inside a list": ("The end.", "- a\n\n  ```{code-cell}\n  1\n  ```", "a code cell inside text"),
    "a path in code": ("x = [1, 2, 3]", 'x = open("/home/me/x")', "the code shows a path of this machine: /home/me"),
    "a path in the text": ("The end.", "See `/tmp/x/y`.", "the text shows a path of this machine: /tmp/x"),
    "the language chosen by hand": ("x = [1, 2, 3]", 'lab.use_language("en")', "use_language() in a cell"),
    "a solution outside a function": ("def double(x):\n    ###", "double = 1\n###", "outside a function"),
    "an unclosed solution": ("    ### END SOLUTION\n", "", "1 BEGIN and 0 END SOLUTION"),
    "a solution without a grade id": ("---\nnbgrader: {grade_id: ex-90-1}\n---\n", "", "go together"),
    "a grade id without a solution": (SOLUTION, "    return 2 * x", "go together"),
    "an exercise without a test": ("grade_id: test-90-1", "grade_id: test-90-2", "no test cell for this exercise"),
    "a grade id of another lesson": ("grade_id: ex-90-1", "grade_id: ex-03-1", "is not ex-90-"),
    "a grade id twice": ("grade_id: test-90-1, points: 3", "grade_id: ex-90-1", "stands twice"),
    "a test without points": ("grade_id: test-90-1, points: 3", "grade_id: test-90-1", "needs its points"),
    "metadata at odds with the grade id": ("ex-90-1}", "ex-90-1, grade: true}", "does not fit ex-90-1"),
    "a test that ends on no number": ("\nresult.points\n", "\nprint(result)\n", "does not end with its points"),
    "hidden tests elsewhere": ("x = [1", "### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS\nx = [1", "outside a test cell"),
    "a measured number": ("The end.", "It was 2.3x faster here.", "a measured number in the prose: '2.3x faster'"),
    "a measured number in Bengali": ("শেষ।", "এখানে ২.৩ গুণ দ্রুত চলেছে।", "a measured number in the prose"),
    "a measured time": ("The end.", "It took 12.5 ms here.", "a measured number in the prose: '12.5 ms'"),
    "a measured bandwidth": ("The end.", "Memory gave 44 GB/s.", "a measured number in the prose: '44 GB/s'"),
    "a term in other words": (LAST, last("তথ্যের দল।", "A batch."), "does not say ব্যাচ"),
    "a term by a forbidden word": (LAST, last("মডেলের ওজন।", "A weight."), "never ওজন"),
    "a term in brackets behind another word": ("শেষ।", "ঝুড়িতে (bucket) ভরা হয়।", "the glossary says বাকেট"),
}  # fmt: skip


def refusal(tmp_path, text: str) -> str:
    course(tmp_path)
    write(tmp_path, text)
    with pytest.raises(source.RefusedError) as caught:
        build.lessons(tmp_path, [])
    return str(caught.value)


@pytest.mark.parametrize("what", REFUSED)
def test_refused(tmp_path, what):
    old, new, message = REFUSED[what]
    good = FRONT + BODY
    assert good.count(old) >= 1, "the test itself is out of date"
    said = refusal(tmp_path, good.replace(old, new, 1))
    assert message in said
    assert re.search(r"^notebooks/src/90_throwaway\.md:\d+: .* Fix: ", said, re.M)


def test_the_good_source_passes(tmp_path):
    assert build.lessons(course(tmp_path), [])[0].title["en"] == "A lab for tests"


def test_the_line_is_that_of_the_sentence(tmp_path):
    text = (FRONT + BODY).replace("শেষ।", "শেষ।\n\n- এক\n- এটি ডাটা।", 1)
    line = text.splitlines().index("- এটি ডাটা।") + 1
    assert f"notebooks/src/90_throwaway.md:{line}: cell 7: spelling: ডাটা" in refusal(tmp_path, text)


def test_every_problem_of_every_source_is_listed(tmp_path):
    course(tmp_path)
    write(tmp_path, (FRONT + BODY).replace("শেষ।", "ডাটা। মেমরি।", 1))
    write(tmp_path, "no front matter\n", name="91_other")
    with pytest.raises(source.RefusedError) as caught:
        build.lessons(tmp_path, [])
    assert [p.path[-14:] for p in caught.value.problems] == ["0_throwaway.md", "0_throwaway.md", "rc/91_other.md"]


def test_two_lessons_of_one_number(tmp_path):
    course(tmp_path)
    write(tmp_path, (FRONT + BODY), name="90_again")
    with pytest.raises(source.RefusedError, match="90 stands twice"):
        build.lessons(tmp_path, [])


# One sentence for each regular expression of the style guide, in its order, and one of what it must let pass.
SMELLS = [
    ("এটি গুরুত্বপূর্ণ যে সময় লাগে।", "সময়টি গুরুত্বপূর্ণ।"),
    ("ফিউশনের মাধ্যমে লাভ হয়।", "মাধ্যমটি ভালো।"),
    ("কাজটি সম্পন্ন করুন।", "কাজটি সম্পন্ন।"),
    ("মডেলটি সক্ষম।", "মডেলটি পারে।"),
    ("সময় বেশি লেগে, কাজ করে থাকে।", "সে থাকে।"),
    ("সুতরাং আবার মাপুন।", "তাই আবার মাপুন।"),
    ("সকল র‍্যাঙ্কগুলো চলে।", "সব র‍্যাঙ্ক চলে।"),
    ("ফলাফলসমূহ দেখুন।", "ফলাফলগুলো দেখুন।"),
    ("এটি দ্রুততর।", "এটি দ্রুত।"),
    ("একটি ঘরে একটি লোক একটি বই পড়ে।", "একটি ঘরে একটি লোক। একটি বই।"),
    ("যখন ব্যাচ ছোট হয় তখন সময় কমে।", "ব্যাচ ছোট হলে সময় কমে।"),
    ("চলুন শুরু করি।", "শুরু করি।"),
    ("স্মৃতি কম লাগে।", "মেমোরি কম লাগে।"),
    ("তুমি লেখো।", "আপনি লিখুন।"),
    ("নিজে করো।", "এক টুকরো কাগজ।"),
    ("PyTorch এর মডেল।", "PyTorch-এর মডেল।"),
    ("`loss` টা দেখুন।", "`loss`-এর মান দেখুন।"),
    ("PyTorchএর মডেল।", "PyTorch মডেল।"),
    ("DDP'তে দেখুন।", "DDP-তে দেখুন।"),
    ("এটি শেষ. তারপর।", "এটি শেষ।"),
    ("এটি শেষ ।", "এটি শেষ। তারপর।"),
    ("এটি শেষ — তারপর।", "এটি শেষ: তারপর।"),
    ("1৮ গুণ লাগে।", "১৮ গুণ লাগে।"),
    ("১.৮x লাগে।", "১.৮ গুণ লাগে।"),
    ("3টি র‍্যাঙ্ক।", "৩টি র‍্যাঙ্ক।"),
    ("র্যাপ লিখুন।", "র‍্যাপ লিখুন।"),
    ("ক্\u200cষ লিখুন।", "ক্ষ লিখুন।"),
]


@pytest.mark.parametrize(("bad", "good"), SMELLS)
def test_smells(bad, good):
    assert list(bengali.smells(bengali.nfc(bad)))
    assert not list(bengali.smells(bengali.nfc(good)))


def test_every_smell_has_its_sentence():
    """Meta-test: a regular expression that no sentence above reaches is not tested."""
    for pattern, _fix in bengali._SMELLS:
        assert any(pattern.search(bengali.parts(bengali.nfc(bad)).prose) for bad, _ in SMELLS), pattern.pattern


@pytest.mark.parametrize(("wrong", "right"), bengali.WRONG_SPELLINGS.items())
def test_spellings(wrong, right):
    said = [what for _, what, _ in bengali.smells(bengali.nfc(f"এখানে {wrong}ুন লিখুন।"))]
    assert any(what.startswith("spelling") for what in said)
    assert not list(bengali.smells(bengali.nfc(f"এখানে {right} লিখুন।")))


def test_code_formulas_and_links_are_not_prose():
    title = "[PyTorch 2: Faster Machine Learning Through Bytecode](https://pytorch.org/x)"
    text = (
        f"`print('this is not Bengali prose at all')` আর $a + b$ লিখুন। তারপর প্রবন্ধটি পড়ুন: {title}, "
        "সময় নিয়ে পড়লে ভালো লাগবে বলে মনে হয়।"
    )
    assert not list(bengali.smells(bengali.nfc(text)))


@pytest.mark.parametrize("text", [
    'Many posts promise "2-3x faster" training.',
    "The card moves 320 GB/s ([data sheet](https://example.org/t4)).",
    "Run it 100 times; 40 minutes; 2 GB of memory.",
    "`time.sleep(0.01)` sleeps.",
])  # fmt: skip
def test_quoted_sourced_and_plain_numbers_pass(text):
    lesson = source.Lesson("90_x", "p", {}, {}, {}, 1, "ready")
    found = lint._pair(lesson, "x", {"bn": "", "en": text}, {"bn": 1, "en": 1}, (), ())
    assert not [problem for problem in found if "measured" in problem.what]


WORDS = terms.glossary(ROOT / "notebooks/src/glossary.csv")


@pytest.mark.parametrize(("bn", "en"), [
    ("কার্নেলগুলো জুড়ে দিলে মেমোরিতে যাতায়াত কমে।", "Fused kernels travel to memory less often."),
    ("মেমোরির ব্যান্ডউইডথ মাপুন।", "Measure the memory bandwidth."),
    ("`loss` কমে।", "The loss falls."),
    ("মডেলটি ট্রেইন করুন।", "This is training."),
    ("all-reduce চলে।", "An all-reduce runs."),
    ("অপ্টিমাইজেশন।", "Optimization."),
    ("সব ঠিক।", "The process is the same, in this context."),
    ("ক্যাশে (cache) থাকে।", "It stays in the cache."),
])  # fmt: skip
def test_terms_that_are_said_right(bn, en):
    assert not list(terms.strays(bengali.nfc(bn), en, WORDS, ()))


def test_a_term_may_be_set_free():
    assert list(terms.strays("দল।", "A batch.", WORDS, ()))
    assert not list(terms.strays("দল।", "A batch.", WORDS, ("batch",)))


def test_glossary_is_whole():
    assert len({term.en for term in WORDS}) == len(WORDS) > 100
    assert all(term.bn for term in WORDS)
    spoken = [f"{term.bn}: {what}" for term in WORDS for _, what, _ in bengali.smells(term.bn) if "Latin" not in what]
    assert not spoken
