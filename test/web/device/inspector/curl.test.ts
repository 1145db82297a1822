import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import type { RequestDetail } from '../../../../src/agent/api/inspection/inspection-reports.ts';
import { toCurl } from '../../../../src/web/device/inspector/curl.ts';

const URL = 'https://cam.example.com/';

function detail(changes: Partial<RequestDetail>, request: Partial<RequestDetail['request']> = {}): RequestDetail {
  const parts = { method: 'GET', path: '/', ...changes };
  return { ...parts, request: { headers: [], trailers: [], body: null, ...request } } as RequestDetail;
}

function textBody(text: string): RequestDetail['request']['body'] {
  return { text, base64: null, truncated: false } as RequestDetail['request']['body'];
}

/** What curl gets of a command that a shell runs: its arguments, and its standard input. */
function run(command: string): { args: string[]; input: string } {
  const script = `curl() { printf '%s\\0' "$@"; printf '\\0'; [ "$piped" ] && cat; return 0; }; ${command}`;
  const output = execFileSync('sh', ['-c', script], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, ...(command.startsWith('printf') && { piped: '1' }) },
  });
  const end = output.indexOf('\0\0');
  return { args: output.slice(0, end).split('\0'), input: output.slice(end + 2) };
}

it('a request is repeated with its method, headers and body, without what belongs to its connection', () => {
  const headers = [
    { name: 'Host', value: 'cam.example.com' },
    { name: 'Content-Type', value: 'application/json' },
    { name: 'Content-Length', value: '7' },
    { name: 'Accept-Encoding', value: 'gzip' },
    { name: 'X-Empty', value: '' },
  ];
  const { args } = run(
    toCurl(detail({ method: 'PUT', path: '/a?b=[1-3]' }, { headers, body: textBody('{"a":1}') }), URL),
  );
  expect(args).toEqual([
    ...['--globoff', '--path-as-is', 'https://cam.example.com/a?b=[1-3]'],
    ...['--request', 'PUT', '--header', 'Content-Type: application/json', '--header', 'X-Empty;'],
    ...['--compressed', '--data-raw', '{"a":1}'],
  ]);
});

it.each(["'; touch /tmp/x; '", '$(id)', '`id`', '\\', '!!', '"', "it's\nover\ttwo lines", '@/etc/passwd'])(
  'a shell takes %j in path, header and body as text',
  (hostile) => {
    const headers = [{ name: 'X-Hostile', value: hostile }];
    const made = detail({ method: 'POST', path: `/${hostile}` }, { headers, body: textBody(hostile) });
    const { args } = run(toCurl(made, URL));
    expect(args.slice(2)).toEqual([
      `https://cam.example.com/${hostile}`,
      ...['--header', `X-Hostile: ${hostile}`, '--data-raw', hostile],
    ]);
  },
);

it.each([
  ['decoded', null, []],
  ['sent as it was captured when it could not be decoded', 'invalid gzip', ['--header', 'Content-Encoding: gzip']],
])('a compressed body is %s', (_, error, expected) => {
  const headers = [{ name: 'Content-Encoding', value: 'gzip' }];
  const body = { text: 'abc', base64: null, truncated: false, error } as RequestDetail['request']['body'];
  const { args } = run(toCurl(detail({ method: 'POST' }, { headers, body }), URL));
  expect(args.slice(3)).toEqual([...expected, '--data-raw', 'abc']);
});

it('a body that could control a terminal is encoded', () => {
  const hostile = '\u001b]0;title\u0007\rrm -rf ~ü';
  const command = toCurl(detail({ method: 'POST' }, { body: textBody(hostile) }), URL);
  expect(command).not.toContain('\u001b');
  expect(run(command)).toEqual({ args: expect.arrayContaining(['--data-binary', '@-']), input: hostile });
});
