import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compilePolicy, PolicyRefused } from '../../src/traffic-policy/engine.ts';
import { expectBlink } from '../support/blink.ts';
import { checkPolicy } from '../support/check-policy.ts';
import { fuzz } from '../support/fuzz.ts';

/** Compiling a policy blocks all other traffic. In processor time, because other processes run as well. */
const BLINK_MS = 1500;

function compile(text: string): void {
  const before = process.cpuUsage();
  try {
    compilePolicy(text, 'https');
  } catch (error) {
    if (!(error instanceof PolicyRefused)) throw error;
    expect(error.code).toMatch(/^ERR_NGROK_\d{4}$/);
    expect(error.problems.length).toBeGreaterThan(0);
  }
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 1000).toBeLessThan(BLINK_MS);
}

const withExpression = (expression: string) =>
  JSON.stringify({ on_http_request: [{ expressions: [expression], actions: [{ type: 'deny' }] }] });

const withBody = (body: string) =>
  JSON.stringify({ on_http_request: [{ actions: [{ type: 'custom-response', config: { body } }] }] });

/** Pieces of CEL, so that random text gets past the first character. */
const celPieces = fc
  .array(
    fc.constantFrom(
      ...[
        'req',
        '.url',
        '.headers',
        "['x']",
        'vars',
        '&&',
        '||',
        '!',
        '-',
        '(',
        ')',
        '[',
        ']',
        '{',
        '}',
        '?',
        ':',
        ',',
      ],
      ...[
        '.map(x, ',
        '.exists(y, ',
        '.sortBy(z, ',
        'has(',
        'x',
        'y',
        '1',
        '1u',
        '2.5',
        "'a'",
        '"b"',
        "'''",
        "r'",
        '\\',
        ' in ',
      ],
      ...[
        '.matches(',
        '==',
        '<',
        '+',
        '%',
        'b"',
        '//',
        '\n',
        'true',
        'null',
        'getReqHeader(',
        '.split()',
        '@tick()',
        '.',
        '\u0000',
      ],
    ),
    { maxLength: 60 },
  )
  .map((pieces) => pieces.join(''));

describe('hostile text', () => {
  it('is rejected or compiled as a policy', () => {
    fc.assert(fc.property(fc.string({ maxLength: 300 }), compile), fuzz(300));
    fc.assert(fc.property(fc.json(), compile), fuzz(300));
  });

  it('is rejected or compiled as an expression', () => {
    fc.assert(
      fc.property(celPieces, (text) => compile(withExpression(text))),
      fuzz(750),
    );
    fc.assert(
      fc.property(fc.string({ maxLength: 200 }), (text) => compile(withExpression(text))),
      fuzz(300),
    );
  });

  it('is rejected or compiled as a template', () => {
    const pieces = fc.array(fc.oneof(fc.constantFrom('${', '}', '{', "'", '"', '\\', '$', 'a'), celPieces), {
      maxLength: 12,
    });
    fc.assert(
      fc.property(pieces, (text) => compile(withBody(text.join('')))),
      fuzz(1000),
    );
  });

  it('is rejected or compiled as a configuration of any action', () => {
    const types = [
      'basic-auth',
      'jwt-validation',
      'rate-limit',
      'redirect',
      'set-vars',
      'log',
      'restrict-ips',
      'verify-webhook',
    ];
    fc.assert(
      fc.property(fc.constantFrom(...types), fc.jsonValue({ maxDepth: 4 }), (type, config) => {
        compile(JSON.stringify({ on_http_request: [{ actions: [{ type, config }] }] }));
      }),
      fuzz(500),
    );
  });

  it.each([
    ['brackets that never close', '('.repeat(4000)],
    ['closed brackets', `${'('.repeat(2000)}1${')'.repeat(2000)}`],
    ['negations', `${'!'.repeat(4000)}true`],
    ['conditions', `${'a?b:'.repeat(900)}1`],
    ['conjunctions', `true${'&&true'.repeat(600)}`],
    ['members', `req${'.a'.repeat(2000)}`],
    ['quotes', "'".repeat(4001)],
    ['backslashes', `'${'\\'.repeat(4000)}`],
    ['comments', '//'.repeat(2000)],
    ['calls', `${'f('.repeat(1000)}1${')'.repeat(1000)}`],
    ['loops', '[1].map(a, [1].map(b, [1].map(c, [1].map(d, 1))))'],
    ['bracket characters hidden in texts', `${"'('+(".repeat(500)}1${')'.repeat(500)}`],
    ['brackets behind a quote in a comment', `//'\n${'('.repeat(4000)}`],
    ['brackets behind a quote that a line ends', `'\n${'('.repeat(4000)}`],
    ['a text of more than 4 KiB', `'${'a'.repeat(5000)}' == 'b'`],
  ])('is parsed quickly: %s in an expression', (_, expression) => {
    compile(withExpression(expression));
  });

  it.each([
    ['nested YAML', `on_http_request: ${'['.repeat(30_000)}`],
    ['nested JSON', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`],
    ['nested maps', `on_http_request: ${'{a: '.repeat(10_000)}`],
    [
      'aliases that multiply',
      `a: &a [x,x,x,x,x,x,x,x,x]\n${[...'bcdefgh'].map((name, at) => `${name}: &${name} [${`*${'abcdefgh'[at]},`.repeat(9)}]`).join('\n')}\non_http_request: *h`,
    ],
    ['a text of more than 64 KiB', `# ${'x'.repeat(70_000)}`],
    [
      'a phase that stands twice',
      '{"on_http_request": [{"actions": [{"type": "deny"}]}], "on_http\\u005frequest": []}',
    ],
    ['a prototype', '{"__proto__": {"on_http_request": []}, "constructor": 1}'],
  ])('is rejected quickly: %s', (_, text) => {
    expect(checkPolicy(text, ['https'])[0]?.code).toMatch(/^ERR_NGROK_22/);
    compile(text);
  });

  it.each([
    ['brackets', `on_http_request: ${'['.repeat(1_900)}`],
    ['maps', `on_http_request: ${'{a: '.repeat(900)}`],
    ['lists', `on_http_request:\n${'- '.repeat(1_900)}`],
    ['keys', `${'? '.repeat(1_900)}a`],
    ['brackets behind a quote', `{a: 'it''s', b: ${'["]", '.repeat(700)}`],
  ])('that nests %s deeply is rejected before the stack is used up', (_, text) => {
    expect(checkPolicy(text, ['https'])[0]?.code).toBe('ERR_NGROK_2250');
  });

  it.each<[string, (text: string, count: number) => string, string]>([
    ['aliases', (each, count) => `- &a {}\n${each.repeat(count)}`, '- *a\n'],
    ['aliases in brackets', (each, count) => `[&a {},${each.repeat(count)}]`, '*a,'],
    ['keys', (_, count) => Array.from({ length: count }, (_, at) => `${at}:\n`).join(''), ''],
    ['keys in braces', (_, count) => `{${Array.from({ length: count }, (_, at) => `${at}: ,`).join('')}}`, ''],
    ['the same key', (each, count) => each.repeat(count), '? a\n'],
    ['closing brackets', (each, count) => each.repeat(count), '}'],
    ['lines of text', (each, count) => `a: |\n${each.repeat(count)}`, '\n'],
    ['directives', (each, count) => each.repeat(count), '%a\n'],
    ['entries', (each, count) => each.repeat(count), '- 1e9\n'],
    ['comments', (each, count) => each.repeat(count), 'a #b\n'],
  ])('never takes long, however many %s there are', async (_, text, each) => {
    for (const count of [20, 500, 1300, 1999, 3999, 12_000]) {
      const yaml = text(each, count).slice(0, 64 * 1024);
      await expectBlink(() => checkPolicy(yaml, ['https']), `${count}`);
    }
  });

  const LIST = (length: number) => `1 in [${Array.from({ length }, (_, at) => at).join(',')}]`;
  const LOOPS = (count: number) => Array.from({ length: count }, (_, at) => `[${at}].exists(a, a == 1)`).join('||');
  const texts = (length: number, text: string) =>
    Object.fromEntries(Array.from({ length }, (_, at) => [`a${at}`, text]));
  const withMetadata = (metadata: object) =>
    JSON.stringify({ on_http_request: [{ actions: [{ type: 'log', config: { metadata } }] }] });

  it.each<[string, string, string, string]>([
    ['parts in an expression', withExpression(LIST(498)), withExpression(LIST(500)), 'more than 1000 parts'],
    [
      'parts in an expression of comparisons',
      withExpression(Array.from({ length: 125 }, (_, at) => `req.url.path == '/${at}'`).join(' || ')),
      withExpression(Array.from({ length: 126 }, (_, at) => `req.url.path == '/${at}'`).join(' || ')),
      'more than 1000 parts',
    ],
    ['loops in an expression', withExpression(LOOPS(20)), withExpression(LOOPS(21)), 'more than 20 loops'],
    [
      'insertions',
      withMetadata(texts(100, `\${1}`)),
      withMetadata(texts(101, `\${1}`)),
      'the action has more than 100',
    ],
    [
      'parts of insertions',
      withMetadata(texts(50, `\${${'1+'.repeat(9)}1}`)),
      withMetadata(texts(53, `\${${'1+'.repeat(9)}1}`)),
      'more than 1000 parts together',
    ],
    ['values in an action', withMetadata(texts(2_400, 'a')), withMetadata(texts(2_500, 'a')), 'more than 2500 values'],
    [
      'patterns in an expression',
      withExpression(Array.from({ length: 20 }, (_, at) => `''.matches('^/api/v[0-9]{1,3}/${at}/')`).join('||')),
      withExpression(Array.from({ length: 60 }, (_, at) => `''.matches('^/api/v[0-9]{1,3}/${at}/')`).join('||')),
      'are too large in total',
    ],
  ])('may have as many %s as allowed, and no more', (_, most, beyond, problem) => {
    expect(checkPolicy(most, ['https'])).toEqual([]);
    expect(checkPolicy(beyond, ['https'])[0]?.message).toContain(problem);
  });

  it('may have many rules in YAML, which are not nested deeply', () => {
    const rule =
      '  - expressions: ["req.url.path == \'/a\'"]\n    actions: [{ type: deny, config: { status_code: 404 } }]\n';
    expect(checkPolicy(`on_http_request:\n${rule.repeat(100)}`, ['https'])).toEqual([]);
  });

  it('with as many of the most expensive expressions as allowed compiles quickly', () => {
    const rules = Array.from({ length: 15 }, (_, at) => ({
      expressions: [`true${`&&${at}<2`.repeat(600)}`],
      actions: [{ type: 'deny' }],
    }));
    compile(JSON.stringify({ on_http_request: rules }));
  });

  it.each<[string, (at: number) => string]>([
    ['are written out', (at) => `(?:a{30}){9}${at}`],
    ['hold Unicode classes', (at) => `[^\\pL]{2}[^\\pN]${at}`],
    ['are each too large', (at) => `${'a{1000}'.repeat(70)}${at}`],
  ])('with as many patterns as allowed that %s is rejected quickly', (_, pattern) => {
    const expressions = (rule: number) =>
      Array.from({ length: 20 }, (_, at) => `''.matches('${pattern(rule * 20 + at)}')`);
    const rule = (_: unknown, at: number) => ({ expressions: expressions(at), actions: [{ type: 'deny' }] });
    const count = Math.min(30, Math.floor(60_000 / JSON.stringify(rule(0, 0)).length));
    const text = JSON.stringify({ on_http_request: Array.from({ length: count }, rule) });
    expect(checkPolicy(text, ['https'])[0]?.code).toBe('ERR_NGROK_2261');
    compile(text);
  });

  it('accepts a policy with as many patterns as real policies have', () => {
    const paths = Array.from({ length: 100 }, (_, at) => `req.url.path.matches('^/api/v[0-9]{1,3}/${at}/(?:a|b|c)+$')`);
    const rules = paths.map((path) => ({ expressions: [path], actions: [{ type: 'deny' }] }));
    expect(checkPolicy(JSON.stringify({ on_http_request: rules }), ['https'])).toEqual([]);
  });
});
