#!/usr/bin/env python3
"""Writes tests/train/models/pretrained/: small random models as Hugging Face would publish them, with the outputs that PyTorch gives.
Each architecture is written out here in plain PyTorch, apart from ours, so that the two check each other.

    /usr/bin/python3 tests/train/models/make_pretrained.py        (PyTorch 1.13 or newer; the tests need only what it has written)
"""
import json
import math
import pathlib
import struct

import torch
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
OUT = pathlib.Path(__file__).parent / "pretrained"
WEIGHTS = {}
TYPE = torch.float32  # of the files: today's models are published in bfloat16


def weight(name, *shape, mean=0.0, size=0.3):
    """A new weight, rounded as the file holds it."""
    WEIGHTS[name] = (mean + size * torch.randn(*shape)).to(TYPE)
    return WEIGHTS[name].double()


def module(name, *shape):
    """weight and bias of a linear map [out, in] or, with one size, of a norm."""
    if len(shape) == 1:
        return weight(name + ".weight", *shape, mean=1.0), weight(name + ".bias", *shape)
    return weight(name + ".weight", *shape), weight(name + ".bias", shape[0])


TYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.bool: "BOOL"}


def stored(tensor):
    tensor = tensor.contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += stored(tensor)
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write(folder, config, files, expected, shards=1):
    folder = OUT / folder
    folder.mkdir(parents=True, exist_ok=True)
    names = list(WEIGHTS)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", WEIGHTS)
    else:
        parts = {f"model-{n + 1:05}-of-{shards:05}.safetensors": names[n::shards] for n in range(shards)}
        for file, some in parts.items():
            write_safetensors(folder / file, {name: WEIGHTS[name] for name in some})
        index = {"metadata": {"total_size": sum(len(stored(x)) for x in WEIGHTS.values())},
                 "weight_map": {name: file for file, some in parts.items() for name in some}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    for name, content in files.items():
        if isinstance(content, dict):
            content = json.dumps(content, ensure_ascii=False) + "\n"
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    WEIGHTS.clear()


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.flatten().tolist()]


def attention(q, k, v, heads, causal):
    """q [T,C], k and v [T,kv C / heads]."""
    T, d = q.shape[0], q.shape[1] // heads
    out = []
    for h in range(heads):
        g = h * (k.shape[1] // d) // heads
        scores = q[:, h * d:(h + 1) * d] @ k[:, g * d:(g + 1) * d].T / math.sqrt(d)
        if causal:
            scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        out.append(scores.softmax(1) @ v[:, g * d:(g + 1) * d])
    return torch.cat(out, 1)


# ---- Tokenizers ------------------------------------------------------------------------------------------------------
def byte_characters():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(rest)}


MERGES = ["t h", "Ġ a", "th e", "Ġ the"]


def gpt2_files(first, last):
    tokens = first + list(byte_characters().values()) + [m.replace(" ", "") for m in MERGES] + last
    vocabulary = {token: n for n, token in enumerate(tokens)}
    assert len(vocabulary) == len(tokens)
    return len(tokens), {"vocab.json": json.dumps(vocabulary, ensure_ascii=False) + "\n",
                         "merges.txt": "#version: 0.2\n" + "\n".join(MERGES) + "\n"}


def field(number, value):
    """One field of a protobuf message: bytes, a float, or a small whole number."""
    if isinstance(value, bytes):
        assert len(value) < 128
        return bytes([number << 3 | 2, len(value)]) + value
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return bytes([number << 3, value])


PIECES = ["▁", "t", "h", "e", "▁t", "he", "▁the", "o"]  # the last character of "héo" goes by bytes


def sentencepiece_model():
    normal, unknown, control, byte = 1, 2, 3, 6
    pieces = [("<unk>", 0.0, unknown), ("<s>", 0.0, control), ("</s>", 0.0, control)]
    pieces += [(f"<0x{n:02X}>", 0.0, byte) for n in range(256)]
    pieces += [(piece, float(-n), normal) for n, piece in enumerate(PIECES)]
    model = b"".join(field(1, field(1, p.encode()) + field(2, score) + field(3, kind)) for p, score, kind in pieces)
    model += field(2, field(3, 2)) + field(3, field(1, b"identity") + field(3, 1) + field(4, 0))
    return len(pieces), {"tokenizer.model": model}


WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "##s", "##ly", "the", "!", "."]


# ---- Models ----------------------------------------------------------------------------------------------------------
def gpt2(folder, vocabulary, files, shards=1):
    dim, heads, layers, block = 8, 2, 2, 12
    ids = torch.tensor([5, 260, 17, 259, 80, 258, 2])
    token, position = weight("transformer.wte.weight", vocabulary, dim), weight("transformer.wpe.weight", block, dim)
    h = token[ids] + position[:len(ids)]

    def conv1d(name, inputs, outputs):  # GPT-2 keeps [in, out]
        w, b = weight(name + ".weight", inputs, outputs), weight(name + ".bias", outputs)
        return lambda x: x @ w + b

    for n in range(layers):
        at = f"transformer.h.{n}."
        ln_1 = module(at + "ln_1", dim)
        c_attn, c_proj = conv1d(at + "attn.c_attn", dim, 3 * dim), conv1d(at + "attn.c_proj", dim, dim)
        q, k, v = c_attn(F.layer_norm(h, (dim,), *ln_1, eps=1e-5)).split(dim, 1)
        h = h + c_proj(attention(q, k, v, heads, True))
        ln_2 = module(at + "ln_2", dim)
        c_fc, c_proj = conv1d(at + "mlp.c_fc", dim, 4 * dim), conv1d(at + "mlp.c_proj", 4 * dim, dim)
        x = c_fc(F.layer_norm(h, (dim,), *ln_2, eps=1e-5))
        x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        h = h + c_proj(x)
    h = F.layer_norm(h, (dim,), *module("transformer.ln_f", dim), eps=1e-5)
    config = {"model_type": "gpt2", "n_layer": layers, "n_head": heads, "n_embd": dim, "n_positions": block,
              "n_ctx": block, "n_inner": None, "vocab_size": vocabulary, "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1}
    if shards > 1:
        config.update(architectures=["GPT2LMHeadModel"], torch_dtype="bfloat16", attn_pdrop=0.1, use_cache=True)
        WEIGHTS["transformer.h.0.attn.bias"] = torch.ones(1, 1, block, block).tril().bool()
    write(folder, config, files, {"ids": ids.tolist(), "logits": numbers((h @ token.T)[-1])}, shards)


def llama(folder, vocabulary, files, shards=1):
    dim, heads, kv_heads, layers, ffn, theta, eps = 16, 4, 2, 2, 24, 500.0, 1e-6
    d = dim // heads
    ids = torch.tensor([1, 265, 259, 261, 198, 172, 266, 2])
    token = weight("model.embed_tokens.weight", vocabulary, dim)
    h = token[ids]

    def rms(x, gain):
        return x / torch.sqrt((x * x).mean(1, keepdim=True) + eps) * gain

    def rope(x):  # pairs c and c + d/2
        angles = torch.arange(len(ids))[:, None] * theta ** (-torch.arange(0, d, 2) / d)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        parts = x.split(d, 1)
        return torch.cat([p * cos + torch.cat([-p[:, d // 2:], p[:, :d // 2]], 1) * sin for p in parts], 1)

    for n in range(layers):
        at = f"model.layers.{n}."
        x = rms(h, weight(at + "input_layernorm.weight", dim, mean=1.0))
        q, k, v = (x @ weight(f"{at}self_attn.{part}_proj.weight", count * d, dim).T
                   for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        h = h + attention(rope(q), rope(k), v, heads, True) @ weight(at + "self_attn.o_proj.weight", dim, dim).T
        x = rms(h, weight(at + "post_attention_layernorm.weight", dim, mean=1.0))
        gate = x @ weight(at + "mlp.gate_proj.weight", ffn, dim).T
        up = x @ weight(at + "mlp.up_proj.weight", ffn, dim).T
        h = h + (gate * gate.sigmoid() * up) @ weight(at + "mlp.down_proj.weight", dim, ffn).T
    logits = rms(h, weight("model.norm.weight", dim, mean=1.0)) @ weight("lm_head.weight", vocabulary, dim).T
    config = {"model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "hidden_size": dim, "intermediate_size": ffn, "vocab_size": vocabulary,
              "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": eps, "rope_theta": theta,
              "rope_scaling": None, "attention_bias": False, "tie_word_embeddings": False}
    if shards > 1:
        config.update(architectures=["LlamaForCausalLM"], torch_dtype="bfloat16", head_dim=d, mlp_bias=False,
                      rope_parameters={"rope_type": "default", "rope_theta": theta}, pretraining_tp=1)
        del config["rope_scaling"], config["rope_theta"]
    write(folder, config, files, {"ids": ids.tolist(), "logits": numbers(logits[-1])}, shards)


def encoder(kind, vocabulary, files, ids, types, labels, folder=None, **more):
    dim, heads, layers, ffn, block, roberta = 8, 2, 2, 12, 16, kind == "roberta"
    offset, eps = (2, 1e-5) if roberta else (0, 1e-12)
    ids, types = torch.tensor(ids), torch.tensor(types)
    at = kind + ".embeddings."
    h = weight(at + "word_embeddings.weight", vocabulary, dim)[ids]
    h = h + weight(at + "position_embeddings.weight", block + offset, dim)[offset:offset + len(ids)]
    h = h + weight(at + "token_type_embeddings.weight", 1 if roberta else 2, dim)[types]
    h = F.layer_norm(h, (dim,), *module(at + "LayerNorm", dim), eps=eps)

    def linear(name, inputs, outputs):
        w, b = module(name, outputs, inputs)
        return lambda x: x @ w.T + b

    for n in range(layers):
        at = f"{kind}.encoder.layer.{n}."
        q, k, v = (linear(at + "attention.self." + part, dim, dim)(h) for part in ("query", "key", "value"))
        a = linear(at + "attention.output.dense", dim, dim)(attention(q, k, v, heads, False))
        h = F.layer_norm(h + a, (dim,), *module(at + "attention.output.LayerNorm", dim), eps=eps)
        x = linear(at + "intermediate.dense", dim, ffn)(h)
        x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        x = linear(at + "output.dense", ffn, dim)(x)
        h = F.layer_norm(h + x, (dim,), *module(at + "output.LayerNorm", dim), eps=eps)
    pooled = torch.tanh(linear("classifier.dense" if roberta else "bert.pooler.dense", dim, dim)(h[0]))
    logits = linear("classifier.out_proj" if roberta else "classifier", dim, len(labels))(pooled)
    config = {"model_type": kind, "num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": dim,
              "intermediate_size": ffn, "max_position_embeddings": block + offset, "hidden_act": "gelu",
              "layer_norm_eps": eps, "type_vocab_size": 1 if roberta else 2, "vocab_size": vocabulary,
              "pad_token_id": 1 if roberta else 0, "hidden_dropout_prob": 0.1,
              "id2label": {str(n): label for n, label in enumerate(labels)},
              "label2id": {label: n for n, label in enumerate(labels)}}
    if folder:
        WEIGHTS[kind + ".embeddings.position_ids"] = torch.arange(block)[None]
    config.update(more)
    write(folder or kind, config, files, {"ids": ids.tolist(), "logits": numbers(logits)}, 2 if folder else 1)


def distilbert(vocabulary, files, ids, labels):
    dim, heads, layers, ffn, block = 8, 2, 2, 12, 16
    ids = torch.tensor(ids)
    at = "distilbert.embeddings."
    h = weight(at + "word_embeddings.weight", vocabulary, dim)[ids]
    h = h + weight(at + "position_embeddings.weight", block, dim)[:len(ids)]
    h = F.layer_norm(h, (dim,), *module(at + "LayerNorm", dim), eps=1e-12)

    def linear(name, inputs, outputs):
        w, b = module(name, outputs, inputs)
        return lambda x: x @ w.T + b

    for n in range(layers):
        at = f"distilbert.transformer.layer.{n}."
        q, k, v = (linear(f"{at}attention.{part}_lin", dim, dim)(h) for part in "qkv")
        a = linear(at + "attention.out_lin", dim, dim)(attention(q, k, v, heads, False))
        h = F.layer_norm(h + a, (dim,), *module(at + "sa_layer_norm", dim), eps=1e-12)
        x = linear(at + "ffn.lin1", dim, ffn)(h)
        x = linear(at + "ffn.lin2", ffn, dim)(x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))
        h = F.layer_norm(h + x, (dim,), *module(at + "output_layer_norm", dim), eps=1e-12)
    pooled = linear("pre_classifier", dim, dim)(h[0]).clamp(min=0)
    logits = linear("classifier", dim, len(labels))(pooled)
    config = {"model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"], "n_layers": layers,
              "n_heads": heads, "dim": dim, "hidden_dim": ffn, "max_position_embeddings": block, "activation": "gelu",
              "vocab_size": vocabulary, "pad_token_id": 0, "dropout": 0.1, "attention_dropout": 0.1,
              "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True,
              "id2label": {str(n): label for n, label in enumerate(labels)},
              "label2id": {label: n for n, label in enumerate(labels)}}
    write("distilbert", config, files, {"ids": ids.tolist(), "logits": numbers(logits)}, 2)


# ---- tokenizer.json, which is all that many models are published with -------------------------------------------------
def tokenizer_json(model, special, normalizer, pre_tokenizer, post_processor, decoder):
    vocabulary = model["vocab"]
    return {"tokenizer.json": {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocabulary[name], "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for name in special],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder,
        "model": model}}


def byte_level_json(files, special, post_processor):
    vocabulary = json.loads(files["vocab.json"])
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return tokenizer_json({"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocabulary, "merges": MERGES},
                          special, None, level, post_processor, {"type": "ByteLevel"})


def llama_json():
    """PIECES with the merges that make them, in the order of their scores."""
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{n:02X}>" for n in range(256)] + PIECES
    merges = [[piece[:cut], piece[cut:]] for piece in PIECES for cut in range(1, len(piece))
              if piece[:cut] in PIECES and piece[cut:] in PIECES]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [start, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [start, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return tokenizer_json({"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                           "vocab": {name: n for n, name in enumerate(names)}, "merges": merges}, names[:3],
                          {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]}, None,
                          template, {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]})


def bert_json():
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True}
    return tokenizer_json({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                           "max_input_chars_per_word": 100, "vocab": {name: n for n, name in enumerate(WORDPIECES)}},
                          WORDPIECES[:5], bert, {"type": "BertPreTokenizer"},
                          {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
                          {"type": "WordPiece", "prefix": "##", "cleanup": True})


gpt2("gpt2", *gpt2_files([], ["<|endoftext|>"]))
llama("llama", *sentencepiece_model())
# [CLS] the good film ##s ! [SEP] bad film [SEP]
encoder("bert", len(WORDPIECES), {"vocab.txt": "\n".join(WORDPIECES) + "\n"}, [2, 11, 6, 8, 9, 12, 3, 7, 8, 3],
        [0, 0, 0, 0, 0, 0, 0, 1, 1, 1], ["worse", "same", "better"])
SIZE, FILES = gpt2_files(["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"])
# <s> " the" "!" "a" </s>
encoder("roberta", SIZE, FILES, [0, 263, 4, 68, 2], [0] * 5, ["NEGATIVE", "AMBIGUOUS"])

TYPE = torch.bfloat16
count, files = gpt2_files([], ["<|endoftext|>"])
gpt2("gpt2_today", count, byte_level_json(files, ["<|endoftext|>"], {"type": "ByteLevel", "trim_offsets": False}), 2)
llama("llama_today", sentencepiece_model()[0], llama_json(), 3)
encoder("bert", len(WORDPIECES), bert_json(), [2, 11, 6, 8, 9, 12, 3, 7, 8, 3], [0, 0, 0, 0, 0, 0, 0, 1, 1, 1],
        ["toxic", "obscene", "threat"], "bert_today", problem_type="multi_label_classification",
        architectures=["BertForSequenceClassification"], torch_dtype="bfloat16")
roberta = byte_level_json(FILES, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
                          {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
                           "add_prefix_space": False})
encoder("roberta", SIZE, roberta, [0, 263, 4, 68, 2], [0] * 5, ["joy", "anger"], "roberta_today",
        problem_type="regression", torch_dtype="bfloat16")
distilbert(len(WORDPIECES), bert_json(), [2, 11, 6, 8, 9, 12, 3], ["worse", "better"])
