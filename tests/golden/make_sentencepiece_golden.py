#!/usr/bin/python3
"""Trains two tiny sentencepiece models on text written here and records the ids that
python3-sentencepiece gives: tests/golden/sentencepiece/{bpe,unigram}.model and ids.jsonl.
"""
import json
import os
import pathlib
import shutil
import tempfile

import sentencepiece

HERE = pathlib.Path(__file__).resolve().parent / "sentencepiece"

ENGLISH = [
    "The ship left the harbour at dawn and sailed along the coast until the wind turned.",
    "Nobody on the shore could say where she was bound, nor when she would be back.",
    "A long voyage needs good stores, a sound hull and a crew that trusts its captain.",
    "The children counted the sails and guessed which ones belonged to their fathers.",
    "When the fog came in they lit the lamps and rang the bell every quarter of an hour.",
]
CHINESE = [
    "清晨，船离开了港口，沿着海岸航行，直到风向改变。",
    "岸上没有人知道船要去哪里，也没有人知道船什么时候回来。",
    "长途航行需要充足的粮食、结实的船身和信任船长的船员。",
    "孩子们数着帆，猜哪一面帆是自己父亲的。",
    "起雾的时候，人们点上灯，每隔一刻钟敲一次钟。",
]
TEXTS = [
    "", " ", "The ship", "  two  spaces ", "the captain's crew", "船长知道什么时候回来。",
    "The 船 left 港口", "unknown: żółw 🤗 ß", "tab\tand\nline", "a</s>b<s>c", "<unk> x",
    "▁mark ▁", "ABC 123", "　全角", "e\u0301 \u00e9", "ＡＢＣ ﬁ", "x" * 60, "船" * 30,
    "\u0000nul", "trailing ", "\n", "fog\n\nlamps", "<0x41>", "<user>hi<user>", "𠮷",
]
INVALID = ["ff", "61ff62", "e4bd", "20c328"]


def train(kind, **options):
    # Relative names: the model records them.
    with tempfile.TemporaryDirectory() as directory:
        before = os.getcwd()
        os.chdir(directory)
        pathlib.Path("text").write_text("\n".join((ENGLISH + CHINESE) * 4) + "\n", encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input="text", model_prefix=kind, model_type=kind, num_threads=1,
            normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2, **options)
        shutil.copy(f"{kind}.model", HERE / f"{kind}.model")
        os.chdir(before)


def main():
    HERE.mkdir(exist_ok=True)
    train("bpe", vocab_size=600, byte_fallback=True, remove_extra_whitespaces=False)
    train("unigram", vocab_size=300, pad_id=3, user_defined_symbols=["<user>"])
    models = {
        kind: sentencepiece.SentencePieceProcessor(model_file=str(HERE / f"{kind}.model"))
        for kind in ("bpe", "unigram")
    }
    entries = [({"text": text}, text) for text in TEXTS]
    entries += [({"hex": text}, bytes.fromhex(text)) for text in INVALID]
    with open(HERE / "ids.jsonl", "w", encoding="utf-8") as out:
        for entry, text in entries:
            ids = {kind: model.encode(text) for kind, model in models.items()}
            entry["ids"] = ids
            entry["decoded"] = {kind: model.decode(ids[kind]) for kind, model in models.items()}
            out.write(json.dumps(entry, ensure_ascii=False) + "\n")


main()
