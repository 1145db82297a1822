// @ts-nocheck: it is run by hand, when the specification changes.
// Converts the conformance tests of google/cel-spec (Apache-2.0) to test/traffic-policy/cel-spec/cases.json.
// Run it in a clone: node scripts/cel-spec-cases.js <clone>/tests/simple/testdata
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** The others are about protocol buffers, static types, or extensions that policies do not have. */
const FILES = [
  ...['basic', 'comparisons', 'conversions', 'fields', 'fp_math', 'integer_math', 'lists', 'logic', 'macros'],
  ...['parse', 'plumbing', 'string', 'string_ext', 'timestamps'],
];

/** A message of protocol buffers' text format: a list of fields and values. */
function parse(text) {
  const tokens = text.match(/#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\[[\w./]+\]|[-\w.]+|[{}:;,<>[\]]/g) ?? [];
  const clean = tokens.filter((token) => !token.startsWith('#'));
  let at = 0;
  const message = () => {
    const fields = [];
    while (at < clean.length && clean[at] !== '}') {
      const name = clean[at++];
      if (clean[at] === ':') at++;
      if (clean[at] === '{') {
        at++;
        fields.push([name, message()]);
        at++;
      } else {
        let value = clean[at++];
        while (/^["']/.test(value) && /^["']/.test(clean[at] ?? '')) value = joined(value, clean[at++]);
        fields.push([name, value]);
      }
      if (clean[at] === ',' || clean[at] === ';') at++;
    }
    return fields;
  };
  return message();
}

const joined = (one, other) => `"${one.slice(1, -1)}${other.slice(1, -1)}"`;

/** The bytes of a string literal. */
function bytesOf(literal) {
  const bytes = [];
  const escapes = { n: 10, r: 13, t: 9, a: 7, b: 8, f: 12, v: 11 };
  const body = literal.slice(1, -1);
  for (const [part] of body.matchAll(/\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|[^\\]+/gs)) {
    if (!part.startsWith('\\')) bytes.push(...Buffer.from(part));
    else if (/^\\[0-7]/.test(part)) bytes.push(Number.parseInt(part.slice(1), 8));
    else if (part[1] === 'x') bytes.push(Number.parseInt(part.slice(2), 16));
    else if (/^\\[uU]/.test(part)) bytes.push(...Buffer.from(String.fromCodePoint(Number.parseInt(part.slice(2), 16))));
    else bytes.push(...(part[1] in escapes ? [escapes[part[1]]] : Buffer.from(part[1])));
  }
  return Buffer.from(bytes);
}

const field = (message, name) => message.find(([each]) => each === name)?.[1];
const all = (message, name) => message.filter(([each]) => each === name).map(([, value]) => value);

/** [kind, value]; null for a value that only protocol buffers have. */
function celValue([entry]) {
  const [kind, value] = entry ?? [];
  switch (kind) {
    case 'bool_value':
      return ['bool', value === 'true'];
    case 'int64_value':
      return ['int', BigInt(value).toString()];
    case 'uint64_value':
      return ['uint', BigInt(value).toString()];
    case 'double_value':
      return ['double', String(Number(value.replace(/^(-?)inf\w*$/i, '$1Infinity')))];
    case 'string_value':
      return ['string', bytesOf(value).toString()];
    case 'bytes_value':
      return ['bytes', bytesOf(value).toString('base64')];
    case 'null_value':
      return ['null'];
    case 'type_value':
      return ['type', bytesOf(value).toString()];
    case 'list_value': {
      const elements = all(value, 'values').map(celValue);
      return elements.includes(null) ? null : ['list', elements];
    }
    case 'map_value': {
      const members = all(value, 'entries').map((each) => [
        celValue(field(each, 'key')),
        celValue(field(each, 'value')),
      ]);
      return members.some((pair) => pair.includes(null)) ? null : ['map', members];
    }
    default:
      return null;
  }
}

function caseOf(test, file, section) {
  const expression = field(test, 'expr');
  const name = `${file}/${section}/${bytesOf(field(test, 'name')).toString()}`;
  const variables = {};
  for (const binding of all(test, 'bindings')) {
    const value = celValue(field(field(binding, 'value'), 'value') ?? []);
    if (value === null) return [];
    variables[bytesOf(field(binding, 'key')).toString()] = value;
  }
  const expected = field(test, 'value');
  const isError = field(test, 'eval_error') !== undefined;
  const value = expected === undefined ? ['bool', true] : celValue(expected);
  if (value === null || field(test, 'typed_result') || field(test, 'unknown')) return [];
  const result = isError ? ['error'] : value;
  const text = bytesOf(expression).toString();
  return [[name, text, result, ...(Object.keys(variables).length > 0 ? [variables] : [])]];
}

const folder = process.argv[2];
const cases = FILES.flatMap((file) =>
  all(parse(readFileSync(join(folder, `${file}.textproto`), 'utf8')), 'section').flatMap((section) =>
    all(section, 'test').flatMap((test) => caseOf(test, file, bytesOf(field(section, 'name')).toString())),
  ),
);
const lines = cases.map((each) => `  ${JSON.stringify(each)}`);
writeFileSync('test/traffic-policy/cel-spec/cases.json', `[\n${lines.join(',\n')}\n]\n`);
