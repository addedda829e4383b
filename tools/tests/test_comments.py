import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "comments.py"


def load():
    spec = importlib.util.spec_from_file_location("comments", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["comments"] = module  # its dataclass looks for its own module
    spec.loader.exec_module(module)
    return module


comments = load()


def told(found):
    return [(comment.line, comment.text.strip()) for comment in found]


@pytest.mark.parametrize(
    "text",
    ["Of all logs.", "of all logs", "And this at most.", "Such a thing.", "See the module.", "see the module's header"],
)
def test_a_comment_that_leaves_out_what_it_is_about_is_found(text):
    assert comments.Comment(1, f" {text}").begins_badly()


@pytest.mark.parametrize(
    "text",
    [
        "Often it waits.",
        "Offsets below.",
        "Android.",
        "Suchlike.",
        "See the modules beside it.",
        "Size of all logs.",
        "",
    ],
)
def test_a_comment_that_begins_with_another_word_is_not(text):
    assert not comments.Comment(1, f" {text}").begins_badly()


def test_each_kind_of_comment_of_rust_is_read():
    source = "//! Module.\n\n/// Thing.\nstruct Thing; // Behind.\n/* Block /* within */ still. */\n/** Doc. */\n"
    assert told(comments.rust_comments(source)) == [
        (1, "Module."),
        (3, "Thing."),
        (4, "Behind."),
        (5, "Block /* within */ still."),
        (6, "Doc."),
    ]


def test_lines_that_follow_each_other_are_one_comment():
    rust = "/// All of it,\n/// and more.\nfn f() {}\n// Next.\nx(); // Behind.\n// Below.\n"
    assert told(comments.rust_comments(rust)) == [(1, "All of it,"), (4, "Next."), (5, "Behind."), (6, "Below.")]
    python = "# All of it,\n# and more.\nx = 1  # Behind.\n# Below.\n"
    assert told(comments.python_comments(python)) == [(1, "All of it,"), (3, "Behind."), (4, "Below.")]


@pytest.mark.parametrize(
    "source",
    [
        'const A: &str = "// Of it";',
        'const A: &str = "\\" // Of it";',
        'const A: &str = r#"" // Of it"#;',
        'const A: &[u8] = br"\\"; const B: &str = "// Of it";',
        'const A: char = \'"\'; const B: &str = "// Of it";',
        "const A: char = '\\''; const B: char = '\"'; const C: &str = \"// Of it\";",
        'const A: u8 = b\'"\'; const B: &str = "// Of it";',
        'let r#type = "// Of it";',
        'let bar = "// Of it";',
        'let url = "http://of.it";',
    ],
)
def test_text_of_strings_in_rust_is_no_comment(source):
    assert told(comments.rust_comments(source)) == []


def test_a_lifetime_begins_no_character():
    source = "fn f<'a>(a: &'a str, b: &'_ str) {} // Of it\n'outer: loop {} // And it"
    assert told(comments.rust_comments(source)) == [(1, "Of it"), (2, "And it")]


def test_comments_and_docstrings_of_python_are_read():
    source = '"""Module."""\n\nx = "# Of it"  # Behind.\n\n\n'
    source += 'class A:\n    """Class."""\n\n    def f(self):\n        """Act."""\n'
    assert sorted(told(comments.python_comments(source))) == [
        (1, "Module."),
        (3, "Behind."),
        (7, "Class."),
        (10, "Act."),
    ]


def run_in(folder):
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    return subprocess.run([sys.executable, SCRIPT], cwd=folder, check=False, capture_output=True, text=True)


def test_a_tree_with_a_bad_comment_fails_with_its_place(tmp_path):
    (tmp_path / "good.py").write_text("# All is well.\n")
    (tmp_path / "bad.rs").write_text("\n/// Of it.\nstruct A;\n")
    ran = run_in(tmp_path)
    assert ran.returncode == 1
    assert "Make each of them a whole sentence" in ran.stderr
    assert ran.stderr.endswith("    bad.rs:2: Of it.\n")


def test_a_tree_without_one_passes_in_silence(tmp_path):
    (tmp_path / "good.rs").write_text("/// Size of it.\nstruct A;\n")
    ran = run_in(tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
