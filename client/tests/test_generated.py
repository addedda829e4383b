import importlib.util
from pathlib import Path

CLIENT = Path(__file__).parents[1]


def test_the_committed_messages_are_what_the_generator_writes(tmp_path):
    specification = importlib.util.spec_from_file_location("generate_proto", CLIENT / "tools" / "generate_proto.py")
    generator = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generator)

    written = generator.generate(tmp_path)

    committed = CLIENT / "src"
    assert written
    for path in written:
        assert path.read_text() == (committed / path.relative_to(tmp_path)).read_text(), (
            f"{path.name} is out of date: run `uv run python client/tools/generate_proto.py`"
        )
