// Makes every case of this folder, with nothing but Node: its JSON, its sorting, its Ed25519.
//
//     node make.mjs [FOLDER]
//
// The keys are fixed, and Ed25519 is deterministic: the same bytes come out each time.

import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const target = process.argv[2] ?? path.dirname(fileURLToPath(import.meta.url));

// Keys. They are public: never sign anything that matters with them.

const keyOf = (byte) => {
  const der = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.alloc(32, byte)]);
  return crypto.createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
};
const pemOf = (key) => crypto.createPublicKey(key).export({ format: 'pem', type: 'spki' });
const signer = keyOf(1);
const stranger = keyOf(2);

// What is signed, in both forms: Part 6 of the specification, and what the reference tool does.

const filesOf = (folder, at = '') =>
  fs.readdirSync(path.join(folder, at), { withFileTypes: true }).flatMap((entry) => {
    const name = at ? `${at}/${entry.name}` : entry.name;
    return entry.isDirectory() ? filesOf(folder, name) : [name];
  });
const sha256 = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');
const hashesOf = (folder) =>
  filesOf(folder)
    .filter((name) => name !== 'manifest.json')
    .sort()
    .map((name) => ({ path: name, sha256: sha256(fs.readFileSync(path.join(folder, name))) }));

const sorted = (value) => {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== 'object') return value;
  const names = Object.keys(value).sort((a, b) => a.length - b.length || (a < b ? -1 : a > b ? 1 : 0));
  return Object.fromEntries(names.map((name) => [name, sorted(value[name])]));
};
const payloadOf = {
  text: ({ signed, signature, ...rest }, folder) => join(JSON.stringify(rest), folder),
  reference: ({ signature, ...rest }, folder) => join(JSON.stringify(sorted({ ...rest, signed: true })), folder),
};
const join = (text, folder) => Buffer.from([text, ...hashesOf(folder).map((file) => file.sha256)].join('\n'));

/** What Node says of a pack as it stands: does the signature hold, in either form? Null where it cannot read it. */
const verdictOfNode = (folder, publicKey) => {
  try {
    const manifest = JSON.parse(fs.readFileSync(path.join(folder, 'manifest.json'), 'utf8'));
    const holds = (form) =>
      crypto.verify(null, payloadOf[form](manifest, folder), publicKey, Buffer.from(manifest.signature, 'base64url'));
    return { text: holds('text'), reference: holds('reference') };
  } catch {
    return null;
  }
};

// The pack that every case starts from.

const FILES = {
  'agents.md': `# AMP Routing — signed-notes

## Always load
- operating-principles.md — how the author works

## Route by task type

| If the task involves... | Load |
|---|---|
| Writing anything | copy-voice.md |
`,
  'memory/copy-voice.md': `---
type: cluster
applies_to: everything that is written
source: self
primitive_counts:
  directive: 1
---

[directive must, org, permanent] In any text, never start with an apology.
`,
  'memory/operating-principles.md': `---
type: cluster
applies_to: every task
source: self
primitive_counts:
  goal: 1
---

[goal should, project, permanent] Optimize for answers that can be checked.
  > What cannot be checked is asked again.
`,
};
const MANIFEST = {
  name: 'signed-notes',
  title: 'Notes to be signed',
  version: { number: 1 },
  layout: 'semantic-cluster',
  primitive_format: 'inline-tag-v0.4',
  created: '2026-07-01',
  sources: ['notes.md'],
  agents_file: 'agents.md',
  agents: ['claude-code'],
  capability_files: ['operating-principles.md', 'copy-voice.md'],
  primitive_counts: { goal: 1, claim: 0, directive: 1, demonstration: 0, dropped_action_log: 0, dropped_duplicate: 0 },
  signed: false,
  signature: '',
};

const write = (folder, name, content) => {
  const file = path.join(folder, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, content);
};
const read = (folder) => fs.readFileSync(path.join(folder, 'manifest.json'), 'utf8');
const edit = (change) => (folder) => write(folder, 'manifest.json', change(read(folder)));
const editMembers = (change) => edit((text) => {
  const manifest = JSON.parse(text);
  return JSON.stringify(change(manifest) ?? manifest, null, 2);
});
const append = (name, text) => (folder) => fs.appendFileSync(path.join(folder, name), text);
const rename = (from, to) => (folder) => fs.renameSync(path.join(folder, from), path.join(folder, to));

/** Makes one case: a pack, signed as told, then changed, and what has to be said of it. */
const make = (name, about, expected, options = {}) => {
  const { form = 'text', key = signer, names = true, files = FILES, members = {}, after = () => {}, given = true } = options;
  const folder = path.join(target, name, 'pack');
  fs.rmSync(path.join(target, name), { recursive: true, force: true });
  for (const [file, content] of Object.entries(files)) write(folder, file, content);
  const manifest = { ...MANIFEST, ...members };
  if (names) Object.assign(manifest, { files: hashesOf(folder), public_key: pemOf(key) }, options.named);
  manifest.signed = true;
  // As text with placeholders for what JSON.stringify would not write, such as 1.0.
  const raw = options.raw ?? ((text) => text);
  write(folder, 'manifest.json', raw(JSON.stringify(manifest, null, 2)));
  const signature = crypto.sign(null, payloadOf[form](JSON.parse(read(folder)), folder), key).toString('base64url');
  edit((text) => text.replace('"signature": ""', `"signature": "${signature}"`))(folder);
  after(folder);
  const publicKeys = given ? [pemOf(signer)] : [];
  const node = verdictOfNode(folder, crypto.createPublicKey(given ? signer : key));
  write(path.join(target, name), 'verdict.json', `${JSON.stringify({ name, about, publicKeys, expected, node }, null, 2)}\n`);
};

const held = (form, more = {}) => ({ answer: 'held', form, ...more });
const broken = (rule, more = {}) => ({ answer: 'broken', rule, ...more });
const unknown = (rule, more = {}) => ({ answer: 'unknown', rule, ...more });
const refused = (error) => ({ error });

// Packs whose signature holds

make('text_form', 'signed as the specification writes it', held('text'));
make('reference_form', 'signed as the reference tool does it', held('reference'), { form: 'reference' });
make('text_form_without_names', 'no `files`, no `public_key`', held('text', { warnings: true }), { names: false });
make('reference_form_without_names', 'what the reference tool makes', held('reference', { warnings: true }), {
  form: 'reference',
  names: false,
});
const odd = {
  b: { 10: 1, 9: 2, a: 3, '01': 4 }, 4294967294: 1, 4294967295: 2, 0: 3, aa: null, '\u00e9': true, '': [],
  '\ufb33': 1, '\u{1f600}': 2, text: '\u2028 \u0000 \u007f \ud800 / " \\',
}; // prettier-ignore
make('members_like_numbers', 'members that JavaScript moves to the front, at every depth', held('text'), { members: odd });
make('members_like_numbers_sorted', 'the same, sorted by the reference tool', held('reference'), {
  form: 'reference',
  members: odd,
});
make('numbers', 'numbers that JavaScript writes otherwise than they stand there', held('text'), {
  members: { numbers: 'HERE' },
  raw: (text) => text.replace('"HERE"', '[1.0, 1E2, -0, 1e21, 1e20, 5e-7, 0.000001, 0.1e1, 9007199254740992, 4.9e-324]'),
});
make('file_names', 'names that sort by UTF-16 code unit, not by code point, and not by folder', held('text'), {
  files: { ...FILES, 'memory/\ufb33.md': '1\n', 'memory/\u{1f600}.md': '2\n', 'memory.md': '3\n', 'memory-b/x.md': '4\n' },
});
make('spaces_changed', 'the manifest is written on one line; spaces are not signed', held('text'), {
  after: edit((text) => JSON.stringify(JSON.parse(text))),
});
make('member_order_reference', 'members change their order, which this form does not sign', held('reference'), {
  form: 'reference',
  after: editMembers((manifest) => Object.fromEntries(Object.entries(manifest).reverse())),
});
make('renamed_without_names', 'a file renamed in its place: nothing that is signed changes', held('text', { warnings: true }), {
  names: false,
  after: rename('memory/copy-voice.md', 'memory/copy-voicf.md'),
});
make('private_key_inside', '`public_key` is the private key', held('text', { warnings: true }), {
  named: { public_key: signer.export({ format: 'pem', type: 'pkcs8' }) },
});

// Nobody vouches for it

make('signer_unknown', 'no key is given, and the pack brings its own', unknown('signer-unknown', { form: 'text' }), {
  given: false,
});
make('no_key', 'no key is given, and the pack brings none', unknown('no-key', { warnings: true }), { given: false, names: false });

// The files are not those that were signed

const differ = (...differences) => broken('files-differ', { differences });
make('file_changed', 'a line more', differ({ kind: 'changed', path: 'agents.md' }), { after: append('agents.md', '\n') });
make('file_added', 'a file more', differ({ kind: 'added', path: 'memory/extra.md' }), {
  after: append('memory/extra.md', '\n'),
});
make('file_missing', 'a file is gone', differ({ kind: 'missing', path: 'memory/copy-voice.md' }), {
  after: (folder) => fs.rmSync(path.join(folder, 'memory/copy-voice.md')),
});
make(
  'file_renamed',
  'a file renamed in its place: the signature holds, the signed names do not',
  differ({ kind: 'renamed', path: 'memory/copy-voice.md', newPath: 'memory/copy-voicf.md' }),
  { after: rename('memory/copy-voice.md', 'memory/copy-voicf.md') },
);
make(
  'files_exchanged',
  'two files exchange their content',
  differ({ kind: 'changed', path: 'memory/copy-voice.md' }, { kind: 'changed', path: 'memory/operating-principles.md' }),
  {
    after: (folder) => {
      write(folder, 'memory/copy-voice.md', FILES['memory/operating-principles.md']);
      write(folder, 'memory/operating-principles.md', FILES['memory/copy-voice.md']);
    },
  },
);
make('list_of_files_lies', 'signed with a list that is not the files', differ({ kind: 'missing', path: 'memory/other.md' }), {
  named: { files: [...listed(), { path: 'memory/other.md', sha256: sha256('') }] },
});
make('list_of_files_repeats', 'signed with a path that stands twice', broken('files-malformed'), {
  named: { files: [...listed(), listed()[0]] },
});
make('list_of_files_malformed', 'signed with a list of names', broken('files-malformed'), {
  named: { files: Object.keys(FILES) },
});
make('file_changed_without_names', 'changed, and no list to tell which', broken('signature-invalid', { warnings: true }), {
  names: false,
  after: append('agents.md', '\n'),
});

function listed() {
  return Object.keys(FILES).sort().map((name) => ({ path: name, sha256: sha256(FILES[name]) }));
}

// The manifest is not the one that was signed

make('title_changed', 'one member has another value', broken('signature-invalid'), {
  after: editMembers((manifest) => void (manifest.title = 'Notes to be trusted')),
});
make('member_added', 'one member more', broken('signature-invalid'), {
  after: editMembers((manifest) => void (manifest.extra = 1)),
});
make('member_order_text', 'members change their order, which the text form signs', broken('signature-invalid'), {
  after: editMembers((manifest) => Object.fromEntries(Object.entries(manifest).reverse())),
});

// It is not signed, or by somebody else

make('not_signed', '`signed` is false', broken('unsigned'), {
  after: editMembers((manifest) => void (manifest.signed = false)),
});
make('signed_missing', '`signed` is not there', broken('unsigned'), {
  after: editMembers((manifest) => void delete manifest.signed),
});
make('signed_is_text', '`signed` is "yes"', broken('unsigned'), {
  after: editMembers((manifest) => void (manifest.signed = 'yes')),
});
make('signed_is_one', '`signed` is 1', broken('unsigned'), { after: editMembers((manifest) => void (manifest.signed = 1)) });
make('other_signer', 'signed anew by a stranger, whose key it brings', broken('other-signer'), { key: stranger });
make('other_signer_hidden', 'signed by a stranger, with the key of the signer inside', broken('signature-invalid'), {
  key: stranger,
  named: { public_key: pemOf(signer) },
});

// The signature is not 64 bytes in base64url without padding; Node takes most of these

const respell = (change) => editMembers((manifest) => void (manifest.signature = change(manifest.signature)));
const malformed = (name, about, change) => make(name, about, broken('signature-malformed'), { after: respell(change) });
malformed('signature_padded', 'padding at the end', (text) => `${text}==`);
malformed('signature_standard_base64', '+ and / for - and _', (text) => text.replaceAll('-', '+').replaceAll('_', '/'));
malformed('signature_line_end', 'a line end inside', (text) => `${text.slice(0, 40)}\n${text.slice(40)}`);
malformed('signature_space', 'a space at the end', (text) => `${text} `);
malformed('signature_trailing_junk', 'two characters that are none of base64', (text) => `${text}!!`);
malformed('signature_cut', 'one byte less', (text) => Buffer.from(text, 'base64url').subarray(1).toString('base64url'));
malformed('signature_long', 'one byte more', (text) => `${text}AA`);
malformed('signature_spare_bits', 'the last character in another spelling', (text) => {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  return text.slice(0, -1) + alphabet[alphabet.indexOf(text.at(-1)) + 1];
});
malformed('signature_hex', 'hex', (text) => Buffer.from(text, 'base64url').toString('hex'));
malformed('signature_empty', 'no text', () => '');
malformed('signature_null', 'null', () => null);
make('signature_zero', '64 zero bytes', broken('signature-invalid'), { after: respell(() => 'A'.repeat(86)) });
make('signature_s_beyond_order', 's plus the order of the group', broken('signature-invalid'), {
  after: respell((text) => {
    const bytes = Buffer.from(text, 'base64url');
    const littleEndian = (part) => BigInt(`0x${Buffer.from(part).reverse().toString('hex')}`);
    const s = littleEndian(bytes.subarray(32)) + 2n ** 252n + 27742317777372353535851937790883648493n;
    const written = Buffer.from(s.toString(16).padStart(64, '0'), 'hex').reverse();
    return Buffer.concat([bytes.subarray(0, 32), written]).toString('base64url');
  }),
});

// The manifest is read differently by different readers, or by none

const unreadable = (name, about, change) => make(name, about, refused('ManifestNotJson'), { after: edit(change) });
unreadable('member_twice', 'a member stands twice', (text) => text.replace('{', '{"title": "Other notes",'));
unreadable('member_proto', 'a member named __proto__', (text) => text.replace('{', '{"__proto__": {"signed": true},'));
unreadable('number_infinite', '1E400, which JavaScript signs as null', (text) => text.replace('"number": 1', '"number": 1E400'));
unreadable('number_rounded', '2^53 + 1', (text) => text.replace('"number": 1', '"number": 9007199254740993'));
unreadable('byte_order_mark', 'a byte order mark before the manifest', (text) => `\ufeff${text}`);
unreadable('not_json', 'a comma too many', (text) => text.replace(/\n}$/, ',\n}'));
unreadable('not_an_object', 'a list', (text) => `[${text}]`);
