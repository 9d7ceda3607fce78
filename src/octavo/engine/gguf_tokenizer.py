"""Builds the tokenizer that a GGUF file describes: a vocabulary, merges, and the name of a way to cut text into words.

The pieces are put together as transformers' converters do it, and where those ignore what the file says (the name
of the pre-tokenizer), as the model's own tokenizer.json does.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from octavo.engine.token_decoder import SPACE
from octavo.weights.source import CheckpointError
from octavo.weights.tokenizer_spec import GGUFVocabulary, TokenType

_LLAMA_3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN_2_WORDS = _LLAMA_3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def build_gguf_tokenizer(vocabulary: GGUFVocabulary) -> Tokenizer:
    """The tokenizer. Raises CheckpointError for a kind that octavo cannot build, naming those it can."""
    if vocabulary.model == "gpt2":
        tokenizer = _byte_level_bpe(vocabulary)
    elif vocabulary.model == "llama":
        tokenizer = _sentencepiece_bpe(vocabulary)
    else:
        raise CheckpointError(f"GGUF tokenizer {vocabulary.model!r} is not supported; octavo builds 'gpt2' and 'llama'")
    # Special tokens are found in the text before anything else looks at it.
    for kinds, is_special in (((TokenType.CONTROL, TokenType.UNKNOWN), True), ((TokenType.USER_DEFINED,), False)):
        tokenizer.add_tokens(
            [
                AddedToken(token, normalized=False, special=is_special)
                for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
                if kind in kinds and token
            ]
        )
    return tokenizer


def _byte_level_bpe(vocabulary: GGUFVocabulary) -> Tokenizer:
    merges = [_split_merge(merge) for merge in vocabulary.merges]
    # Llama 3 takes a word that is a token as it is, even where the merges would not lead there.
    model = models.BPE(_id_by_token(vocabulary), merges, ignore_merges=vocabulary.pre == "llama-bpe")
    tokenizer = Tokenizer(model)
    if vocabulary.pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(vocabulary.pre)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """What cuts the text into words, within which bytes are merged, by llama.cpp's name for it."""
    gpt_2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    match name:
        case "gpt-2" | "default":
            return gpt_2
        case "smollm":
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt_2])
        case "qwen2":
            words = _QWEN_2_WORDS
        case "llama-bpe":
            words = _LLAMA_3_WORDS
        case _:
            raise CheckpointError(
                f"GGUF pre-tokenizer {name!r} is not supported; octavo knows gpt-2, smollm, qwen2 and llama-bpe"
            )
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated"), to_bytes])


def _sentencepiece_bpe(vocabulary: GGUFVocabulary) -> Tokenizer:
    unk = None if vocabulary.unk_token_id is None else vocabulary.tokens[vocabulary.unk_token_id]
    id_by_token = _id_by_token(vocabulary)
    model = models.BPE(
        id_by_token, _merges_of_scores(vocabulary, id_by_token), unk_token=unk, fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    prefix = [normalizers.Prepend(SPACE)] if vocabulary.adds_space_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.adds_space_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_of_scores(vocabulary: GGUFVocabulary, id_by_token: dict[str, int]) -> list[tuple[str, str]]:
    """SentencePiece keeps no merges: any two tokens merge if the vocabulary has their union, the best score first.

    Of the splits of one token, the one whose left part, then whose right part has the better score comes first.
    """
    scores = vocabulary.scores
    if not scores:
        raise CheckpointError("the GGUF tokenizer of kind 'llama' has no tokenizer.ggml.scores: the file is damaged")
    merges = []
    for token, token_id in id_by_token.items():
        for cut in range(1, len(token)):
            left, right = id_by_token.get(token[:cut]), id_by_token.get(token[cut:])
            if left is not None and right is not None:
                merges.append(
                    ((-scores[token_id], token_id, -scores[left], -scores[right]), (token[:cut], token[cut:]))
                )
    return [parts for _, parts in sorted(merges)]


def _id_by_token(vocabulary: GGUFVocabulary) -> dict[str, int]:
    return {token: token_id for token_id, token in enumerate(vocabulary.tokens)}


def _split_merge(merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not space:
        raise CheckpointError(f"the GGUF merge {merge!r} is not two tokens with a space between: the file is damaged")
    return left, right
