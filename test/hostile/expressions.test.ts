import fc from 'fast-check';
import { expect, it } from 'vitest';
import { compileExpression, ExpressionError } from '../../src/traffic-policy/cel/expression.ts';
import { PolicyRefused } from '../../src/traffic-policy/engine.ts';
import { PolicyFailure } from '../../src/traffic-policy/policy-errors.ts';
import { standalonePorts } from '../../src/traffic-policy/ports.ts';
import { DECLARATIONS } from '../../src/traffic-policy/scope/policy-variables.ts';
import { SubjectScope } from '../../src/traffic-policy/scope/subject-scope.ts';
import { FUZZ_MS, fuzz } from '../support/fuzz.ts';
import { connectionFrom, ENDPOINT, requestFor } from '../traffic-policy/fake-request.ts';

/** CPU time; a running condition blocks all other requests. */
const BLINK_MS = 1_500;

const ATOMS = [
  ...[
    'req.url',
    'req.url.path',
    'req.url.query',
    'req.method',
    'req.headers',
    "req.headers['x']",
    'req.cookies',
    'req.user_agent',
  ],
  ...[
    'req.content_type',
    'req.content_length',
    'conn.client_ip',
    'conn.client_port',
    'conn.ts.start',
    'conn.tls',
    'endpoint.id',
    'vars',
  ],
  ...[
    "'a'",
    "''",
    "'(a+)+$'",
    "'%zz'",
    "'\\u0000'",
    "b'\\xff'",
    '0',
    '-1',
    '1u',
    '9223372036854775807',
    '1e308',
    '0.0',
    'null',
    'true',
  ],
  ...['[]', "['a','b']", '[1,2,3,4,5,6,7,8,9]', '{}', "{'a':1}", "getReqHeader('x')", "getCookie('a')", 'x', 'y'],
];
const METHODS = [
  ...[
    'matches',
    'split',
    'contains',
    'startsWith',
    'replace',
    'substring',
    'indexOf',
    'join',
    'format',
    'size',
    'lowerAscii',
  ],
  ...[
    'decodeBase64',
    'encodeUrl',
    'decodeUrl',
    'distinct',
    'flatten',
    'slice',
    'sort',
    'reverse',
    'all',
    'isNoSuchMethod',
  ],
];
const OPERATORS = ['==', '!=', '<', '&&', '||', '+', '-', '*', '/', '%', 'in'];
const { expression } = fc.letrec<{ expression: string }>((tie) => {
  const part = tie('expression');
  return {
    expression: fc.oneof(
      { depthSize: 'small', maxDepth: 5, withCrossShrink: true },
      fc.constantFrom(...ATOMS),
      fc
        .tuple(part, fc.constantFrom(...OPERATORS), part)
        .map(([left, operator, right]) => `(${left} ${operator} ${right})`),
      fc
        .tuple(part, fc.constantFrom(...METHODS), fc.array(part, { maxLength: 2 }))
        .map(([on, name, given]) => `${on}.${name}(${given.join(', ')})`),
      fc
        .tuple(part, fc.constantFrom('map', 'filter', 'exists', 'all', 'sortBy'), fc.constantFrom('x', 'y'), part)
        .map(([on, macro, name, each]) => `${on}.${macro}(${name}, ${each})`),
      fc.tuple(part, part).map(([on, at]) => `${on}[${at}]`),
      fc.tuple(part, part, part).map(([when, then, otherwise]) => `(${when} ? ${then} : ${otherwise})`),
      part.map((of) => `!${of}`),
      fc
        .tuple(fc.constantFrom('size', 'string', 'int', 'bool', 'timestamp', 'duration', 'type', 'dyn'), part)
        .map(([name, of]) => `${name}(${of})`),
    ),
  };
});

/** Clients' requests as the HTTP parser accepts them. */
const text = fc.oneof(
  fc.string({ maxLength: 40 }),
  fc.constantFrom('%', '%00', '=', ';', 'a'.repeat(2_000), '../..', "'", '"', '\u00ff', '{{'),
);
const request = fc.record({
  method: fc.constantFrom('GET', 'POST', 'M-SEARCH'),
  target: text.map((rest) => `/${rest}`),
  headers: fc
    .array(
      fc.tuple(fc.constantFrom('x', 'cookie', 'user-agent', 'content-type', 'content-length', '__proto__'), text),
      { maxLength: 4 },
    )
    .map((pairs) => pairs.flat()),
});

/** The result of a step; null for an expected failure. */
function orNull<T>(step: () => T, ...expected: (new (...given: never[]) => Error)[]): T | null {
  try {
    return step();
  } catch (error) {
    if (expected.some((kind) => error instanceof kind)) return null;
    throw error;
  }
}

it('any expression about any request ends soon, with a value or an error', {
  timeout: FUZZ_MS,
}, async () => {
  let evaluated = 0;
  fc.assert(
    fc.property(expression, request, (source, asked) => {
      const before = process.cpuUsage();
      const compiled = orNull(() => compileExpression(source, DECLARATIONS.on_http_request), PolicyRefused);
      const scope = new SubjectScope(standalonePorts(), connectionFrom(), ENDPOINT, requestFor(asked));
      orNull(() => compiled?.evaluate(scope), ExpressionError, PolicyFailure);
      if (compiled) evaluated += 1;
      const { user, system } = process.cpuUsage(before);
      expect((user + system) / 1_000).toBeLessThan(BLINK_MS);
    }),
    fuzz(1_000),
  );
  // Otherwise most of them would test nothing.
  expect(evaluated).toBeGreaterThan(100);
});
