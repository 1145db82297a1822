import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { allOperations, OPERATIONS } from '../../src/management/operations.ts';

const text = readFileSync('docs/management-api.md', 'utf8');

interface Row {
  /** The file that the heading above names. */
  file: string;
  rule: string;
  tests: string;
}

function rows(): Row[] {
  let file = '';
  const found: Row[] = [];
  for (const line of text.split('\n')) {
    if (line.startsWith('#')) file = /\(`(.*)`\)$/.exec(line)?.[1] ?? '';
    const [, rule, tests] = /^\| (.*?) +\| (.*?) +\|$/.exec(line) ?? [];
    if (rule && tests && !/^-+$/.test(tests) && tests !== 'Test') found.push({ file, rule, tests });
  }
  return found;
}

/** The names of all tests and groups in a file, as they stand in its source. */
function titles(source: string): string[] {
  return [...source.matchAll(/\(\s*(['"`])((?:\\.|(?!\1).)+)\1,\s*(?:async )?\(/g)].map((match) => match[2] ?? '');
}

/** What is wrong with one reference to a test, such as `` `lib/ids.test.ts` › grow … [413] ``. */
function problemOf(reference: string, defaultFile: string): string | null {
  const [, file = defaultFile, rest = ''] = /^(?:`([^`]+\.test\.ts)`(?: › )?)?(.*)$/.exec(reference) ?? [];
  if (!existsSync(`test/${file}`)) return `there is no file ${file}`;
  const source = readFileSync(`test/${file}`, 'utf8');
  const [, names = '', codes = ''] = /^(.*?)(?: ?\[([\d, ]+)\])?$/.exec(rest) ?? [];
  const missing = names
    .split(' › ')
    .filter((name) => name !== '' && name !== '…')
    .find((name) => !titles(source).some((title) => matches(title, name)));
  if (missing !== undefined) return `${file} has no test ${missing}`;
  const code = codes.split(', ').find((one) => one !== '' && !new RegExp(`\\b(ERR_NGROK_)?${one}\\b`).test(source));
  return code === undefined ? null : `${file} does not know ${code}`;
}

function matches(title: string, name: string): boolean {
  const pattern = name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/ ?…/g, '.*');
  return new RegExp(`^${pattern}$`).test(title.replaceAll("\\'", "'"));
}

describe('docs/management-api.md', () => {
  it('names tests that exist', () => {
    expect(rows().length).toBeGreaterThan(100);
    const problems = rows().flatMap(({ file, rule, tests }) =>
      tests.split('; ').flatMap((reference) => {
        const problem = problemOf(reference, file);
        return problem === null ? [] : [`${rule}: ${problem}`];
      }),
    );
    expect(problems).toEqual([]);
  });

  it('has a row for every path of the API', () => {
    const named = rows().map(({ rule }) => rule.replace('/service_users', '/service_users /service_users/{id}'));
    const paths = new Set(allOperations().map(({ operation }) => operation.path));
    // Adjacent resources are named by their collection.
    const missing = [...paths].filter(
      (path) => ![path, path.replace('/{id}', '')].some((one) => named.some((rule) => rule.includes(one))),
    );
    expect(missing).toEqual([]);
  });

  it.each([
    ['Reserved domains', OPERATIONS.reservedDomains.get.answer.shape],
    ['TLS edges', OPERATIONS.tlsEdges.get.answer.shape],
    ['Bot users', OPERATIONS.botUsers.get.answer.shape],
  ])('has a row for every field of %s', (heading, shape) => {
    const section = text.split(`\n## ${heading} `)[1]?.split('\n## ')[0] ?? '';
    const missing = Object.keys(shape).filter((field) => !section.includes(`\`${field}\``));
    expect(missing).toEqual([]);
  });
});
