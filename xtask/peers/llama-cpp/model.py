"""Makes tiny model files for llama.cpp, out of numbers drawn by a fixed seed: `model.py FOLDER`.

Their words are random syllables. Two things are not left to chance, because tests wait for them. One dimension of
every embedding says what may come next. In `short.gguf` the answer must go on after the end of a prompt and after
most syllables, and must end after one syllable in eight: it is never empty, and it ends by itself. In
`endless.gguf` it must go on always. Another dimension is the same everywhere and keeps out what is no syllable:
bytes, unknown and control tokens.
"""

import pathlib
import sys

import numpy
from gguf import GGUFWriter, TokenType

SEED = 20261115
WIDTH = 64
HEADS = 4
LAYERS = 2
HIDDEN = 128
CONTEXT = 4096

GOES_ON, ENDS, KEEPS_OUT = -8.0, 8.0, 8.0
"""Strong against the other dimensions, which are about 1."""

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] or '' }}\n"
    "{% endfor %}assistant:"
)

SPECIAL = [("<unk>", TokenType.UNKNOWN), ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL)]
END = 2
BYTES = [(f"<0x{byte:02X}>", TokenType.BYTE) for byte in range(256)]
SYLLABLES = [(f"▁{a}{b}", TokenType.NORMAL) for a in "bcdfghjklmnprstvwz" for b in "aeiou"]
TOKENS = SPECIAL + BYTES + SYLLABLES
FIRST_SYLLABLE = len(SPECIAL) + len(BYTES)


def embeddings(draw, is_endless):
    table = draw.normal(0, 1, (len(TOKENS), WIDTH))
    table[:, 0] = GOES_ON
    if not is_endless:
        table[FIRST_SYLLABLE::8, 0] = ENDS
    table[:, 1] = KEEPS_OUT
    return table


def output(draw):
    table = draw.normal(0, 0.5, (len(TOKENS), WIDTH))
    table[:FIRST_SYLLABLE] = 0
    table[:, :2] = 0
    table[:FIRST_SYLLABLE, 1] = -4
    table[END] = 0
    table[END, 0] = 4
    return table


def weights(is_endless):
    """Every tensor a model of the Llama family has. Attention and layers only stir a little."""
    draw = numpy.random.RandomState(SEED)
    stir = lambda rows, columns: draw.normal(0, 0.02, (rows, columns))
    yield "token_embd.weight", embeddings(draw, is_endless)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", numpy.ones(WIDTH)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"{block}.{name}.weight", stir(WIDTH, WIDTH)
        yield f"{block}.ffn_norm.weight", numpy.ones(WIDTH)
        yield f"{block}.ffn_gate.weight", stir(HIDDEN, WIDTH)
        yield f"{block}.ffn_up.weight", stir(HIDDEN, WIDTH)
        yield f"{block}.ffn_down.weight", stir(WIDTH, HIDDEN)
    yield "output_norm.weight", numpy.ones(WIDTH)
    yield "output.weight", output(draw)


def write(path, is_endless):
    writer = GGUFWriter(path, "llama")
    writer.add_name("random syllables")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _ in TOKENS])
    writer.add_token_scores([-float(index) for index in range(len(TOKENS))])
    writer.add_token_types([kind for _, kind in TOKENS])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in weights(is_endless):
        writer.add_tensor(name, tensor.astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


folder = pathlib.Path(sys.argv[1])
write(folder / "short.gguf", is_endless=False)
write(folder / "endless.gguf", is_endless=True)
