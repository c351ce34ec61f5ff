// Writes the seeds of tokenizer_fuzz into tests/fuzz/tokenizer: small tokenizers of each kind, a
// zero byte, a text. Usage: node tests/fuzz/make_tokenizer_corpus.mjs
import fs from 'node:fs';
import path from 'node:path';
import {fileURLToPath} from 'node:url';

const target = path.join(path.dirname(fileURLToPath(import.meta.url)), 'tokenizer');
fs.mkdirSync(target, {recursive: true});

let next = 0x100;
const alphabet = Array.from({length: 256}, (_, byte) => String.fromCodePoint(
  (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173) ? byte : next++));
const bytes = Object.fromEntries(alphabet.map((character, byte) => [character, byte]));
const byteLevel = {type: 'ByteLevel', add_prefix_space: false, use_regex: false};
const end = [{id: 258, content: '<end>', special: true}];
const mark = '\u2581';

const seeds = {
  gpt2: [{
    added_tokens: end, pre_tokenizer: {...byteLevel, use_regex: true}, decoder: {type: 'ByteLevel'},
    model: {type: 'BPE', vocab: {...bytes, ab: 256, abab: 257}, merges: ['a b', 'ab ab']},
  }, 'ab abab <end> it\'s 12\n\n x'],
  split: [{
    added_tokens: end, normalizer: {type: 'NFC'},
    pre_tokenizer: {type: 'Sequence', pretokenizers: [
      {type: 'Split', pattern: {Regex: '\\p{N}{1,2}|\\s+(?!\\S)'}, behavior: 'Isolated', invert: false},
      {type: 'Digits', individual_digits: true}, byteLevel]},
    model: {type: 'BPE', ignore_merges: true, vocab: {...bytes, ab: 256, abab: 257},
      merges: [['a', 'b'], ['ab', 'ab']]},
  }, 'e\u0301 1234 \u4F60\u597D abab'],
  fallback: [{
    added_tokens: [{id: 0, content: '<unk>', special: true}],
    normalizer: {type: 'Sequence', normalizers: [{type: 'Prepend', prepend: mark},
      {type: 'Replace', pattern: {String: ' '}, content: mark}]},
    decoder: {type: 'Sequence', decoders: [
      {type: 'Replace', pattern: {String: mark}, content: ' '}, {type: 'ByteFallback'},
      {type: 'Fuse'}, {type: 'Strip', content: ' ', start: 1, stop: 0}]},
    model: {type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true,
      vocab: {'<unk>': 0, '<0x41>': 1, '<0xC3>': 2, [mark]: 3, a: 4, [mark + 'a']: 5},
      merges: [mark + ' a']},
  }, ' a aA \u00C3 zz'],
  metaspace: [{
    pre_tokenizer: {type: 'Metaspace', replacement: mark, prepend_scheme: 'first', split: true},
    decoder: {type: 'Metaspace', replacement: mark, prepend_scheme: 'first'},
    added_tokens: [{id: 0, content: '?', special: false, normalized: true, lstrip: false}],
    model: {type: 'BPE', unk_token: '?', vocab: {'?': 0, [mark]: 1, x: 2}, merges: []},
  }, 'x x?x  y'],
};
for (const [name, [json, text]] of Object.entries(seeds)) {
  fs.writeFileSync(path.join(target, name), Buffer.concat([
    Buffer.from(JSON.stringify(json)), Buffer.from([0]), Buffer.from(text)]));
}
fs.writeFileSync(path.join(target, 'broken'), '{"model": {"type": "BPE", "vocab": {"a": 99999999999}}}');
