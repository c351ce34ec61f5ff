// Writes tests/golden/tokenizers.jsonl: texts and the ids that independent implementations give
// them (Hugging Face's tokenizers, and the JavaScript ports of GPT-2's, Llama-2's and Llama-3's).
// Usage: tests/fetch_fixtures.sh --golden && node tests/golden/make_tokenizer_golden.mjs
import fs from 'node:fs';
import path from 'node:path';
import {createRequire} from 'node:module';
import {fileURLToPath, pathToFileURL} from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const fixtures = path.join(here, '../../build/fixtures');
const npm = path.join(fixtures, 'npm');
const require = createRequire(import.meta.url);

const native = require(path.join(npm, 'hf-tokenizers-native/tokenizers.linux-x64-gnu.node'));
const gpt3 = require(path.join(npm, 'gpt-3-encoder/index.js'));
const llama2 = (await import(pathToFileURL(path.join(npm, 'llama-tokenizer-js/llama-tokenizer.js'))))
  .default;
const llama3 = (await import(pathToFileURL(
  path.join(npm, 'llama3-tokenizer-js/bundle/llama3-tokenizer-with-baked-data.js')))).default;

// "trained" is what belay's own trainer makes of trained/text.txt.
const names = ['gpt2', 'qwen3', 'llama3', 'llama2', 'mistral', 'trained'];
const hf = Object.fromEntries(names.map((name) => [name, native.Tokenizer.fromFile(
  path.join(name === 'trained' ? here : fixtures, name, 'tokenizer.json'))]));

// Second opinions; JavaScript's \s takes U+FEFF for white space and U+0085 not, so they have no
// say on those.
const second = {
  gpt2: (text) => gpt3.encode(text),
  llama3: (text) => llama3.encode(text, {bos: false, eos: false}),
  llama2: (text) => llama2.encode(text, false, true),
};
const contested = /[\uFEFF\u0085]|<\||<\/?s>|<unk>|<0x/;

async function idsOf(name, text) {
  if (text === '') return [];
  const encoding = await hf[name].encode(text, null, {addSpecialTokens: false});
  const ids = encoding.getIds();
  if (second[name] && !contested.test(text)) {
    const other = second[name](text);
    if (JSON.stringify(other) !== JSON.stringify(ids)) {
      throw new Error(`${name}: oracles disagree on ${JSON.stringify(text)}: ${ids} / ${other}`);
    }
  }
  return ids;
}

const written = [
  '', ' ', '  ', '\n', '\t', '\r\n', 'a', 'Hello, world!', '  two  spaces\n\ttab',
  '你好，世界。秦川雄帝宅', 'naïve café 🤗', 'don’t don\'t 12345 6', 'e\u0301', '第　一章',
  '\r\n\r\n  x', '１２３', 'The quick brown fox jumps over the lazy dog.',
  'I\'m you\'re he\'ll we\'ve they\'d it\'s can\'t I\'M YOU\'RE HE\'LL WE\'VE THEY\'D IT\'S CAN\'T',
  '\'\'s \'\'\'t x\'sy \'S\'s \'\u017F \'ſt', 'trailing space ', 'trailing spaces   ', 'line\n\n\n',
  ' \n \n x', '\n\n  \n\n', 'a  \n b', 'tab\t\ttab \t x', '   leading', 'x\u00A0y\u00A0\u00A0z',
  '\u3000\u3000全角空格\u3000', 'a\u2028b\u2029c\u0085d\u000Be\u000Cf', '\u200B\u200Dzero\uFEFFwidth',
  '1234567890', '3.14159265358979', '1,000,000.00', '½ ³ Ⅷ ① ٣٤ ৪', '0x1F a1b2c3 v2.0.1',
  '鲁迅《狂人日记》：“从来如此，便对么？”', '春眠不覺曉，處處聞啼鳥。夜來風雨聲，花落知多少。',
  '2026年11月30日，气温-3℃，涨幅12.5%。', '中文English混排text测试123ok', '吃葡萄不吐葡萄皮儿',
  '𠮷野家 𡈽 𪚥', '日本語のテキスト、カタカナ、ひらがな。', '안녕하세요 세계', 'Привет, мир! Ёлка',
  'مرحبا بالعالم', 'שלום עולם', 'नमस्ते दुनिया', 'สวัสดีชาวโลก', 'Ελληνικά ΣΊΣΥΦΟΣ',
  'Tiếng Việt có dấu', 'A\u030Angstro\u0308m', '\u1100\u1161\u11A8', 'ñ n\u0303 ṩ s\u0323\u0307 s\u0307\u0323',
  '\uFB01\uFB02 ligatures Å Å Ω', '👩‍👩‍👧‍👦 👍🏽 🇨🇳 🏳️‍🌈', '😀😃😄😁', 'a\u0300\u0301\u0302b', '\u0301alone',
  '\u0000\u0001\u001F\u007F\u0080', 'bell\u0007esc\u001B[0m', 'if (x == y) {\n    return a[i]++;\n}\n',
  'https://example.org/a?b=c&d=%20#e', 'user@example.com', '<html><body class="x">', '#include <vector>',
  '```py\nprint("hi")\n```', '-----=====-----', '!!!???...', '…——「」『』【】', 'snake_case camelCase',
  'ALLCAPS words ÀÉÎ', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈哈',
  '\u2581already\u2581marked', 'x\u2581 y', '▁ ▁▁ ▁', 'mixed \u4E00\u0301 marks', '\u{10FFFF}\u{E000}\uFFFD',
  'a<|endoftext|>b', '中午天气变了，攀登者不往下看，她寻找山脊。',
  'They\'d checked the rope; it\'s nearly there: 150 metres.', '<|endoftext|>', '<|im_start|>user\nhi<|im_end|>\n', '<|im_start', '<<|endoftext|>|>',
  'x <|endoftext|> y', '<tool_call>{}</tool_call>', '<|fim_prefix|>a', '<s>a</s> b', ' </s> </s>', '<unk>',
  '<|begin_of_text|>x<|eot_id|>', '<0x41> <0x0A>',
];

// mulberry32
let state = 20261130;
function random(below) {
  state = (state + 0x6D2B79F5) | 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) % below;
}
const pools = [
  () => 'etaoinshrdlu'[random(12)], () => 'etaoinshrdlu'[random(12)],
  () => String.fromCodePoint(0x41 + random(58)), () => ' ', () => ' ',
  () => ' \t\n\r\u00A0\u3000\u2003'[random(7)], () => '0123456789１２³½'[random(14)],
  () => String.fromCodePoint(0x4E00 + random(0x5000)), () => '的一是不了人我在有他这中大来上国'[random(16)],
  () => '，。！？、；：“”（）'[random(11)], () => '\'’".,!?-_()[]{}<>|/\\@#$%^&*+=~`'[random(32)],
  () => String.fromCodePoint(0x300 + random(0x30)), () => String.fromCodePoint(0x1F600 + random(0x40)),
  () => String.fromCodePoint(0xC0 + random(0x180)), () => String.fromCodePoint(0x3041 + random(0xB0)),
  () => String.fromCodePoint(0xAC00 + random(0x2BA0)), () => String.fromCodePoint(1 + random(0x1F)),
  () => ['\'s', '\'T', '\'Re', ' the', 'ing', '\r\n', '  ', ' \n'][random(8)],
  () => String.fromCodePoint([0x20000 + random(0x1000), 0x600 + random(0xFF), 0x900 + random(0x7F)][random(3)]),
];
function randomText() {
  let text = '';
  const few = Array.from({length: 1 + random(5)}, () => pools[random(pools.length)]);
  for (let length = 1 + random(40); length > 0; --length) text += few[random(few.length)]();
  return text;
}

// What is not UTF-8 becomes the ids of its bytes, the text between is encoded as usual. Pieces
// alternate: invalid bytes in hexadecimal (may be empty), then text.
const invalid = [
  ['ff', ''], ['', 'abc ', 'c3', ' def'], ['', '你', 'e4bd', '好'], ['80', 'x', 'bf'],
  ['', 'a', 'fffe', 'b', 'c0af', ''], ['eda080', ' z'], ['', '日本', 'f0908d'], ['f4908080', '\n'],
];
const alphabet = (() => {
  const code = [];
  let next = 0x100;
  for (let byte = 0; byte < 256; ++byte) {
    code.push((byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173) ? byte : next++);
  }
  return code.map((c) => String.fromCodePoint(c));
})();

const lines = [];
async function record(entry, compute) {
  const ids = {};
  for (const name of names) {
    const result = await compute(name);
    if (result) ids[name] = result;
  }
  lines.push(JSON.stringify({...entry, ids}));
}
const texts = [...written, ...Array.from({length: 120}, randomText)];
for (const text of texts) await record({text}, (name) => idsOf(name, text));
for (const parts of invalid) {
  const bytes = [];
  parts.forEach((part, i) => {
    const isHex = i % 2 === 0;
    bytes.push({isHex, buffer: Buffer.from(part, isHex ? 'hex' : 'utf8'), part});
  });
  const hex = Buffer.concat(bytes.map((piece) => piece.buffer)).toString('hex');
  await record({hex}, async (name) => {
    if (name === 'llama2' || name === 'mistral') return null; // characters, not bytes
    const ids = [];
    for (const piece of bytes) {
      if (!piece.isHex) ids.push(...await idsOf(name, piece.part));
      else for (const byte of piece.buffer) ids.push(hf[name].tokenToId(alphabet[byte]));
    }
    return ids;
  });
}
const target = path.join(here, 'tokenizers.jsonl');
fs.writeFileSync(target, lines.join('\n') + '\n');
console.log(`${target}: ${lines.length} texts`);
